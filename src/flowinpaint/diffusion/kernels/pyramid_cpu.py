"""The pyramid of `diffusion.pyramid` for inference on the CPU, compiled by numba."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.coarse_to_fine import coarse_to_fine
from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import pyramid_numba
from flowinpaint.diffusion.kernels.cpu_strips import in_strips


def push(data: DataTerm, count: int) -> list[DataTerm]:
    """The first `count` levels, fine to coarse; the f of the finest may hold anything where unknown, NaN too."""
    if data.weight is not None:
        return pyramid.push(data, count)
    levels = [DataTerm(data.f.contiguous(), data.known.contiguous())]
    while len(levels) < count:
        f, known, _ = levels[-1]
        B, C, H, W = f.shape
        h, w = -(-H // 2), -(-W // 2)
        coarse = DataTerm(f.new_empty(B, C, h, w), known.new_empty(B, 1, h, w))
        in_strips(pyramid_numba.push, h, f.numel(), f, known, coarse.f, coarse.known)
        levels.append(coarse)
    return levels


def pull(data: DataTerm) -> Tensor:
    """A dense field, (B, C, H, W), from coarser levels down to one pixel, as in `pyramid.pull`."""
    levels = push(data, pyramid.levels_to_one_pixel(data.f))[::-1]
    start = torch.where(levels[0].known, levels[0].f, 0)
    return coarse_to_fine(levels, start, refine, lambda _, __, u: u)


def refine(u: Tensor, data: DataTerm) -> Tensor:
    """The initial field of a level from the next coarser field, as in `pyramid.refine`."""
    if data.weight is not None:
        return pyramid.refine(u, data)
    out = torch.empty_like(data.f)
    in_strips(pyramid_numba.refine, data.f.shape[-2], data.f.numel(), u.contiguous(), data.f, data.known, out)
    return out
