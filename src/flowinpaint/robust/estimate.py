"""`estimate`: how noisy given vectors are, which of them are wrong, and the best vectors and weights to fill from."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.robust.assessor import Assessor
from flowinpaint.robust.cross_fit import SMOOTH_WEIGHT, FillField, block_side, cross_fit, folds
from flowinpaint.robust.features import Candidates, Features, cross_fit_features, point_features
from flowinpaint.robust.photometric import patch_correlations
from flowinpaint.robust.points import Points, local_affine, norm

FEWEST = 8
"""Points needed for an assessment."""
FILLS = 6
"""Fills of an assessment, at half the resolution."""
_GOOD_LOGIT = 0.0
"""Logit above which a vector takes part in the cross-fit."""


class Observation(NamedTuple):
    """Points with what is known about them before the verdict.

    photo: `patch_correlations`, or None. sharing: the number of points that share one error (`points_per_error`).
    """

    points: Points
    features: Features
    candidates: Candidates
    photo: Tensor | None
    sharing: float


def observe(
    fill: FillField,
    image: Tensor,
    points: Points,
    second: Tensor | None,
    assessor: Assessor,
    seed: int,
    confidence: Tensor | None = None,
) -> Observation:
    """Cross-fit the points and compute their features.

    image (1, 3, H, W), points: on the CPU. second (1, 3, H, W): the image that the vectors point to.
    """
    alone = point_features(points, *local_affine(points, torch.ones(len(points))))
    logit = assessor.first_logit(alone, points.neighbours)
    good = logit + (0 if confidence is None else torch.logit(confidence, 1e-6)) > _GOOD_LOGIT
    good = good if int(good.sum()) >= FEWEST else torch.ones_like(good)
    local, _ = local_affine(points, logit.sigmoid())

    size, side = (points.mask.shape[0], points.mask.shape[1]), block_side(points.spacing)
    pixels, blocks = (folds(size, n, seed)[points.mask] for n in (1, side))
    trust = good * logit.sigmoid().clamp(min=1e-3)
    runs = ((pixels, None), (pixels, SMOOTH_WEIGHT), (blocks, None))
    sharp, smooth, apart = (cross_fit(fill, image, points, trust, fold, weight) for fold, weight in runs)
    candidates = Candidates(points.vectors, sharp.u, smooth.u, apart.u, local)
    features = cross_fit_features(points, alone, logit, candidates, (sharp.error, apart.error))
    photo = None
    if second is not None:
        vectors = [points.vectors, candidates.sharp, candidates.blocks, candidates.local]
        photo = patch_correlations(image, second, points.place, vectors)
    return Observation(points, features, candidates, photo, points_per_error(points, candidates, good, side))


def points_per_error(points: Points, candidates: Candidates, good: Tensor, side: int) -> float:
    """The number of points within the correlation length of the errors, at least 1.

    Vectors whose errors agree with their neighbours are predicted well from single points (folds of pixels), but badly
    from outside a block of this side. good (N,): the points that count.
    """
    near, far = (float(norm(points.vectors - x)[good].median().square()) for x in (candidates.sharp, candidates.blocks))
    length = side * max(0.0, 1 - near / max(far, 1e-12))
    return max(1.0, (length / points.spacing) ** 2)
