"""Laplace–Beltrami inpainting: Δu = 0 between the known pixels on the image as a surface.

Raad, Oliver, Ballester, Haro and Meinhardt-Llopis, "On Anisotropic Optical Flow Inpainting Algorithms", IPOL 2020: the
steady state of diffusion on the graph of neighbouring pixels, each edge weighing 1/d for their distance d in space and
colour.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.errors import InputError
from flowinpaint.methods.harmonic import fill_steady, within_range
from flowinpaint.result import ProgressCallback, Solution


def laplace_beltrami(
    image: Tensor,
    flow: Tensor,
    mask: Tensor,
    *,
    lam: float = 1e-6,
    distance: int = 3,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    weight: Tensor | None = None,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Solve Σ_q (u_q - u_p) / d_pq = 0 over the four neighbours q of each unknown pixel p.

    image (1, 3, H, W) in [0, 1]; flow (1, C, H, W); mask (1, 1, H, W).
    weight (1, 1, H, W): weight of each given vector, in units of 1/d; by default infinite (exact).
    lam, distance: λ and the kind of `image_distance`, with the mean squared difference of the three colours. The
    authors' program has the sum instead, so their λ is three times ours for the distances 1 and 3.
    """
    edges = distance_weights(image, lam, distance)
    solution = fill_steady(flow, mask, edges, weight, progress, tolerance=tolerance, max_iterations=max_iterations)
    return within_range(solution, flow, mask)


def distance_weights(image: Tensor, lam: float, distance: int) -> Tensor:
    """The weights 1/d of the edges to the right and below, (B, 4, H, W); the diagonal ones are zero."""
    weights = image.new_zeros(image.shape[0], 4, *image.shape[2:])
    for k, axis in ((0, 3), (1, 2)):
        colour_squared = torch.diff(image, dim=axis).square_().mean(1)
        inverse = 1 / image_distance(colour_squared, 1.0, lam, distance)
        weights[:, k] = F.pad(inverse, (0, 1) if axis == 3 else (0, 0, 0, 1))
    return weights


def image_distance(colour_squared: Tensor, length_squared: Tensor | float, lam: float, distance: int) -> Tensor:
    """Distance between pixels x and y with colours I (Raad et al.), elementwise; also the metric of AMLE.

    colour_squared: ‖I(x) - I(y)‖², the mean over the colour channels of the squared difference, on the caller's scale.
    length_squared: ‖x - y‖² in pixels. lam: λ, the weight of the length.

    distance 1: √((1-λ)‖I(x) - I(y)‖² + λ‖x - y‖²), the geodesic one
    distance 2: (1-λ)‖I(x) - I(y)‖ + λ‖x - y‖
    distance 3: (1-λ)‖I(x) - I(y)‖² + λ‖x - y‖²
    """
    if not 1e-12 <= lam <= 1:
        raise InputError(f"lam must be from 1e-12 to 1, got {lam}")
    if distance not in (1, 2, 3):
        raise InputError(f"distance must be 1, 2 or 3, got {distance}")
    if distance == 2:
        return (1 - lam) * colour_squared.sqrt() + lam * length_squared**0.5
    squared = (1 - lam) * colour_squared + lam * length_squared
    return squared.sqrt() if distance == 1 else squared
