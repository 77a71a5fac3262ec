"""Edge-enhancing diffusion inpainting: linear, driven by the image, coarse to fine, to the steady state."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from flowinpaint.diffusion.tensor import edge_enhancing_tensor
from flowinpaint.errors import InputError
from flowinpaint.explicit.coarse_to_fine import inpaint_coarse_to_fine
from flowinpaint.result import ProgressCallback, Solution

TUNED_LAMBDA = 1e-4
TUNED_ALPHA = {0.01: 0.42, 0.05: 0.3, 0.10: 0.1}
"""α by mask density. Both as the paper's grid search found them (its Table 6)."""


def tuned_alpha(density: float) -> float:
    """α for a share of known pixels: linear in log density between the tuned ones, constant beyond them."""
    tuned = sorted(TUNED_ALPHA.items())
    return float(np.interp(math.log(density), [math.log(d) for d, _ in tuned], [alpha for _, alpha in tuned]))


def eed(
    image: Tensor,
    f: Tensor,
    c: Tensor,
    *,
    lam: float = TUNED_LAMBDA,
    alpha: float | None = None,
    rho: float = 0.5,
    tolerance: float = 1e-6,
    max_iterations: int = 100_000,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Diffusion along image edges and not across them (Equations 1 to 6 of the paper).

    image (1, 3, H, W) in [0, 1]; f (1, C, H, W); c (1, 1, H, W). lam: contrast parameter λ of the diffusivity on the
    structure tensor's eigenvalue, a squared gradient, so 1e-4 separates gradients at about 0.01 per pixel.
    alpha: discretisation parameter, by default `tuned_alpha` of the mask's density. rho: standard deviation of the
    presmoothing in pixels.
    """
    if not 1e-12 <= lam <= 1e12:
        raise InputError(f"lam: {lam} was given; a contrast parameter from 1e-12 to 1e12 is taken.")
    if alpha is not None and not 0 <= alpha <= 0.5:
        raise InputError(f"alpha: {alpha} was given; a value in [0, 0.5] is taken.")
    side = max(image.shape[-2:])
    if not 0 <= rho <= side:
        raise InputError(f"rho: {rho} was given; a standard deviation from 0 to the image's {side} pixels is taken.")
    if alpha is None:
        alpha = tuned_alpha(float(c.mean()))
    return inpaint_coarse_to_fine(
        image, f, c, lambda level: edge_enhancing_tensor(level, lam, rho), alpha, tolerance, max_iterations, progress
    )
