"""Vectors as other programs compute them from two images, with OpenCV: feature matches, tracks, and checked flow.

Each function takes two grey images (H, W), uint8, and returns a field (H, W, 2), NaN where it has no vector. The vector
of a point is at the pixel nearest to the point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from flowinpaint.masks.cases import Case

Grey = npt.NDArray[np.uint8]
Field = npt.NDArray[np.float32]

_MOST_POINTS = 8000
_RATIO = 0.8
"""A match must be closer than this share of the distance to the second best."""
_LARGEST_ERROR = 1.0
"""Largest distance in px between a point and where it is after tracking forward and back."""
_WINDOW, _LEVELS = (21, 21), 5


def sift(first: Grey, second: Grey) -> Field:
    """SIFT: matches that pass the ratio test and are mutual nearest neighbours."""
    return _matches(cv2.SIFT.create(nfeatures=_MOST_POINTS, contrastThreshold=0.01), cv2.NORM_L2, first, second)


def orb(first: Grey, second: Grey) -> Field:
    """ORB: matches that pass the ratio test and are mutual nearest neighbours."""
    return _matches(cv2.ORB.create(nfeatures=_MOST_POINTS), cv2.NORM_HAMMING, first, second)


def lucas_kanade(first: Grey, second: Grey) -> Field:
    """Corners tracked by pyramidal Lucas-Kanade, checked forward and backward."""
    start: Any = cv2.goodFeaturesToTrack(first, _MOST_POINTS, 0.003, 4)
    if start is None:  # no corner
        return _field(first, np.empty((0, 2)), np.empty((0, 2)))
    track = partial(cv2.calcOpticalFlowPyrLK, winSize=_WINDOW, maxLevel=_LEVELS)
    end, there, _ = track(first, second, start, None)
    again, back, _ = track(second, first, end, None)
    kept = (there > 0) & (back > 0) & (np.linalg.norm(start - again, axis=2) < _LARGEST_ERROR)
    return _field(first, start[kept], end[kept])


def dis(first: Grey, second: Grey) -> Field:
    """Dense inverse search (DIS), where flow forward and backward agree."""
    search: Any = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    forward, backward = search.calc(first, second, None), search.calc(second, first, None)
    rows, columns = np.indices(first.shape, np.float32)
    outside = (1e3, 1e3)
    returned = cv2.remap(
        backward, columns + forward[..., 0], rows + forward[..., 1], cv2.INTER_LINEAR, borderValue=outside
    )
    kept = np.linalg.norm(forward + returned, axis=2, keepdims=True) < _LARGEST_ERROR
    return np.where(kept, forward, np.float32(np.nan))


MATCHERS: dict[Case, Callable[[Grey, Grey], Field]] = {"sift": sift, "orb": orb, "lk": lucas_kanade, "dis": dis}
"""The functions by the name of their input."""


def _matches(detector: cv2.Feature2D, norm: int, first: Grey, second: Grey) -> Field:
    (points, a), (others, b) = (detector.detectAndCompute(image, None) for image in (first, second))
    found = []
    if len(points) and len(others) > 1:  # the ratio test needs a second best
        matcher = cv2.BFMatcher(norm)
        nearest = {match.queryIdx: match.trainIdx for match in matcher.match(b, a)}
        for match, second_best in matcher.knnMatch(a, b, 2):
            if match.distance < _RATIO * second_best.distance and nearest[match.trainIdx] == match.queryIdx:
                found.append((points[match.queryIdx].pt, others[match.trainIdx].pt))
    start, end = np.reshape(found, (-1, 2, 2)).swapaxes(0, 1)
    return _field(first, start, end)


def _field(image: Grey, start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Field:
    """The field of an image's size with the vectors between points (N, 2)."""
    field = np.full((*image.shape, 2), np.nan, np.float32)
    columns, rows = np.rint(start).astype(int).T
    inside = (rows >= 0) & (rows < image.shape[0]) & (columns >= 0) & (columns < image.shape[1])
    field[rows[inside], columns[inside]] = (end - start)[inside]
    return field
