"""An FSI cycle for inference on the CPU, compiled by numba.

A step reads and writes more than a cache holds, so several steps go down the rows together as a wave. For that each
thread has a strip of rows, which shrinks by a row from step to step where it meets another strip; when all are done,
the wedges missing between the strips are filled, growing by a row from step to step. Nothing is computed twice, and two
buffers suffice.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import fsi_numba, fsi_reference
from flowinpaint.diffusion.kernels.cpu_strips import bounds_of, threads_for, together

_CACHE = 1 << 20
"""Bytes of the rows that a wave of steps works on: a usual second-level cache."""
_LONGEST_WAVE = 8
"""Steps of a wave; more gain nothing, and the wedges get larger."""


def diffuse(u: Tensor, data: DataTerm, weights: Tensor | None, tau: Tensor | float, steps: int) -> Tensor:
    """One FSI cycle from u, as in `fsi_reference`; other types than float32 go there.

    weights (B, 4, H, W): edges that leave the image weigh zero; None for 1/4 between any two neighbours.
    """
    if u.dtype != torch.float32:
        return fsi_reference.diffuse(u, data, weights, tau, steps)
    B, C, H, W = u.shape
    known, f = data.exact.contiguous(), data.f.contiguous()
    w = u.new_zeros(B, 4, 1, 1) if weights is None else weights.contiguous()
    soft = data.weight is not None
    stiffness = (
        torch.where(known, 0, tau * data.weight).contiguous() if data.weight is not None else u.new_zeros(B, 1, 1, 1)
    )
    threads = threads_for(H // 2, u.numel())
    bytes_of_row = W * (2 * 4 * C + 4 * 4 + 1)
    longest = max(1, min(_LONGEST_WAVE, H // (2 * threads), _CACHE // bytes_of_row))
    now, before = (u.clone(memory_format=torch.contiguous_format) for _ in range(2))
    for first in range(0, steps, longest):
        count = min(longest, steps - first)
        arrays = [x.numpy() for x in (now, before, known, f, w, stiffness)]
        work = partial(_sweep, arrays, first, count, weights is None, soft)
        strips = bounds_of(H, threads)
        together(work, [(top, bottom, int(top > 0), -int(bottom < H)) for top, bottom in strips])
        if count > 1:
            together(work, [(seam, seam, -1, 1) for seam, _ in strips[1:]])
        if count % 2:
            now, before = before, now
    return now


def _sweep(
    arrays: list[Any], first: int, count: int, isotropic: bool, soft: bool, rows: tuple[int, int, int, int]
) -> None:
    fsi_numba.sweep(*arrays, first, count, *rows, isotropic, soft)
