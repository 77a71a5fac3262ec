"""One multigrid V-cycle: an approximate, symmetric inverse of the inpainting equations.

The operator of a grid is (A u)_p = d_p u_p - Σ_q w_pq u_q with the four edges of `stencil.EDGES`, each stored at its
upper (left) end. A pixel whose value is given has no edges and d = 1. All arrays have a border of one zero pixel,
(B, ·, H+2, W+2), so that kernels need no special case at the image border.

Coarse pixel (Y, X) lies on fine pixel (2Y, 2X). Interpolation follows the operator, as in the black-box multigrid of
Dendy (1982): a pixel between two coarse ones interpolates them in proportion to its edge weights to either side, so an
edge of weight zero transfers nothing. The coarse operator is the Galerkin product Pᵀ A P, again with nine points.

Image edges couple pixels along lines, often a thousand times as strongly as across them, and pointwise relaxation
cannot smooth the error along such a line. So whole rows and whole columns are relaxed, every second one at a time. The
way up mirrors the way down, which keeps the cycle symmetric, as conjugate gradients require.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.diffusion.kernels import MULTIGRID, kernels_for
from flowinpaint.diffusion.stencil import EDGES, edge_ends

COARSEST_SIDE = 2
"""Grids of at most this width and height are not coarsened; relaxation alone solves them."""
_DOWN = ((0, 0), (0, 1), (1, 0), (1, 1))
_UP = _DOWN[::-1]
"""(axis, parity) of the half sweeps before the coarse-grid correction (_DOWN: even rows, odd rows, even columns, odd
columns) and after it (_UP)."""


class Level(NamedTuple):
    """One grid.

    d: (B, 1, ·, ·) and w: (B, 4, ·, ·), the operator. pivots: (B, 2, ·, ·), the inverse pivots of the rows and of the
    columns as tridiagonal systems. p: (B, 4, ·, ·), the interpolation weights of a pixel for the coarse pixels above
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


class Grid(NamedTuple):
    """A level with its work space: solution, right-hand side, residual and zero, each (B, C, H+2, W+2)."""

    level: Level
    u: Tensor
    f: Tensor
    r: Tensor
    zero: Tensor


class Multigrid:
    """A hierarchy of grids, finest first, built by `build_multigrid`."""

    def __init__(self, grids: list[Grid], kernels: ModuleType) -> None:
        self.grids, self.kernels = grids, kernels

    def apply(self, u: Tensor, out: Tensor) -> None:
        """Write -A u to `out`, both padded (B, C, H+2, W+2)."""
        self.kernels.residual(self.grids[0].level, u, self.grids[0].zero, out)

    def cycle(self, f: Tensor, number: int = 0) -> Tensor:
        """Approximate A⁻¹ f on grid `number` for a padded f (B, C, H+2, W+2); the next call overwrites the result."""
        level, u, _, r, _ = self.grids[number]
        self._relax(level, u, f, _DOWN, fresh=True)
        if level.p is None:
            self._relax(level, u, f, (*_UP, *_DOWN, *_UP))
            return u
        below = self.grids[number + 1].f
        self.kernels.residual(level, u, f, r)
        self.kernels.restrict(level, r, below)
        self.kernels.prolong_add(level, self.cycle(below, number + 1), u)
        self._relax(level, u, f, _UP)
        return u

    def part(self, b: int, c: int) -> Multigrid:
        """The hierarchy of one channel of one image: views that share its memory."""
        parts = []
        for level, *space in self.grids:
            own = Level(*(None if x is None else x[b : b + 1] for x in level))  # type: ignore[arg-type]
            parts.append(Grid(own, *(x[b : b + 1, c : c + 1] for x in space)))
        return Multigrid(parts, self.kernels)

    def _relax(
        self, level: Level, u: Tensor, f: Tensor, sweeps: tuple[tuple[int, int], ...], fresh: bool = False
    ) -> None:
        """Run half sweeps; fresh: start from u = 0, where the first lines need no neighbours."""
        for axis, parity in sweeps:
            self.kernels.half_sweep(level, u, f, axis, parity, fresh)
            fresh = False


def build_multigrid(
    weights: Tensor,
    known: Tensor,
    channels: int,
    dtype: torch.dtype = torch.float32,
    data_weight: Tensor | None = None,
) -> Multigrid:
    """The hierarchy for weights (B, 4, H, W) and exact pixels known (B, 1, H, W), with work space for C channels.

    data_weight (B, 1, H, W): finite weights of given vectors, which add to the diagonal.
    """
    kernels = kernels_for(MULTIGRID, weights.device)
    levels = build_levels(weights, known, kernels, dtype, data_weight)
    # One allocation for all: on the GPU each would be a launch. Sizes are rounded up, so that every field is aligned.
    sizes = [-(-channels * level.d.numel() // 64) * 64 for level in levels for _ in range(4)]
    memory, grids = iter(torch.split(weights.new_zeros(sum(sizes), dtype=dtype), sizes)), []
    for level in levels:
        shape = torch.Size((level.d.shape[0], channels, *level.d.shape[2:]))
        grids.append(Grid(level, *(next(memory)[: shape.numel()].view(shape) for _ in range(4))))
    return Multigrid(grids, kernels)


def build_levels(
    weights: Tensor, known: Tensor, kernels: ModuleType, dtype: torch.dtype, data_weight: Tensor | None = None
) -> list[Level]:
    """All grids, from the image's, with weights (B, 4, H, W) and known (B, 1, H, W) bool, down to a few pixels.

    known: pixels whose value is exact; data_weight (B, 1, H, W): finite weights of the others. Products are computed in
    float64 for every `dtype`: a region weakly coupled to the known pixels has row sums far below the float32 rounding
    error of its diagonal.
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
    """Add the border of zeros; the result is contiguous, as kernels expect, for any memory format of x."""
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
        inner(edge)[inside] = weights[:, k : k + 1][inside]  # without the edges that leave the image
        inner(d).add_(inner(edge)).add_(neighbour(edge, -dy, -dx))
        inner(edge).mul_(inner(unknown)).mul_(neighbour(unknown, dy, dx))
    if data_weight is not None:
        inner(d).add_(data_weight)
    # A pixel without edges, because exact or cut off, keeps its value.
    lone = (unknown == 0) | (d <= 0)
    return torch.where(lone, pad(torch.ones_like(inner(d))), d), w


def _level(d: Tensor, w: Tensor, p: Tensor | None, kernels: ModuleType, dtype: torch.dtype) -> Level:
    d, w = d.to(dtype), w.to(dtype)
    return Level(d, w, kernels.invert_pivots(d, w), None if p is None else p.to(dtype))
