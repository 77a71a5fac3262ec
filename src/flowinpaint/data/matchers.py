"""Vectors as other programs compute them from two images, with OpenCV: feature matches, tracks, and checked flow.

Each function takes two grey images (H, W), uint8, and returns a field (H, W, 2), NaN where it has no vector. The vector
of a point is at the pixel nearest to the point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.masks.cases import Case
from flowinpaint.opencv import cv2

Grey = npt.NDArray[np.uint8]
Field = npt.NDArray[np.float32]

_MOST_POINTS = 8000


def sift(first: Grey, second: Grey, *, contrast: float = 0.01, ratio: float = 0.8) -> Field:
    """SIFT: mutual nearest neighbours, closer than `ratio` times the distance to the second best."""
    detector = cv2.SIFT.create(nfeatures=_MOST_POINTS, contrastThreshold=contrast)
    return _matches(detector, cv2.NORM_L2, ratio, first, second)


def orb(first: Grey, second: Grey, *, ratio: float = 0.8) -> Field:
    """ORB: mutual nearest neighbours, closer than `ratio` times the distance to the second best."""
    return _matches(cv2.ORB.create(nfeatures=_MOST_POINTS), cv2.NORM_HAMMING, ratio, first, second)


def lucas_kanade(
    first: Grey,
    second: Grey,
    *,
    quality: float = 0.003,
    distance: int = 4,
    window: int = 21,
    levels: int = 5,
    limit: float = 1.0,
) -> Field:
    """Corners tracked by pyramidal Lucas-Kanade; forward and back they must return to within `limit` px.

    quality, distance: of `cv2.goodFeaturesToTrack`. window, levels: side of the window in px, and pyramid levels.
    """
    start: Any = cv2.goodFeaturesToTrack(first, _MOST_POINTS, quality, distance)
    if start is None:  # no corner
        return _field(first, np.empty((0, 2)), np.empty((0, 2)))
    track = partial(cv2.calcOpticalFlowPyrLK, winSize=(window, window), maxLevel=levels)
    end, there, _ = track(first, second, start, None)
    again, back, _ = track(second, first, end, None)
    kept = (there > 0) & (back > 0) & (np.linalg.norm(start - again, axis=2) < limit)
    return _field(first, start[kept], end[kept])


def dis(first: Grey, second: Grey, *, fast: bool = False, limit: float = 1.0) -> Field:
    """Dense inverse search (DIS), where flow forward and back returns to within `limit` px; with its fast preset."""
    preset = cv2.DISOPTICAL_FLOW_PRESET_FAST if fast else cv2.DISOPTICAL_FLOW_PRESET_MEDIUM
    search: Any = cv2.DISOpticalFlow.create(preset)
    forward, backward = search.calc(first, second, None), search.calc(second, first, None)
    rows, columns = np.indices(first.shape, np.float32)
    outside = (1e3, 1e3)
    returned = cv2.remap(
        backward, columns + forward[..., 0], rows + forward[..., 1], cv2.INTER_LINEAR, borderValue=outside
    )
    kept = np.linalg.norm(forward + returned, axis=2, keepdims=True) < limit
    return np.where(kept, forward, np.float32(np.nan))


MATCHERS: dict[Case, Callable[[Grey, Grey], Field]] = {"sift": sift, "orb": orb, "lk": lucas_kanade, "dis": dis}
"""The functions by the name of their input."""


def _matches(detector: cv2.Feature2D, norm: int, ratio: float, first: Grey, second: Grey) -> Field:
    (points, a), (others, b) = (detector.detectAndCompute(image, None) for image in (first, second))
    found = []
    if len(points) and len(others) > 1:  # the ratio test needs a second best
        matcher = cv2.BFMatcher(norm)
        nearest = {match.queryIdx: match.trainIdx for match in matcher.match(b, a)}
        for match, second_best in matcher.knnMatch(a, b, 2):
            if match.distance < ratio * second_best.distance and nearest[match.trainIdx] == match.queryIdx:
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
