"""Expected error of a robust fill: that of the estimated vectors, and that of the fill between them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.pyramid import pull
from flowinpaint.robust.assessor import Verdict
from flowinpaint.robust.points import Points, norm
from flowinpaint.robust.trend import distance_to

_NEAREST = 1 / math.sqrt(2)
"""Mean distance from a point of one fold to the nearest point of the other, in units of the spacing of all points."""


def expected_error(of_fill: Tensor | None, points: Points, verdict: Verdict, predicted: Tensor) -> Tensor:
    """The expected endpoint error (1, 1, H, W) of a fill from estimated vectors: both errors, as independent ones.

    of_fill (1, 1, H, W): the error that the method predicts, 0 at exact vectors. None for a method that predicts none:
    then it follows from predicted (N, C), the vectors that the cross-fit predicts from the other points.
    """
    between = _of_residuals(points, verdict, predicted) if of_fill is None else of_fill.float()
    return torch.hypot(between, _spread_out(verdict.error, points))


def _of_residuals(points: Points, verdict: Verdict, predicted: Tensor) -> Tensor:
    """The error of a fill at a distance from its vectors, from the errors of predictions in the cross-fit.

    Those bridge the distance between two folds; a field that varies at random has errors that grow with its root.
    """
    distance = distance_to(points.mask) / (_NEAREST * points.spacing)
    return _spread_out(norm(verdict.vectors - predicted), points) * torch.sqrt(distance)


def _spread_out(error: Tensor, points: Points) -> Tensor:
    """Errors (N,) per two components at the points as endpoint errors everywhere, (1, 1, H, W)."""
    own = points.on_grid(error * math.sqrt(points.vectors.shape[1] / 2))
    return pull(data_term(own, points.on_grid(torch.ones(len(points)))))
