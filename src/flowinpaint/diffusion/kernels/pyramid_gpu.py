"""The pyramid of `diffusion.pyramid` for CUDA, in Triton.

A coarse pixel depends on its block only, so one program computes a tile of pixels and all coarser pixels above it: five
levels cost one launch. A level of at most 32×32 pixels is also filled from one pixel upwards in one launch, by one
program per image and channel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.coarse_to_fine import coarse_to_fine
from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import pyramid_triton
from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.diffusion.pyramid import levels_to_one_pixel
from flowinpaint.integers import ceil_div

_MOST_LEVELS = 5
"""Levels of one launch of `push`, one program per tile of 2^5 pixels a side. Four are faster, so a launch computes four
if more than one launch is needed."""
_SMALL_LEVELS = 5
"""A level that one program fills has a side of at most 2^5 pixels."""
_ALIGNMENT = int(pyramid_triton.ALIGNMENT)
_COLUMNS = 256


def push(data: DataTerm, count: int) -> list[DataTerm]:
    """The first `count` levels of exact vectors, fine to coarse, as in `pyramid.push`.

    The finest f may have any value where unknown, even NaN; on coarser levels f is 0 there.
    """
    levels = [DataTerm(data.f.contiguous(), data.known.contiguous())]
    while len(levels) < count:
        missing = count - len(levels)
        levels += _push_once(levels[-1], missing if missing <= _MOST_LEVELS else _MOST_LEVELS - 1)
    return levels


def pull(data: DataTerm) -> Tensor:
    """A dense field (B, C, H, W) from coarser levels, as in `pyramid.pull`."""
    levels = push(data, max(1, levels_to_one_pixel(data.f) - _SMALL_LEVELS))[::-1]
    return coarse_to_fine(levels, _pull_small(levels[0]), refine, lambda _, __, u: u)


def refine(u: Tensor, data: DataTerm) -> Tensor:
    """The initial field of a level from the next coarser field, as in `pyramid.refine`."""
    u, f, known = u.contiguous(), data.f.contiguous(), data.known.contiguous()
    B, C, H, W = f.shape
    out = torch.empty_like(f)
    group = C if C <= 3 else 1
    with torch.cuda.device_of(f):
        launch(
            pyramid_triton.refine,
            (H, ceil_div(W, _COLUMNS), B * C // group),
            u,
            f,
            known.view(torch.uint8),
            out,
            C,
            H,
            W,
            group,
            _COLUMNS,
        )
    return out


def _push_once(data: DataTerm, levels: int) -> list[DataTerm]:
    """The next levels, at most _MOST_LEVELS of them, in one launch; they share a buffer."""
    f, known, _ = data
    B, C, H, W = f.shape
    sizes = [((H - 1 >> k) + 1, (W - 1 >> k) + 1) for k in range(1, levels + 1)]
    coarse_f = f.new_empty(sum(_aligned(B * C * h * w) for h, w in sizes))
    coarse_known = known.new_empty(sum(_aligned(B * h * w) for h, w in sizes))
    side = 1 << max(levels - 1, 3)
    grid = (ceil_div(W, 2 * side), ceil_div(H, 2 * side), B * C)
    with torch.cuda.device_of(f):
        launch(
            pyramid_triton.push,
            grid,
            f,
            known.view(torch.uint8),
            coarse_f,
            coarse_known.view(torch.uint8),
            B,
            C,
            H,
            W,
            levels,
            side,
            num_warps=1,
        )
    out = []
    at_f = at_known = 0
    for h, w in sizes:
        level_f, level_known = coarse_f[at_f : at_f + B * C * h * w], coarse_known[at_known : at_known + B * h * w]
        out.append(DataTerm(level_f.view(B, C, h, w), level_known.view(B, 1, h, w)))
        at_f += _aligned(B * C * h * w)
        at_known += _aligned(B * h * w)
    return out


def _pull_small(data: DataTerm) -> Tensor:
    f, known, _ = data
    B, C, h, w = f.shape
    side = 1 << _SMALL_LEVELS
    scratch, out = f.new_empty(B * C * 2 * (side * side // 3 + 1)), torch.empty_like(f)
    with torch.cuda.device_of(f):
        launch(pyramid_triton.pull, (B * C,), f, known.view(torch.uint8), scratch, out, h, w, C, _SMALL_LEVELS)
    return out


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
