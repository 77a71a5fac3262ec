"""Harmonic inpainting: Δu = 0 between the known pixels. Smooth, blind to the image."""

from __future__ import annotations

from torch import Tensor

from flowinpaint.methods.steady_fill import fill_steady
from flowinpaint.result import ProgressCallback, Solution


def harmonic(
    image: Tensor,
    f: Tensor,
    c: Tensor,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    progress: ProgressCallback | None = None,
) -> Solution:
    """The steady state of the five-point Laplacian.

    image (1, 3, H, W) only lends its size; f (1, C, H, W); c (1, 1, H, W).
    """
    B, _, H, W = f.shape
    weights = f.new_zeros(B, 4, H, W)
    weights[:, 0, :, : W - 1] = 1
    weights[:, 1, : H - 1] = 1
    return fill_steady(f, c, weights, tolerance, max_iterations, progress)
