"""The discretisation of Weickert, Welk and Wickert (2013) as a weighted graph on the 8-neighbourhood.

In one cell with tensor D = (a b; b c), let gx, gy be the mean differences of u along x and y, and t its twist
u₀₀ - u₀₁ - u₁₀ + u₁₁. The scheme's energy in that cell is

    ∇uᵀ D ∇u + (a + c - 2δ) t² / 4      with δ = α (a + c) + β b,

so α and β act only through δ, and the energy is non-negative if and only if D is and δ ≤ (a + c)/2, which
|β| ≤ 1 - 2α guarantees. Written in differences between pixels it is a graph with four edges per pixel, stored at
the upper (left) end of the edge in the order of EDGES. No cell lies beyond the image, which is exactly the Neumann
condition. Weights may be negative: the scheme is stable in the L2 norm and has no maximum principle.
"""

from __future__ import annotations

from types import EllipsisType

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.diffusion.tensor import SymmetricTensor, eigenvalues
from flowinpaint.errors import InputError

EDGES = ((0, 1), (1, 0), (1, 1), (1, -1))
"""Offset (rows, columns) of the far end of each stored edge: east, south, south-east, south-west."""


def stable_beta(tensor: SymmetricTensor, alpha: Tensor | float) -> Tensor:
    """β = (1 - 2α) sign(b), the stable choice of Section 3.2."""
    return (1 - 2 * alpha) * torch.sign(tensor.b)


def cell_delta(tensor: SymmetricTensor, alpha: Tensor | float, beta: Tensor) -> Tensor:
    """δ = α (a + c) + β b in each cell, (B, 1, H-1, W-1)."""
    return alpha * (tensor.a + tensor.c) + beta * tensor.b


def edge_weights(tensor: SymmetricTensor, delta: Tensor) -> Tensor:
    """The graph of div(D∇u): (B, 4, H, W) from cells (B, 1, H-1, W-1); edges that leave the image weigh zero."""
    a, b, c = tensor
    horizontal, vertical = (a - delta) / 2, (c - delta) / 2
    east = F.pad(horizontal, (0, 1, 0, 1)) + F.pad(horizontal, (0, 1, 1, 0))
    south = F.pad(vertical, (0, 1, 0, 1)) + F.pad(vertical, (1, 0, 0, 1))
    south_east = F.pad((delta + b) / 2, (0, 1, 0, 1))
    south_west = F.pad((delta - b) / 2, (1, 0, 0, 1))
    return torch.cat([east, south, south_east, south_west], 1)


Region = tuple[EllipsisType, slice, slice]


def edge_ends(k: int, H: int, W: int) -> tuple[Region, Region]:
    """The start pixels and the end pixels of edges k: two regions of (…, H, W) of the same shape."""
    dy, dx = EDGES[k]
    near = (..., slice(0, H - dy), slice(max(0, -dx), W - max(0, dx)))
    far = (..., slice(dy, H), slice(max(0, dx), W - max(0, -dx)))
    return near, far


def isotropic_weights(u: Tensor) -> Tensor:
    """τA with 1/4 on every edge to the right and downwards, (1, 4, H, W): I + τA is the mean of the four neighbours."""
    H, W = u.shape[-2:]
    return torch.cat([u.new_full((1, 2, H, W), 0.25), u.new_zeros(1, 2, H, W)], 1)


def divergence(weights: Tensor, u: Tensor) -> Tensor:
    """(A u)_p = Σ_q w_pq (u_q - u_p), the discrete div(D∇u), for u (B, C, H, W) of any C."""
    H, W = u.shape[-2:]
    Au = torch.zeros_like(u)
    for k in range(len(EDGES)):
        near, far = edge_ends(k, H, W)
        flux = weights[:, k : k + 1][near] * (u[far] - u[near])
        Au[near].add_(flux)  # unlike +=, which also copies the slice onto itself
        Au[far].sub_(flux)
    return Au


def add_edge_products(out: Tensor, v: Tensor, u: Tensor, factor: float = 1) -> None:
    """Add factor · Σ_channels (v_p - v_q)(u_q - u_p) on every edge pq to out (B, 4, H, W): the gradient of vᵀ A u."""
    H, W = u.shape[-2:]
    for k in range(len(EDGES)):
        near, far = edge_ends(k, H, W)
        product = (v[near] - v[far]).mul_(u[far] - u[near]).sum(1)
        out[:, k][near].add_(product, alpha=factor)


def check_shapes(like: Tensor, **fields: tuple[Tensor | None, int]) -> None:
    """Raise InputError unless each field has its number of channels, and the batch and size of `like` (B, ·, H, W)."""
    B, _, H, W = like.shape
    for name, (x, channels) in fields.items():
        if x is not None and x.shape != (B, channels, H, W):
            raise InputError(f"{name} must have shape {(B, channels, H, W)}, got {tuple(x.shape)}")


def pure_divergence(weights: Tensor, u: Tensor) -> Tensor:
    """`divergence` without in-place writes, for tracing and export; about three times slower."""
    H, W = u.shape[-2:]
    Au = torch.zeros_like(u)
    for k, (dy, dx) in enumerate(EDGES):
        near, far = edge_ends(k, H, W)
        left, right = max(0, -dx), max(0, dx)
        flux = weights[:, k : k + 1][near] * (u[far] - u[near])
        Au = Au + F.pad(flux, (left, right, 0, dy)) - F.pad(flux, (right, left, dy, 0))
    return Au


def time_step_bound(tensor: SymmetricTensor, delta: Tensor) -> Tensor:
    """The largest τ ≤ 2/ρ(A) that the cells guarantee, one per image: (B, 1, 1, 1).

    A cell's 4×4 energy matrix has the eigenvalues μ₁, μ₂ and a + c - 2δ, and a pixel belongs to at most four cells,
    so ρ(A) ≤ 4 max(μ₁, a + c - 2δ).
    """
    mu1, _ = eigenvalues(tensor)
    largest = torch.maximum(mu1, tensor.a + tensor.c - 2 * delta).amax((1, 2, 3), keepdim=True)
    return 1 / (2 * largest.clamp(min=torch.finfo(largest.dtype).tiny))


def paper_time_step(alpha: Tensor) -> Tensor:
    """τ = 1 / (4 (1 - min α)) for eigenvalues in [0, 1], the bound of Weickert et al., per image: (B, 1, 1, 1)."""
    return 1 / (4 * (1 - alpha.amin((1, 2, 3), keepdim=True)))
