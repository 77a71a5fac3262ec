"""Grids of the multigrid hierarchy: the operator on each, and how a grid takes from the next coarser one.

The operator is (A u)_p = d_p u_p - Σ_q w_pq u_q with the four edges of `stencil.EDGES`, each stored at its upper (left)
end. A pixel whose value is given has no edges and d = 1. All arrays carry a border of one zero pixel, (B, ·, H+2, W+2),
so that no kernel needs to look where the image ends.

Coarse pixel (Y, X) lies on fine pixel (2Y, 2X). Interpolation follows the operator, as in the black-box multigrid of
Dendy (1982): a pixel between two coarse ones takes from each as strongly as it is tied to that side, and nothing across
an edge that lets nothing through. The coarse operator is the Galerkin product Pᵀ A P, again with nine points.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.diffusion.stencil import EDGES, edge_ends

COARSEST_SIDE = 2
"""Grids no longer and no higher than this are not coarsened; relaxation alone solves them."""


@dataclass
class Level:
    """One grid.

    d: (B, 1, ·, ·) and w: (B, 4, ·, ·), the operator. pivots: (B, 2, ·, ·), the inverse pivots of the rows and of the
    columns as tridiagonal systems. p: (B, 4, ·, ·), the weights with which a pixel takes from the coarse pixels above
    left, above right, below left and below right of it; None on the coarsest grid.
    """

    d: Tensor
    w: Tensor
    pivots: Tensor
    p: Tensor | None

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns without the border."""
        return self.d.shape[-2] - 2, self.d.shape[-1] - 2


def build_levels(
    weights: Tensor, known: Tensor, kernels: ModuleType, dtype: torch.dtype, data_weight: Tensor | None = None
) -> list[Level]:
    """The grids from the image's own, weights (B, 4, H, W) and known (B, 1, H, W) bool, down to a handful of pixels.

    known: pixels whose value is exact; data_weight (B, 1, H, W): finite weights of the others. Products are formed in
    float64 whatever the type: a region tied weakly to the known pixels has row sums far below float32's rounding of its
    diagonal.
    """
    d, w = _equations(weights.double(), known, data_weight)
    levels = []
    while max(d.shape[-2:]) - 2 > COARSEST_SIDE:
        p = kernels.interpolation(d, w)
        levels.append(_level(d, w, p, kernels, dtype))
        d, w = kernels.galerkin(d, w, p)
    levels.append(_level(d, w, None, kernels, dtype))
    return levels


def pad(x: Tensor) -> Tensor:
    """Add the border of zeros; contiguous, as kernels expect it, whatever the memory format of x."""
    return F.pad(x.contiguous(), (1, 1, 1, 1)).contiguous()


def inner(x: Tensor) -> Tensor:
    """The pixels inside the border."""
    return x[..., 1:-1, 1:-1]


def neighbour(x: Tensor, dy: int, dx: int) -> Tensor:
    """The value at (y + dy, x + dx) for every pixel (y, x) inside the border."""
    H, W = x.shape[-2:]
    return x[..., 1 + dy : H - 1 + dy, 1 + dx : W - 1 + dx]


def _equations(weights: Tensor, known: Tensor, data_weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Diagonal and edges of the equations for the pixels that are not exact."""
    unknown, (H, W) = pad((~known).to(weights.dtype)), weights.shape[-2:]
    d, w = torch.zeros_like(unknown), pad(torch.zeros_like(weights))
    for k, (dy, dx) in enumerate(EDGES):
        edge, (inside, _) = w[:, k : k + 1], edge_ends(k, H, W)
        inner(edge)[inside] = weights[:, k : k + 1][inside]  # not the edges that leave the image
        inner(d).add_(inner(edge)).add_(neighbour(edge, -dy, -dx))
        inner(edge).mul_(inner(unknown)).mul_(neighbour(unknown, dy, dx))
    if data_weight is not None:
        inner(d).add_(data_weight)
    # A pixel without edges, exact or cut off, keeps whatever value it has.
    lone = (unknown == 0) | (d <= 0)
    return torch.where(lone, inner_ones(d), d), w


def inner_ones(d: Tensor) -> Tensor:
    """One inside the border, zero on it."""
    return pad(torch.ones_like(inner(d)))


def _level(d: Tensor, w: Tensor, p: Tensor | None, kernels: ModuleType, dtype: torch.dtype) -> Level:
    d, w = d.to(dtype), w.to(dtype)
    return Level(d, w, kernels.invert_pivots(d, w), None if p is None else p.to(dtype))
