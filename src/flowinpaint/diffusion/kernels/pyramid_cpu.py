"""The coarse-to-fine pyramid of `pyramid` for inference on the CPU: compiled by numba where that is installed."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.kernels.cpu_strips import in_strips, loops_of

loops = loops_of("flowinpaint.diffusion.kernels.pyramid_numba")


def push(f: Tensor, known: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """The first `count` levels of f (B, C, H, W) float32 and known (B, 1, H, W) bool, from fine to coarse.

    The first is what was given, and its f may hold anything where unknown, NaN too; that of coarser levels is 0 there.
    """
    levels = [(f.contiguous(), known.contiguous())]
    while len(levels) < count:
        levels.append(_push_once(*levels[-1]))
    return levels


def pull(f: Tensor, known: Tensor) -> Tensor:
    """A field that is known everywhere: f where known, and elsewhere what coarser levels know, down to one pixel.

    Where nothing at all is known there is zero.
    """
    count = 1 + (max(f.shape[-2:]) - 1).bit_length()
    levels = push(f, known, count)
    u = torch.where(levels[-1][1], levels[-1][0], 0)
    for finer in reversed(levels[:-1]):
        u = refine(u, *finer)
    return u


def refine(u: Tensor, f: Tensor, known: Tensor) -> Tensor:
    """The next finer level's start, (B, C, H, W): f where known, and elsewhere u (B, C, ceil(H/2), ceil(W/2))."""
    if loops is None:
        return pyramid.refine(u, f, known)
    out = torch.empty_like(f)
    in_strips(loops.refine, f.shape[-2], f.numel(), u.contiguous(), f, known, out)
    return out


def _push_once(f: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    if loops is None:
        coarse, c = pyramid.downsample_known(torch.where(known, f, 0), known.to(f.dtype))
        return coarse, c > 0
    B, C, H, W = f.shape
    coarse_f, coarse_known = f.new_empty(B, C, -(-H // 2), -(-W // 2)), known.new_empty(B, 1, -(-H // 2), -(-W // 2))
    in_strips(loops.push, -(-H // 2), f.numel(), f, known, coarse_f, coarse_known)
    return coarse_f, coarse_known
