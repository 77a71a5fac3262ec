"""Quality of the given vectors of an imperfect input, and of a method's judgement on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from flowinpaint.data.folder import Frame
from flowinpaint.metrics import endpoint_error

WRONG = 3.0
"""A given vector is wrong if it is off by more than this, in px."""


def wrong_share(frame: Frame) -> float | None:
    """The share of wrong vectors among those given where the truth is valid; None if there are none."""
    counted = frame.mask & frame.valid
    return float(_wrong(frame)[counted].mean()) if counted.any() else None


def inlier_auc(inliers: npt.NDArray[Any], frame: Frame) -> float | None:
    """How well the inliers (H, W) of a result tell right from wrong vectors, as an area under the ROC curve.

    Vectors given where the truth is valid count. None if all of them are right, or all wrong.
    """
    counted = frame.mask & frame.valid & np.isfinite(inliers)
    return roc_auc(inliers[counted], ~_wrong(frame)[counted])


def roc_auc(scores: npt.NDArray[Any], positive: npt.NDArray[np.bool_]) -> float | None:
    """The probability that a positive (N,) has a higher score (N,) than a negative, ties half; None without a pair."""
    count = int(positive.sum())
    pairs = count * (positive.size - count)
    if not pairs:
        return None
    return float((rankdata(scores)[positive].sum() - count * (count + 1) / 2) / pairs)


def _wrong(frame: Frame) -> npt.NDArray[np.bool_]:
    """Where (H, W) a vector is wrong; meaningless where none is given, or the truth is not valid."""
    return np.asarray(endpoint_error(frame.given, frame.truth) > WRONG)
