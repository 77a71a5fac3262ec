"""Relative error (in norm) of a training step's gradient on CUDA, compared with plain float32.

    python benchmarks/gradient_error.py fast [model.safetensors] [--set data.bank=BANK]

One line per batch of generated scenes, for a new network or trained weights. For comparison: plain PyTorch with TF32 in
cuDNN, which is its default, and plain PyTorch under autocast to bfloat16.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from flowinpaint.api import load_model
from flowinpaint.data import Batch
from flowinpaint.networks.registry import build_network
from flowinpaint.neuroexplicit.model import BackendChoice, Neuroexplicit
from flowinpaint.training.batches import scenes_of
from flowinpaint.training.config import read_config

BATCHES, SCENES, DENSITY = 4, 4, 0.05


def main() -> None:
    """Print the distances for a few batches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("weights", type=Path, nargs="?")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("Error: this needs a CUDA device, and PyTorch sees none.")
    config, device = read_config(options.config, options.set), torch.device("cuda")
    torch.manual_seed(0)
    net = load_model(options.weights, device) if options.weights else build_network(config.model)
    assert isinstance(net, Neuroexplicit)
    net, scenes = net.to(device), scenes_of(config.data, device)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {SCENES} × {config.data.size}")
    for n in range(BATCHES):
        batch = scenes(torch.arange(SCENES * n, SCENES * (n + 1), device=device))
        torch.backends.cudnn.allow_tf32 = False
        exact = gradient(net, batch, "torch")
        fast = gradient(net, batch, "auto", autocast=True)
        halves = gradient(net, batch, "torch", autocast=True)
        torch.backends.cudnn.allow_tf32 = True
        rounded = gradient(net, batch, "torch")
        ours, tf32, bfloat16 = (float((g - exact).norm() / exact.norm()) for g in (fast, rounded, halves))
        print(f"own kernels {100 * ours:.2f} %, TF32 {100 * tf32:.2f} %, autocast {100 * bfloat16:.2f} %", flush=True)


def gradient(net: Neuroexplicit, batch: Batch, backend: BackendChoice, autocast: bool = False) -> Tensor:
    """The gradient of the mean endpoint error for all parameters, as one vector."""
    generator = torch.Generator().manual_seed(0)
    mask = (torch.rand(batch.valid.shape, generator=generator) < DENSITY).to(batch.flow.device)
    net.backend = backend
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        out = net(batch.image, batch.flow, mask)
    found = torch.autograd.grad((out.float() - batch.flow).norm(dim=1).mean(), list(net.parameters()))
    return torch.cat([g.flatten() for g in found])


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"Error: {error}")
