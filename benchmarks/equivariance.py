"""Scaled and shifted fields: how much their results differ from the scaled and shifted results.

    python benchmarks/equivariance.py [FIELDS]

Fields of 5 to 64 pixels with 1 to 40 known vectors of 1 to 3 channels, multiplied by 3.7, shifted by 10, and multiplied
by 4. Prints for each method the median and the largest difference, relative to the largest value of the result.
"""

import sys
import warnings

import numpy as np
import numpy.typing as npt

import flowinpaint as fi

METHODS = ("neuroexplicit", "neuroexplicit-paper", "eed", "laplace-beltrami", "harmonic", "nearest")
CHANGES = ((3.7, 0.0), (1.0, 10.0), (4.0, 0.0))
"""Pairs (scale, shift)."""


def differences(method: str, seed: int) -> list[float]:
    """The largest relative difference of one field for each of CHANGES."""
    rng = np.random.default_rng(seed)
    H, W = rng.integers(5, 65, 2)
    channels, count = int(rng.integers(1, 4)), min(int(rng.integers(1, 41)), int(H * W))
    image = rng.integers(0, 256, (H, W, 3), np.uint8)
    flow = np.full((H, W, channels), np.nan, np.float32)
    flow.reshape(-1, channels)[rng.choice(H * W, count, replace=False)] = rng.normal(0, 5, (count, channels))

    def filled(scale: float, shift: float) -> npt.NDArray[np.float64]:
        changed = flow * np.float32(scale) + np.float32(shift)
        result = fi.inpaint(image, changed, method=method, device="cpu").flow
        return np.asarray((result.astype(np.float64) - shift) / np.float64(np.float32(scale)))

    plain = filled(1, 0)
    return [float(np.abs(filled(*change) - plain).max() / np.abs(plain).max()) for change in CHANGES]


def main(fields: int) -> None:
    """Print a row for each method."""
    warnings.simplefilter("ignore")
    print("median and largest: times 3.7, plus 10, times 4")
    for method in METHODS:
        found = np.array([differences(method, seed) for seed in range(fields)])
        print(method, *(f"{np.median(x):.0e} {x.max():.1e}" for x in found.T), sep=" | ")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
