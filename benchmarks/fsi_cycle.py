"""Memory and time of a differentiable FSI cycle: with PyTorch's graph, and with its own adjoint.

    OMP_NUM_THREADS=1 python benchmarks/fsi_cycle.py [--device cuda]

Two fields of 2×192×192, 45 steps; the minimum of four runs, all in this process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.fsi import fsi_cycle, fsi_cycle_of
from flowinpaint.diffusion.stencil import divergence

STEPS = 45
RUNS = 4


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    g = torch.Generator().manual_seed(0)
    u, f = (torch.randn(2, 2, 192, 192, generator=g).to(device) for _ in range(2))
    c = (torch.rand(2, 1, 192, 192, generator=g) < 0.05).float().to(device)
    weights = (0.1 * torch.rand(2, 4, 192, 192, generator=g)).to(device).requires_grad_()
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} thread(s)")
    _report(
        "graph of the steps",
        lambda: fsi_cycle_of([partial(divergence, weights)] * STEPS, u, data_term(f, c), 1.0),
        weights,
    )
    _report("fsi_cycle", lambda: fsi_cycle(u, f, c, weights, 1.0, STEPS), weights)
    _report("fsi_cycle, segment=7", lambda: fsi_cycle(u, f, c, weights, 1.0, STEPS, segment=7), weights)


def _report(name: str, cycle: Callable[[], Tensor], weights: Tensor) -> None:
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        cycle()
    forwards, back = [], []
    for _ in range(RUNS):
        begin = _now(weights)
        end = cycle().square().sum()
        middle = _now(weights)
        torch.autograd.grad(end, weights)
        forwards.append(middle - begin)
        back.append(_now(weights) - middle)
    size = sum(kept.values()) / 2**20
    print(f"{name:22s} keeps {size:6.1f} MiB, {1e3 * min(forwards):6.1f} ms forwards, {1e3 * min(back):6.1f} ms back")


def _now(x: Tensor) -> float:
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
