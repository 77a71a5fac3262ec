"""Cross-fit: predict each given vector from the others, by the method that will fill the field.

The vectors are divided into two folds; each fold is predicted by a fill from the other one. Folds of single points tell
noise and isolated errors; folds of blocks also tell errors that neighbours share. The fills run at half the resolution,
where they cost a quarter and decide almost as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term, pool
from flowinpaint.diffusion.pyramid import downsample_image, upsample
from flowinpaint.result import Solution
from flowinpaint.robust.points import Points
from flowinpaint.robust.trend import ramps

SMOOTH_WEIGHT = 0.1
"""Weight of each vector in the smooth prediction, in units of the smoothness term."""
SMALLEST_BLOCK, BLOCK_SPACINGS = 16, 4.0
"""Side of a block: the larger of a number of px and a multiple of the spacing of points."""
_LARGEST_ERROR = 1e30
"""Expected errors above this, also infinite ones, count as this one: the interpolation of infinity is NaN."""
_SMALLEST_SIDE = 32
"""Smaller fields are filled at full resolution."""

FillField = Callable[[Tensor, Tensor, Tensor, Tensor | None], Solution]
"""fill(image, f, mask, weight) → `Solution`, as `Method.fill`."""


class Prediction(NamedTuple):
    """A field u (1, C, H, W) or (N, C) at points, and its expected error (1, 1, H, W) or (N,), or None."""

    u: Tensor
    error: Tensor | None


def folds(size: tuple[int, int], side: int, seed: int) -> Tensor:
    """Random folds 0 and 1 of blocks of side×side pixels, (H, W)."""
    rows, columns = (-(-n // side) for n in size)
    blocks = torch.randint(2, (rows, columns), generator=torch.Generator().manual_seed(seed))
    return blocks.repeat_interleave(side, 0).repeat_interleave(side, 1)[: size[0], : size[1]]


def block_side(spacing: float) -> int:
    """The side in px of the blocks for points of this spacing."""
    return max(SMALLEST_BLOCK, round(BLOCK_SPACINGS * spacing))


def cross_fit(
    fill: FillField, image: Tensor, points: Points, trust: Tensor, fold: Tensor, weight: float | None
) -> Prediction:
    """Predict the points of each fold from the trusted ones of the other fold, with ramps continued.

    image (1, 3, H, W). trust (N,): 0 for points that take part in no fill. fold (N,): 0 or 1. weight: of each vector;
    None for exact ones. Points without trust belong to both folds, and get the mean of both predictions. So do all if
    a fold has no trusted point.
    """
    fits = []
    for k in (0, 1):
        rest = trust * (fold != k)
        rest = rest if bool(rest.any()) else trust
        used = (rest > 0).float()
        mask = points.on_grid(used)
        found = coarse_fill(
            fill,
            image,
            points.on_grid(used[:, None] * points.vectors),
            mask,
            None if weight is None else weight * mask,
        )
        ramp = ramps(points, points.vectors, rest)
        u = found.u if ramp is None else found.u + ramp
        fits.append((points.at(u), None if found.error is None else points.at(found.error)[:, 0]))
    (first, first_error), (second, second_error) = fits
    u = _of_fold(first, second, trust[:, None], fold[:, None])
    if first_error is None or second_error is None:
        return Prediction(u, None)
    return Prediction(u, _of_fold(first_error, second_error, trust, fold))


def _of_fold(first: Tensor, second: Tensor, trust: Tensor, fold: Tensor) -> Tensor:
    return torch.where(trust > 0, torch.where(fold == 0, first, second), (first + second) / 2)


def coarse_size(size: tuple[int, int]) -> tuple[int, int]:
    """The size at which fields of this size are filled in the cross-fit: half of it, unless the field is small."""
    return size if min(size) < _SMALLEST_SIDE else (-(-size[0] // 2), -(-size[1] // 2))


def coarse_fill(fill: FillField, image: Tensor, f: Tensor, mask: Tensor, weight: Tensor | None) -> Prediction:
    """Fill at half the resolution and interpolate; at full resolution if the field is small."""
    size = (f.shape[-2], f.shape[-1])
    if coarse_size(size) == size:
        found = fill(image, f, mask, weight)
        return Prediction(found.u.float(), found.expected_error)
    full = data_term(f, mask, weight)
    half = pool(full)
    found = fill(downsample_image(image), half.f, half.known.to(f.dtype), half.weight)
    error = found.expected_error
    return Prediction(
        upsample(found.u.float(), full), None if error is None else upsample(error.clamp(max=_LARGEST_ERROR), full)
    )
