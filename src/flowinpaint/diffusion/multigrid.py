"""One multigrid V-cycle: an approximate, symmetric inverse of the inpainting equations.

Image edges tie pixels together along lines, often a thousand times as strongly as across them, and point-by-point
relaxation cannot smooth the error along such a line. So whole rows and whole columns are relaxed, every second one at
a time, and the way up mirrors the way down, which keeps the cycle symmetric as conjugate gradients need it.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from flowinpaint.diffusion.grid import Level, build_levels
from flowinpaint.diffusion.kernels import kernels_for

_DOWN = ((0, 0), (0, 1), (1, 0), (1, 1))
_UP = _DOWN[::-1]
"""(axis, parity) of the half sweeps before a coarser grid is asked: even rows, odd rows, even columns, odd columns; and
after it."""
_COARSEST_ROUNDS = 2


class Multigrid:
    """The hierarchy for weights (B, 4, H, W) and known pixels (B, 1, H, W), with work space for C channels."""

    def __init__(
        self,
        weights: Tensor,
        known: Tensor,
        channels: int,
        dtype: torch.dtype = torch.float32,
        kernels: ModuleType | None = None,
    ) -> None:
        self.kernels = kernels or kernels_for(weights.device)
        self.levels = build_levels(weights, known, self.kernels, dtype)
        self._fields = [_Fields(level, channels) for level in self.levels]

    def apply(self, u: Tensor, out: Tensor) -> None:
        """Write -A u to `out`, both padded (B, C, H+2, W+2)."""
        self.kernels.residual(self.levels[0], u, self._fields[0].zero, out)

    def cycle(self, r: Tensor) -> Tensor:
        """About A⁻¹ r, for a padded r (B, C, H+2, W+2); the result is overwritten by the next call."""
        return self._cycle(0, r)

    def _cycle(self, number: int, f: Tensor) -> Tensor:
        level, fields = self.levels[number], self._fields[number]
        u = fields.u.zero_()
        if level.p is None:
            self._relax(level, u, f, (*_DOWN, *_UP) * _COARSEST_ROUNDS)
            return u
        self._relax(level, u, f, _DOWN)
        below = self._fields[number + 1].f
        self.kernels.residual(level, u, f, fields.r)
        self.kernels.restrict(level, fields.r, below)
        self.kernels.prolong_add(level, self._cycle(number + 1, below), u)
        self._relax(level, u, f, _UP)
        return u

    def _relax(self, level: Level, u: Tensor, f: Tensor, sweeps: tuple[tuple[int, int], ...]) -> None:
        for axis, parity in sweeps:
            self.kernels.half_sweep(level, u, f, axis, parity)


class _Fields:
    """Work space of a level: solution, right-hand side, residual and zero, each (B, C, H+2, W+2)."""

    def __init__(self, level: Level, channels: int) -> None:
        shape = (level.d.shape[0], channels, *level.d.shape[2:])
        self.u, self.f, self.r, self.zero = (level.d.new_zeros(shape) for _ in range(4))
