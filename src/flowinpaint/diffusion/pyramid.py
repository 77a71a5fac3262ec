"""The coarse-to-fine pyramid (Section 3.1), for images of any size.

Level sizes halve upwards (rounded up), so coarse pixel (i, j) always covers the fine pixels (2i, 2j) to
(2i+1, 2j+1), of which a border block may lack some.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Level(NamedTuple):
    """One resolution: image (B, 3, h, w), sparse field f (B, C, h, w), 0 where unknown, and c (B, 1, h, w), 0 or 1."""

    image: Tensor
    f: Tensor
    c: Tensor


def build_pyramid(image: Tensor, f: Tensor, c: Tensor, levels: int) -> list[Level]:
    """Levels from fine to coarse; f is set to zero where c is zero."""
    pyramid = [Level(image, torch.where(c > 0, f, 0), c)]
    for _ in range(levels - 1):
        image, f, c = pyramid[-1]
        pyramid.append(Level(downsample_image(image), *downsample_known(f, c)))
    return pyramid


def downsample_image(image: Tensor) -> Tensor:
    """Average pooling by two; a border block averages the pixels it has."""
    return F.avg_pool2d(image, 2, ceil_mode=True, count_include_pad=False)


def image_pyramid(image: Tensor, levels: int) -> list[Tensor]:
    """The image (B, ·, H, W), or a map, at every level, from coarse to fine."""
    images = [image]
    for _ in range(levels - 1):
        images.insert(0, downsample_image(images[0]))
    return images


def downsample_known(f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Average of the known vectors in each 2×2 block, and whether there is one (max pooling of the mask)."""
    total = _block_sum(f * c)
    count = _block_sum(c)
    return total / count.clamp(min=1), (count > 0).to(c.dtype)


def _block_sum(x: Tensor) -> Tensor:
    H, W = x.shape[-2:]
    return F.avg_pool2d(F.pad(x, (0, W % 2, 0, H % 2)), 2, divisor_override=1)


def upsample(u: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear interpolation by two, cut to the finer level's size."""
    fine = F.interpolate(u, scale_factor=2, mode="bilinear", align_corners=False)
    return fine[..., : size[0], : size[1]]


def refine(u: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """The next finer level's start: f where it is known, the coarser u elsewhere."""
    return torch.where(c > 0, f, upsample(u, (f.shape[-2], f.shape[-1])))


def pull(f: Tensor, c: Tensor) -> Tensor:
    """A field that is known everywhere: f where c > 0, and elsewhere what coarser and coarser levels know.

    They go down to one pixel, so that a hole of any size is filled; where nothing at all is known there is zero.
    """
    if f.shape[-2:] == (1, 1):
        return f
    return refine(pull(*downsample_known(f, c)), f, c)
