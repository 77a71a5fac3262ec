"""An FSI cycle for inference on the CPU: compiled by numba where that is installed, plain PyTorch elsewhere.

A step reads and writes more than a cache holds, so several steps go down the rows together as a wave. For that each
thread has a strip of rows, which shrinks by a row from step to step where it meets another strip; when all are done,
the wedges that are missing between the strips are filled, growing by a row from step to step. Nothing is computed
twice, and two buffers suffice.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from flowinpaint.diffusion.kernels import fsi_reference
from flowinpaint.diffusion.kernels.cpu_strips import bounds_of, loops_of, threads_for, together

loops = loops_of("flowinpaint.diffusion.kernels.fsi_numba")

_CACHE = 1 << 20
"""Bytes of the rows that a wave of steps works on: a usual second-level cache."""
_LONGEST_WAVE = 8
"""Steps taken together; more gain nothing, and the wedges get larger."""


def diffuse(u: Tensor, known: Tensor, weights: Tensor | None, steps: int, held: Tensor | None = None) -> Tensor:
    """One FSI cycle from u (B, C, H, W) float32, whose memory is used; known (B, 1, H, W) bool.

    weights (B, 4, H, W): the time step is in them, and edges that leave the image weigh zero; None for 1/4 between any
    two neighbours. held: the given vectors (B, C, H, W), if u does not hold them.
    """
    B, C, H, W = u.shape
    u, known, held = u.contiguous(), known.contiguous(), (u if held is None else held).contiguous()
    if loops is None:
        return fsi_reference.advance(u, u, held, known, weights, range(steps))[1]
    w = u.new_zeros(B, 4, 1, 1) if weights is None else weights.contiguous()
    threads = threads_for(H // 2, u.numel())
    bytes_of_row = W * (2 * 4 * C + 4 * 4 + 1)
    longest = max(1, min(_LONGEST_WAVE, H // (2 * threads), _CACHE // bytes_of_row))
    now, before = u, u.clone()
    for first in range(0, steps, longest):
        count = min(longest, steps - first)
        arrays = [x.numpy() for x in (now, before, known, held, w)]
        work = partial(_sweep, loops.sweep, arrays, first, count, weights is None)
        strips = bounds_of(H, threads)
        together(work, [(top, bottom, int(top > 0), -int(bottom < H)) for top, bottom in strips])
        if count > 1:
            together(work, [(seam, seam, -1, 1) for seam, _ in strips[1:]])
        if count % 2:
            now, before = before, now
    return now


def _sweep(
    loop: Any, arrays: list[Any], first: int, count: int, isotropic: bool, rows: tuple[int, int, int, int]
) -> None:
    loop(*arrays, first, count, *rows, isotropic)
