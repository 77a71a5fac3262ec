"""Error of `neuroexplicit` on noisy vectors, by the weight of the vectors in the soft data term.

    python benchmarks/soft_weights.py FRAMES/alley_1_f0001 FRAMES/market_5_f0002 … [--noise 0.5]

Each argument is a folder with image.png and flow.flo. 5 % of the vectors are given, with Gaussian noise. Prints the EPE
with exact vectors and with each weight.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from flowinpaint.api import load_model, to_batch
from flowinpaint.io import read_flow, read_image
from flowinpaint.metrics import epe

DENSITY = 0.05
WEIGHTS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)


@torch.no_grad()
def main() -> None:
    """Print a line per folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--noise", type=float, default=0.5, help="standard deviation in px")
    options = parser.parse_args()
    model, cpu = load_model("neuroexplicit", "cpu"), torch.device("cpu")
    print("frame", "exact", *WEIGHTS, sep="  ")
    for folder in options.folders:
        image, (truth, valid) = read_image(folder / "image.png"), read_flow(folder / "flow.flo")
        rng = np.random.default_rng(0)
        mask = (rng.random(valid.shape) < DENSITY) & valid
        noisy = np.where(valid[..., None], truth, 0) + options.noise * rng.standard_normal(truth.shape)
        inputs = [to_batch(x, cpu) for x in (image / 255, noisy, mask[..., None])]
        errors = []
        for weight in (None, *(torch.full_like(inputs[2], k) for k in WEIGHTS)):
            dense = model(*inputs, weight)[0].movedim(0, -1).numpy()
            errors.append(f"{epe(dense, np.where(valid[..., None], truth, 0), valid=valid):.3f}")
        print(folder.name, *errors, sep="  ", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"Error: {error}")
