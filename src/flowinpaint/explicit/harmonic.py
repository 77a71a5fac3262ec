"""Harmonic inpainting: Δu = 0 between the known pixels. Smooth, blind to the image."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.tensor import SymmetricTensor
from flowinpaint.explicit.coarse_to_fine import inpaint_coarse_to_fine
from flowinpaint.result import ProgressCallback, Solution


def harmonic(
    image: Tensor,
    f: Tensor,
    c: Tensor,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 100_000,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Diffusion with D = I and α = 0, the five-point Laplacian, to its steady state.

    image (1, 3, H, W) only lends its size; f (1, C, H, W); c (1, 1, H, W).
    """
    return inpaint_coarse_to_fine(image, f, c, _identity, 0.0, tolerance, max_iterations, progress)


def _identity(image: Tensor) -> SymmetricTensor:
    one = torch.ones_like(image[:, :1, 1:, 1:])
    return SymmetricTensor(one, torch.zeros_like(one), one)
