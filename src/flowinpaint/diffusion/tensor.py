"""Diffusion tensors: from image gradients, or from eigenvalues and an eigenvector.

x runs along columns, y along rows. A tensor lives in a *cell*, the square between the pixels (i, j), (i, j+1),
(i+1, j) and (i+1, j+1), so a field for H×W pixels has (H-1)×(W-1) cells. Equation numbers are those of Fischer et
al., "Neuroexplicit Diffusion Models for Inpainting of Optical Flow Fields" (ICML 2024).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class SymmetricTensor(NamedTuple):
    """The symmetric 2×2 matrix (a b; b c) in each cell; a, b, c: (B, 1, H-1, W-1)."""

    a: Tensor
    b: Tensor
    c: Tensor


class Orientation(NamedTuple):
    """The axis of an eigenvector v₁ by its double angle, which is the same for v₁ and -v₁: cos 2θ and sin 2θ."""

    cos2: Tensor
    sin2: Tensor


def perona_malik(x: Tensor, lam: Tensor | float, floor: float = 0.0) -> Tensor:
    """Diffusivity g(x) = 1 / (1 + x²/λ²), in (0, 1] (Section 3.3).

    A floor added to λ² keeps the quotient finite when a learned λ passes through zero.
    """
    return 1 / (1 + x**2 / (lam * lam + floor))


def gaussian_blur(image: Tensor, rho: float) -> Tensor:
    """Convolve (B, C, H, W) with a Gaussian of standard deviation rho in pixels, with mirrored borders."""
    if rho <= 0:
        return image
    radius = math.ceil(3 * rho)
    taps = torch.arange(-radius, radius + 1, dtype=image.dtype, device=image.device)
    kernel = torch.exp(-(taps**2) / (2 * rho**2))
    kernel = kernel / kernel.sum()
    for axis, shape in ((2, (1, 1, -1, 1)), (3, (1, 1, 1, -1))):
        size, channels = image.shape[axis], image.shape[1]
        # An index beyond the border is reflected, several times if the image is tiny.
        index = torch.arange(-radius, size + radius, device=image.device) % (2 * size)
        index = torch.where(index < size, index, 2 * size - 1 - index)
        weight = kernel.view(shape).expand(channels, *shape[1:])
        image = F.conv2d(image.index_select(axis, index), weight, groups=channels)
    return image


def structure_tensor(image: Tensor, rho: float) -> SymmetricTensor:
    """S = Σ_i ∇I_i,ρ ∇I_i,ρᵀ over the channels (Equation 5), for an image (B, C, H, W) in [0, 1].

    The gradient in a cell is the mean of its two differences in each direction, so S does not favour a corner.
    """
    smooth = gaussian_blur(image, rho)
    dx = smooth[..., :, 1:] - smooth[..., :, :-1]
    dy = smooth[..., 1:, :] - smooth[..., :-1, :]
    gx = (dx[..., 1:, :] + dx[..., :-1, :]) / 2
    gy = (dy[..., :, 1:] + dy[..., :, :-1]) / 2
    return SymmetricTensor(
        (gx * gx).sum(1, keepdim=True), (gx * gy).sum(1, keepdim=True), (gy * gy).sum(1, keepdim=True)
    )


def eigenvalues(tensor: SymmetricTensor) -> tuple[Tensor, Tensor]:
    """The larger and the smaller eigenvalue, each (B, 1, H-1, W-1)."""
    mean, radius = (tensor.a + tensor.c) / 2, _deviator_norm(tensor) / 2
    return mean + radius, mean - radius


def orientation_of(tensor: SymmetricTensor) -> Orientation:
    """Axis of the eigenvector of the larger eigenvalue; (0, 0), meaning no axis, where the tensor is isotropic."""
    norm = _deviator_norm(tensor)
    return Orientation((tensor.a - tensor.c) / norm, 2 * tensor.b / norm)


def _deviator_norm(tensor: SymmetricTensor) -> Tensor:
    """μ₁ - μ₂, bounded away from zero, where its square root has no derivative."""
    squared = (tensor.a - tensor.c) ** 2 + 4 * tensor.b**2
    return torch.sqrt(squared + torch.finfo(squared.dtype).tiny)


def orientation_from_vector(vx: Tensor, vy: Tensor, floor: float = 1e-12) -> Orientation:
    """Axis of v₁ = (vx, vy)ᵀ / ‖(vx, vy)‖; the vector need not be normalised.

    A floor added to ‖(vx, vy)‖² makes the axis, and thus the tensor's anisotropy, vanish as the vector does.
    """
    squared = vx * vx + vy * vy + floor
    return Orientation((vx * vx - vy * vy) / squared, 2 * vx * vy / squared)


def tensor_from_eigen(mu1: Tensor, mu2: Tensor, v1: Orientation) -> SymmetricTensor:
    """D = μ₁ v₁v₁ᵀ + μ₂ v₂v₂ᵀ with v₂ orthogonal to v₁ (Section 3.3)."""
    mean, radius = (mu1 + mu2) / 2, (mu1 - mu2) / 2
    return SymmetricTensor(mean + radius * v1.cos2, radius * v1.sin2, mean - radius * v1.cos2)


def edge_enhancing_tensor(image: Tensor, lam: float, rho: float) -> SymmetricTensor:
    """EED: D = g(μ₁) v₁v₁ᵀ + 1 · v₂v₂ᵀ from the structure tensor of the image (Equation 6)."""
    S = structure_tensor(image, rho)
    mu1, _ = eigenvalues(S)
    g = perona_malik(mu1, lam)
    return tensor_from_eigen(g, torch.ones_like(g), orientation_of(S))
