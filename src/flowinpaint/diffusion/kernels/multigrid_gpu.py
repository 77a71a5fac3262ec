"""The multigrid kernels for CUDA, in Triton: one launch each, with one program per line or per block of pixels.

A line's recurrences y_t = b_t + a_t y_{t-1} are solved by an associative scan over (a, b), so the pixels of a line work
in parallel as well as the lines.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels import multigrid_reference as reference
from flowinpaint.diffusion.kernels import multigrid_triton
from flowinpaint.diffusion.kernels.multigrid_reference import SMALLEST_PIVOT
from flowinpaint.diffusion.multigrid import Level
from flowinpaint.integers import ceil_div, power_of_two

_BLOCK = 256
_LONGEST_SCAN = 4096
"""Pixels that a program scans at once, over all its lines."""


def half_sweep(level: Level, u: Tensor, f: Tensor, axis: int, parity: int, fresh: bool = False) -> None:
    """Zebra line relaxation in place, as in `reference`."""
    H, W = level.size
    count, length = ((W if axis else H) - parity + 1) // 2, H if axis else W
    if count == 0:
        return
    # Neighbouring columns are adjacent in memory, so a program processes several at once if they are long.
    lines = 1 if axis == 0 or length <= 128 else 4 if length <= 256 else 8
    block = min(power_of_two(length), _LONGEST_SCAN // lines)
    B, C, rows, row = u.shape
    multigrid_triton.sweep[ceil_div(count, lines), B * C](
        u,
        f,
        level.w,
        level.pivots,
        parity,
        count,
        length,
        C,
        rows * row,
        row,
        axis,
        fresh,
        block,
        lines,
        num_warps=4 if block * lines <= 1024 else 8,
    )


def residual(level: Level, u: Tensor, f: Tensor, out: Tensor) -> None:
    """Write f - A u to `out`."""
    B, C = u.shape[:2]
    H, W = level.size
    multigrid_triton.residual[ceil_div(H * W, _BLOCK), B * C](u, f, out, level.d, level.w, H, W, C, True, _BLOCK)


def restrict(level: Level, r: Tensor, out: Tensor) -> None:
    """Write Pᵀ r, on the coarser grid, to `out`."""
    B, C, rows, row = out.shape
    h, w = rows - 2, row - 2
    multigrid_triton.restrict[ceil_div(h * w, _BLOCK), B * C](r, out, level.p, *level.size, h, w, C, _BLOCK)


def prolong_add(level: Level, e: Tensor, u: Tensor) -> None:
    """Add P e, from the coarser grid, to u."""
    B, C, _, row = e.shape
    H, W = level.size
    multigrid_triton.prolong_add[ceil_div(H * W, _BLOCK), B * C](e, u, level.p, H, W, row, C, _BLOCK)


for_each = reference.for_each
dot, scale_add, add_scaled = reference.dot, reference.scale_add, reference.add_scaled


def interpolation(d: Tensor, w: Tensor) -> Tensor:
    """The interpolation weights of `reference.interpolation`."""
    p = torch.zeros_like(w)
    H, W = d.shape[-2] - 2, d.shape[-1] - 2
    grid = (ceil_div(H * W, _BLOCK), d.shape[0])
    multigrid_triton.between_two[grid](d, w, p, H, W, _BLOCK)
    multigrid_triton.amid_four[grid](d, w, p, H, W, _BLOCK)
    return p


def galerkin(d: Tensor, w: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Diagonal and edges of Pᵀ A P, as in `reference`, but from all nine fields at once."""
    B, _, rows, row = d.shape
    H, W = rows - 2, row - 2
    h, v = (H + 1) // 2, (W + 1) // 2
    fine = Level(d, w, d, p)
    image, applied = d.new_zeros(B, 9, rows, row), d.new_zeros(B, 9, rows, row)
    product, coarse_d = d.new_zeros(B, 9, h + 2, v + 2), d.new_zeros(B, 1, h + 2, v + 2)
    coarse_w = d.new_zeros(B, 4, h + 2, v + 2)
    multigrid_triton.interpolated_fields[ceil_div(H * W, _BLOCK), B](p, image, H, W, _BLOCK)
    multigrid_triton.residual[ceil_div(H * W, _BLOCK), B * 9](image, image, applied, d, w, H, W, 9, False, _BLOCK)
    restrict(fine, applied, product)
    multigrid_triton.galerkin_entries[ceil_div(h * v, _BLOCK), B](product, coarse_d, coarse_w, h, v, _BLOCK)
    return coarse_d, coarse_w


def invert_pivots(d: Tensor, w: Tensor) -> Tensor:
    """The inverse pivots of every row and every column, (B, 2, H+2, W+2)."""
    out = torch.zeros_like(w[:, :2])
    B, _, rows, row = d.shape
    lines = 32
    for axis in (0, 1):
        count, length = (row - 2, rows - 2) if axis else (rows - 2, row - 2)
        multigrid_triton.invert_pivots[ceil_div(count, lines), B](
            d, w, out, count, length, rows * row, row, axis, SMALLEST_PIVOT[d.dtype], lines, num_warps=1
        )
    return out
