"""The pyramid of `diffusion.pyramid` for inference on the CPU, compiled by numba.

A loop computes the rows of the result from `start` to `stop`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numba import float32, uintp
from torch import Tensor

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels.compiled import compiled, inner
from flowinpaint.diffusion.kernels.cpu_strips import in_strips


def push(data: DataTerm, count: int) -> list[DataTerm]:
    """The first `count` levels, fine to coarse; the finest f may have any value where unknown, even NaN."""
    if data.weight is not None:
        return pyramid.push(data, count)
    levels = [DataTerm(data.f.contiguous(), data.known.contiguous())]
    while len(levels) < count:
        f, known, _ = levels[-1]
        B, C, H, W = f.shape
        h, w = -(-H // 2), -(-W // 2)
        coarse = DataTerm(f.new_empty(B, C, h, w), known.new_empty(B, 1, h, w))
        in_strips(_push, h, f.numel(), f, known, coarse.f, coarse.known)
        levels.append(coarse)
    return levels


def refine(u: Tensor, data: DataTerm) -> Tensor:
    """The initial field of a level from the next coarser field, as in `pyramid.refine`."""
    if data.weight is not None:
        return pyramid.refine(u, data)
    out = torch.empty_like(data.f)
    in_strips(_refine, data.f.shape[-2], data.f.numel(), u.contiguous(), data.f, data.known, out)
    return out


pull = partial(pyramid.pull, push=push, refine=refine)


@compiled("akakii")
def _push(f, known, coarse_f, coarse_known, start, stop):
    B, C, H, W = f.shape
    w = coarse_f.shape[3]
    for b in range(B):
        for i in range(start, stop):
            y, below = 2 * i, min(2 * i + 1, H - 1)
            for j in range(w):
                x, right = 2 * j, min(2 * j + 1, W - 1)
                # An incomplete block at the border must not count its only row or column twice.
                here = known[b, 0, y, x]
                east = known[b, 0, y, right] and right > x
                south = known[b, 0, below, x] and below > y
                diagonal = known[b, 0, below, right] and right > x and below > y
                count = int(here) + int(east) + int(south) + int(diagonal)
                coarse_known[b, 0, i, j] = count > 0
                share = float32(1) / float32(max(count, 1))
                for c in range(C):
                    total = float32(0)
                    if here:
                        total += f[b, c, y, x]
                    if east:
                        total += f[b, c, y, right]
                    if south:
                        total += f[b, c, below, x]
                    if diagonal:
                        total += f[b, c, below, right]
                    coarse_f[b, c, i, j] = total * share


@inner
def _blend(row, near, far):
    """Interpolate between the coarse rows `near` and `far`; `row` has one extra column on either side."""
    one, n = uintp(1), near.shape[0]
    for j in range(uintp(n)):
        row[j + one] = float32(0.75) * near[j] + float32(0.25) * far[j]
    row[0], row[n + 1] = row[1], row[n]


@compiled("aakaii")
def _refine(u, f, known, out, start, stop):
    B, C, _, W = f.shape
    h, w = u.shape[2:]
    row, fine = np.empty(w + 2, np.float32), np.empty(2 * w, np.float32)
    one, two = uintp(1), uintp(2)
    for b in range(B):
        for c in range(C):
            for y in range(start, stop):
                i = y // 2
                far = min(i + 1, h - 1) if y % 2 else max(i - 1, 0)
                _blend(row, u[b, c, i], u[b, c, far])
                for j in range(uintp(w)):
                    fine[two * j] = float32(0.25) * row[j] + float32(0.75) * row[j + one]
                    fine[two * j + one] = float32(0.75) * row[j + one] + float32(0.25) * row[j + two]
                given, there, result = f[b, c, y], known[b, 0, y], out[b, c, y]
                for x in range(uintp(W)):
                    value = given[x]
                    result[x] = value if there[x] else fine[x]
