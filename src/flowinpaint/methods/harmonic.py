"""Harmonic inpainting: Δu = 0 between the known pixels. Smooth, blind to the image."""

from __future__ import annotations

from torch import Tensor

from flowinpaint.methods.linear_solvers import fill_steady
from flowinpaint.result import ProgressCallback, Solution


def harmonic(
    image: Tensor,
    flow: Tensor,
    mask: Tensor,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    weight: Tensor | None = None,
    progress: ProgressCallback | None = None,
) -> Solution:
    """The steady state of the five-point Laplacian. The image is not used.

    flow (1, C, H, W); mask (1, 1, H, W); weight (1, 1, H, W): how strongly each given vector binds, exactly by default.
    """
    B, _, H, W = flow.shape
    weights = flow.new_zeros(B, 4, H, W)
    weights[:, 0, :, : W - 1] = 1
    weights[:, 1, : H - 1] = 1
    return fill_steady(flow, mask, weights, weight, tolerance, max_iterations, progress)
