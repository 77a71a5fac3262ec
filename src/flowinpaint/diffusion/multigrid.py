"""One multigrid V-cycle: an approximate, symmetric inverse of the inpainting equations.

Image edges tie pixels together along lines, often a thousand times as strongly as across them, and point-by-point
relaxation cannot smooth the error along such a line. So whole rows and whole columns are relaxed, every second one at
a time, and the way up mirrors the way down, which keeps the cycle symmetric as conjugate gradients need it.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.diffusion.grid import Level, build_levels
from flowinpaint.diffusion.kernels import MULTIGRID, kernels_for

_DOWN = ((0, 0), (0, 1), (1, 0), (1, 1))
_UP = _DOWN[::-1]
"""(axis, parity) of the half sweeps before a coarser grid is asked: even rows, odd rows, even columns, odd columns; and
after it."""


class Grid(NamedTuple):
    """A level with its work space: solution, right-hand side, residual and zero, each (B, C, H+2, W+2)."""

    level: Level
    u: Tensor
    f: Tensor
    r: Tensor
    zero: Tensor


class Multigrid:
    """A hierarchy of grids, finest first; `build_multigrid` makes one."""

    def __init__(self, grids: list[Grid], kernels: ModuleType) -> None:
        self.grids, self.kernels = grids, kernels

    def apply(self, u: Tensor, out: Tensor) -> None:
        """Write -A u to `out`, both padded (B, C, H+2, W+2)."""
        self.kernels.residual(self.grids[0].level, u, self.grids[0].zero, out)

    def cycle(self, r: Tensor) -> Tensor:
        """About A⁻¹ r, for a padded r (B, C, H+2, W+2); the result is overwritten by the next call."""
        return self._cycle(0, r)

    def part(self, b: int, c: int) -> Multigrid:
        """The hierarchy of one channel of one image: views that share their memory with this."""
        return Multigrid([_view(grid, b, c) for grid in self.grids], self.kernels)

    def _cycle(self, number: int, f: Tensor) -> Tensor:
        level, u, _, r, _ = self.grids[number]
        self._begin(level, u, f)
        if level.p is None:
            self._relax(level, u, f, (*_UP, *_DOWN, *_UP))
            return u
        below = self.grids[number + 1].f
        self.kernels.residual(level, u, f, r)
        self.kernels.restrict(level, r, below)
        self.kernels.prolong_add(level, self._cycle(number + 1, below), u)
        self._relax(level, u, f, _UP)
        return u

    def _relax(self, level: Level, u: Tensor, f: Tensor, sweeps: tuple[tuple[int, int], ...]) -> None:
        for axis, parity in sweeps:
            self.kernels.half_sweep(level, u, f, axis, parity)

    def _begin(self, level: Level, u: Tensor, f: Tensor) -> None:
        """The sweeps on the way down, from u = 0: even rows need no neighbours, and odd ones only those."""
        self.kernels.half_sweep(level, u, f, *_DOWN[0], fresh=True)
        self._relax(level, u, f, _DOWN[1:])


def build_multigrid(
    weights: Tensor,
    known: Tensor,
    channels: int,
    dtype: torch.dtype = torch.float32,
    data_weight: Tensor | None = None,
    kernels: ModuleType | None = None,
) -> Multigrid:
    """The hierarchy for weights (B, 4, H, W) and exact pixels known (B, 1, H, W), with work space for C channels.

    data_weight (B, 1, H, W): finite weights of given vectors, which add to the diagonal.
    """
    kernels = kernels or kernels_for(MULTIGRID, weights.device)
    levels = build_levels(weights, known, kernels, dtype, data_weight)
    # One allocation for all: on the GPU each would be a launch. Rounded up, so that every field begins aligned.
    sizes = [-(-channels * level.d.numel() // 64) * 64 for level in levels]
    space, grids, taken = weights.new_zeros(4 * sum(sizes), dtype=dtype), [], 0
    for level, size in zip(levels, sizes, strict=True):
        shape = (level.d.shape[0], channels, *level.d.shape[2:])
        fields = space[taken : taken + 4 * size].view(4, size)[:, : channels * level.d.numel()]
        grids.append(Grid(level, *(field.view(shape) for field in fields)))
        taken += 4 * size
    return Multigrid(grids, kernels)


def _view(grid: Grid, b: int, c: int) -> Grid:
    d, w, pivots, p = grid.level.d, grid.level.w, grid.level.pivots, grid.level.p
    level = Level(d[b : b + 1], w[b : b + 1], pivots[b : b + 1], None if p is None else p[b : b + 1])
    u, f, r, zero = (x[b : b + 1, c : c + 1] for x in grid[1:])
    return Grid(level, u, f, r, zero)
