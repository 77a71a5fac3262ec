"""The coarse-to-fine pyramid (Section 3.1), for images of any size.

Each level has half the size of the next finer one, rounded up, so coarse pixel (i, j) always covers the fine pixels
(2i, 2j) to (2i+1, 2j+1); a border block may be incomplete.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.diffusion.coarse_to_fine import coarse_to_fine
from flowinpaint.diffusion.data_term import DataTerm, bind, pool

Push = Callable[[DataTerm, int], list[DataTerm]]
Refine = Callable[[Tensor, DataTerm], Tensor]


def push(data: DataTerm, count: int) -> list[DataTerm]:
    """The first `count` levels of the data term, fine to coarse; f is 0 where nothing is known."""
    levels = [data._replace(f=torch.where(data.known, data.f, 0))]
    for _ in range(count - 1):
        levels.append(pool(levels[-1]))
    return levels


def levels_to_one_pixel(x: Tensor) -> int:
    """The number of levels from the size of x (B, ·, H, W) down to a single pixel."""
    return 1 + (int(max(x.shape[-2:])) - 1).bit_length()


def refine(u: Tensor, data: DataTerm) -> Tensor:
    """The initial field of a level: the next coarser u (B, C, ceil(H/2), ceil(W/2)), bound to the level's data."""
    return bind(upsample(u, data), data)


def pull(data: DataTerm, push: Push = push, refine: Refine = refine) -> Tensor:
    """A dense field (B, C, H, W): f where exact, and elsewhere the values of coarser levels, down to one pixel.

    It fills a hole of any size; if nothing is known, it is zero. push, refine: this module's, or faster versions.
    """
    levels = push(data, levels_to_one_pixel(data.f))[::-1]
    start = torch.where(levels[0].known, levels[0].f, 0)
    return coarse_to_fine(levels, start, refine, lambda _, __, u: u)


def upsample(u: Tensor, data: DataTerm) -> Tensor:
    """Bilinear interpolation by two of u (B, C, ceil(H/2), ceil(W/2)), cut to the size of the level."""
    fine = F.interpolate(u, scale_factor=2, mode="bilinear", align_corners=False)
    return fine[..., : data.f.shape[-2], : data.f.shape[-1]]


def downsample_image(image: Tensor) -> Tensor:
    """Average pooling by two; a border block averages the pixels it has."""
    return F.avg_pool2d(image, 2, ceil_mode=True, count_include_pad=False)


def image_pyramid(image: Tensor, levels: int) -> list[Tensor]:
    """An image or map (B, ·, H, W) at every level, coarse to fine."""
    images = [image]
    for _ in range(levels - 1):
        images.insert(0, downsample_image(images[0]))
    return images


def extend(x: Tensor, height: int, width: int) -> Tensor:
    """Repeat the last row and column of (B, C, H, W) until the size is (height, width)."""
    H, W = x.shape[-2:]
    if height > H:
        x = torch.cat([x, x[..., -1:, :].expand(-1, -1, height - H, -1)], -2)
    if width > W:
        x = torch.cat([x, x[..., :, -1:].expand(-1, -1, -1, width - W)], -1)
    return x
