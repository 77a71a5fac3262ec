"""The multigrid kernels for the CPU, compiled by numba.

The channels of a field are solved in parallel, one thread each, and share only the operator. If there are fewer of them
than threads, the lines of each grid are divided among the threads instead (`cpu_strips`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels import multigrid_numba
from flowinpaint.diffusion.kernels import multigrid_reference as reference
from flowinpaint.diffusion.kernels.cpu_strips import in_strips, together
from flowinpaint.diffusion.multigrid import Level


def half_sweep(level: Level, u: Tensor, f: Tensor, axis: int, parity: int, fresh: bool = False) -> None:
    """Zebra line relaxation in place, as in `reference`."""
    H, W = level.size
    lines = ((W if axis else H) - parity + 1) // 2
    kernel = multigrid_numba.columns if axis else multigrid_numba.rows
    _share(kernel, lines, u.numel(), level.w, level.pivots, u, f, parity, fresh)


def residual(level: Level, u: Tensor, f: Tensor, out: Tensor) -> None:
    """Write f - A u to `out`."""
    _share(multigrid_numba.residual, level.size[0], u.numel(), level.d, level.w, u, f, out)


def restrict(level: Level, r: Tensor, out: Tensor) -> None:
    """Write Pᵀ r, on the coarser grid, to `out`."""
    _share(multigrid_numba.restrict, out.shape[-2] - 2, r.numel(), level.p, r, out)


def prolong_add(level: Level, e: Tensor, u: Tensor) -> None:
    """Add P e, from the coarser grid, to u."""
    _share(multigrid_numba.prolong_add, level.size[0], u.numel(), level.p, e, u)


def interpolation(d: Tensor, w: Tensor) -> Tensor:
    """The interpolation weights of `reference.interpolation`."""
    p = torch.zeros_like(w)
    H = d.shape[-2] - 2
    # Two passes: a pixel between four coarse ones reads the weights of the pixels between two.
    _share(multigrid_numba.between_two, H, d.numel(), d, w, p)
    _share(multigrid_numba.amid_four, H // 2, d.numel(), d, w, p)
    return p


galerkin = partial(reference.galerkin_by, prolong_add, residual, restrict)


def invert_pivots(d: Tensor, w: Tensor) -> Tensor:
    """The inverse pivots of every row and every column, (B, 2, H+2, W+2)."""
    out = torch.zeros_like(w[:, :2])
    _share(multigrid_numba.invert_pivots, d.shape[0], 0, d, w, out, reference.SMALLEST_PIVOT[d.dtype])
    return out


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The product of each channel of each image, (B, C, 1, 1)."""
    out = a.new_zeros(a.shape[0], a.shape[1], 1, 1)
    multigrid_numba.dot(a.numpy(), b.numpy(), out.numpy())
    return out


def scale_add(a: Tensor, factor: Tensor, b: Tensor) -> None:
    """Set a to factor · a + b, in place; factor is (B, C, 1, 1)."""
    multigrid_numba.scale_add(a.numpy(), factor.numpy(), b.numpy())


def add_scaled(a: Tensor, factor: Tensor, b: Tensor) -> None:
    """Set a to a + factor · b, in place; factor is (B, C, 1, 1)."""
    multigrid_numba.add_scaled(a.numpy(), factor.numpy(), b.numpy())


def for_each(work: Callable[[Any], object], parts: Sequence[Any]) -> None:
    """Call `work` on every part; in parallel, one thread per part, if there are enough parts for all threads."""
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < threads:
        reference.for_each(work, parts)
        return

    def alone(part: Any) -> None:
        _inside.a_part = True
        try:
            work(part)
        finally:
            _inside.a_part = False

    together(alone, parts)


_inside = threading.local()


def _share(kernel: Callable[..., None], count: int, work: int, *operands: Any) -> None:
    """Call kernel(*operands, start, stop) over range(count), in several threads if there is enough work."""
    in_strips(kernel, count, 0 if getattr(_inside, "a_part", False) else work, *operands)
