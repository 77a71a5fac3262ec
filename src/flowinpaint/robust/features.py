"""Features of given vectors, from which the assessor decides. All differences are relative to the scale of the points.

First the points alone: how well a vector agrees with its neighbours. Then also the cross-fit: what the other vectors
predict at its place. Last the hints: what the user knows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.robust.points import SURROUNDINGS, Points, norm

_RANKS = (0, 1, 2, 4, 7, 11)
"""Ranks of the differences to neighbours, sorted, that are features."""
_FLOOR = 0.01
"""Differences below this share of the scale count as this share."""
_CEILING = 1e4
"""Differences above this multiple of the scale count as this multiple."""
_LARGEST_LOGIT = 8.0
_LARGEST_STEP = 4.0
"""Steps to a neighbour longer than this multiple of the spacing count as this multiple."""

DIRECTION = slice(0, 2)
"""The features of a pair that change their sign if the image is mirrored."""
POINT, PAIR = len(_RANKS) + 6 + SURROUNDINGS, 7
"""Number of features of the points alone: of a point, and of a pair of neighbours."""
CROSS_FIT_POINT, CROSS_FIT_PAIR = POINT + 14, PAIR + 3
"""Number of features with the cross-fit."""
NOISE_HINT, CONFIDENCE_HINT = 2, 2
"""A value and a flag each: 1 if the user gave it."""
PHOTO_VECTORS = 4
"""Vectors per point that are compared with the second image: given, sharp, blocks and local."""
PHOTO_HINT = 2 * (PHOTO_VECTORS + 1) + 1 + 1
"""Outputs of `patch_correlations`, and a flag."""
HINTS = NOISE_HINT + CONFIDENCE_HINT + PHOTO_HINT
PAIR_HINTS = 4
"""Of a neighbour: the correlations of its vector at both radii, whether it ends inside, and a flag."""


class Features(NamedTuple):
    """Of each point (N, ·), and of each pair of a point and a neighbour (N, k, ·)."""

    point: Tensor
    pair: Tensor


class Candidates(NamedTuple):
    """Vectors (N, C) that compete for the place of a given one.

    given: the vector itself. sharp, smooth: what the other vectors predict there with exact and with small weights.
    blocks: what vectors outside its block predict. local: the affine fit to its neighbours.
    """

    given: Tensor
    sharp: Tensor
    smooth: Tensor
    blocks: Tensor
    local: Tensor


def log_ratio(x: Tensor, scale: float) -> Tensor:
    """Logarithm of x relative to the scale, with a floor and a ceiling."""
    return torch.log((x / scale).clamp(max=_CEILING) + _FLOOR)


def point_features(points: Points, local: Tensor, local_residual: Tensor) -> Features:
    """Agreement of each vector with its neighbours, and where these are; `local`, `local_residual`: of `local_affine`.

    The sign of the difference in length tells near from far for 1/depth, disparity and the flow of a moving camera.
    """
    near, d, spacing, scale = points.neighbours, points.distances, points.spacing, points.scale
    ranked = points.differences.sort(1).values
    last = ranked.shape[1] - 1
    deviation = norm(points.vectors - local)
    of_image = (math.log(scale / max(points.spread, 1e-9) + 1e-3), math.log(spacing))
    point = torch.stack(
        [log_ratio(ranked[:, min(rank, last)], scale) for rank in _RANKS]
        + [log_ratio(deviation, scale), log_ratio(local_residual, scale)]
        + [torch.log(x / spacing + 0.1) for x in (d[:, 0], d.mean(1))]
        + [torch.full((len(points),), x) for x in of_image],
        1,
    )
    colour = torch.linalg.vector_norm(points.colours[near] - points.colours[:, None], dim=-1)
    rows, columns = (
        ((points.place[near] - points.place[:, None]) / spacing).clamp(-_LARGEST_STEP, _LARGEST_STEP).unbind(-1)
    )
    length = norm(points.vectors)
    pair = torch.stack(
        [
            rows,
            columns,
            torch.asinh((length[near] - length[:, None]) / scale),
            log_ratio(points.differences, scale),
            torch.log(d / spacing + 0.1),
            torch.log(colour + 0.02),
            log_ratio(deviation[near], scale),
        ],
        -1,
    )
    return Features(torch.cat([point, points.surroundings], 1), pair)


def cross_fit_features(
    points: Points, alone: Features, logit: Tensor, candidates: Candidates, errors: tuple[Tensor | None, Tensor | None]
) -> Features:
    """The features of the points alone, their first logit (N,), and agreement with the cross-fit.

    errors: the errors (N,) that the method expects of the sharp and of the block-wise prediction. A method that expects
    none is given the spread of its residuals at the neighbours.
    """
    near, scale = points.neighbours, points.scale
    given, sharp, smooth, blocks, local = candidates
    off_sharp, off_smooth, off_blocks = norm(given - sharp), norm(given - smooth), norm(given - blocks)
    logit = logit.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT)
    expected = (
        off[near].mean(1) if error is None else error * math.sqrt(2 / given.shape[1])
        for error, off in zip(errors, (off_sharp, off_blocks), strict=True)
    )
    differences = (
        *expected,
        off_sharp,
        off_smooth,
        off_blocks,
        norm(given - local),
        norm(sharp - smooth),
        norm(sharp - blocks),
        norm(sharp - local),
        off_sharp[near].mean(1),
        off_sharp[near].median(1).values,
        off_smooth[near].median(1).values,
        off_blocks[near].median(1).values,
    )
    point = torch.stack([logit, *(log_ratio(x, scale) for x in differences)], 1)
    apart, other = norm(sharp[near] - sharp[:, None]), norm(given[near] - sharp[:, None])
    pair = torch.stack([log_ratio(apart, scale), log_ratio(other, scale), logit[near]], -1)
    return Features(torch.cat([alone.point, point], 1), torch.cat([alone.pair, pair], -1))


def hint_features(
    points: Points, noise: Tensor | None = None, confidence: Tensor | None = None, photo: Tensor | None = None
) -> Features:
    """What the user knows, 0 with a flag 0 where nothing is known.

    noise (N,): standard deviations in the field's unit. confidence (N,): probabilities. photo: `patch_correlations`.
    """
    N, k = points.neighbours.shape
    point, pair = torch.zeros(N, HINTS), torch.zeros(N, k, PAIR_HINTS)
    if noise is not None:
        point[:, 0], point[:, 1] = log_ratio(noise, points.scale), 1
    if confidence is not None:
        point[:, 2], point[:, 3] = torch.logit(confidence, 2.5e-3), 1
    if photo is not None:
        point[:, 4:-1], point[:, -1] = photo, 1
        per_radius = PHOTO_VECTORS + 1
        pair[..., :-1] = photo[points.neighbours][..., [0, per_radius, 2 * per_radius]]
        pair[..., -1] = 1
    return Features(point, pair)
