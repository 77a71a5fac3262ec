"""Find points that the camera cannot see because a nearer object hides them.

A scanner next to the camera sees past the edges of near objects: some of its points lie behind an object of the image,
and would spread the depth of the background over it. A few per cent of a scan on a car are of this kind.

A point is hidden if nearer points surround it in a small window of the image. Nearer means by a share of its depth, and
by more than the slope of the ground explains: on a plane, 1 / depth is linear in the image, so that the point a scan
line below is nearer by a fixed difference of inverse depth, whatever the distance. The condition that nearer points lie
on both sides keeps the background right next to an object, and that they are many keeps what is seen through leaves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from flowinpaint.checks import Limit, check_range
from flowinpaint.errors import InputError

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

WINDOW = 1.1, 2.4
"""Half width and half height of the window in units of the spacing: scan lines are farther apart than their points."""
SCATTERED = 0.01
"""Points whose spacing is above this share of their extent are scattered: few of them tell nothing about visibility."""
MARGIN = 0.1
"""A nearer point is nearer by this share of the depth."""
NEARER_SHARE = 0.3
"""Share of the points in its window that are nearer than a hidden point."""
_NEIGHBOURS = 16
_SLOPE_PERCENTILE = 75
_FEWEST = 8
_CHUNK = 2**15
"""Points whose pairs are in memory at a time."""


def visible_points(
    uv: npt.ArrayLike, depth: npt.ArrayLike, window: tuple[float, float] | None = None
) -> npt.NDArray[np.bool_]:
    """Tell which points the camera sees: (M,) bool, False for points hidden by a nearer object.

    uv: (M, 2), x, y in px, and depth: (M,), above 0, as `project` returns them. window: half width and half height in
    px of the surroundings of a point, by default from the spacing of the points; scattered points are then all visible.
    """
    places, distance = check_points(uv, depth)
    if window is not None:
        check_range("window", tuple(sorted(window)), Limit.POSITIVE)
    if len(places) < _FEWEST:
        return np.ones(len(places), np.bool_)
    if window is None:
        spacing = typical_spacing(places)
        if spacing > SCATTERED * np.hypot(*np.ptp(places, axis=0)):
            return np.ones(len(places), np.bool_)
        window = WINDOW[0] * spacing, WINDOW[1] * spacing
    half = np.array(window)
    inverse = 1 / distance
    slope = _steepest_slope(places, inverse, half)
    tree = cKDTree(places / half)
    visible = np.ones(len(places), np.bool_)
    for first in range(0, len(places), _CHUNK):
        rows = np.arange(first, min(first + _CHUNK, len(places)))
        visible[rows] = ~_hidden(rows, places, inverse, half, slope, tree)
    return visible


def check_points(uv: npt.ArrayLike, depth: npt.ArrayLike) -> tuple[Array, Array]:
    """Positions (M, 2) and depths (M,); InputError unless they are finite, and the depths above 0."""
    places, distance = np.asarray(uv), np.asarray(depth)
    if places.ndim != 2 or places.shape[1] != 2 or places.dtype.kind not in "fiu":
        raise InputError(f"uv must be numbers of shape (M, 2), got {places.dtype} {places.shape}")
    if distance.shape != places.shape[:1] or distance.dtype.kind not in "fiu":
        raise InputError(f"depth must be numbers of shape ({len(places)},), got {distance.dtype} {distance.shape}")
    places, distance = places.astype(np.float64), distance.astype(np.float64)
    if not np.isfinite(places).all():
        raise InputError("uv must be finite, got NaN or infinity")
    if not ((distance > 0) & np.isfinite(distance)).all():
        raise InputError(
            f"depth must be finite and above 0, got {distance[~((distance > 0) & np.isfinite(distance))][0]}"
        )
    return places, distance


def typical_spacing(uv: Array) -> float:
    """The square root of the area per point in px, where points are: their median, from the nearest neighbours."""
    count = min(_NEIGHBOURS, len(uv) - 1)
    radius = np.asarray(cKDTree(uv).query(uv, count + 1)[0])[:, -1]
    return max(float(np.sqrt(np.pi * np.median(radius**2) / count)), 1e-3)


def _steepest_slope(uv: Array, inverse: Array, half: Array) -> float:
    """The difference of inverse depth per row on the scene's largest sloped surface, as a rule the ground."""
    sample = np.arange(0, len(uv), max(1, len(uv) // _CHUNK))
    p, q = _pairs(sample, cKDTree(uv / half), uv / half)
    rows = uv[q, 1] - uv[p, 1]
    far = rows > 0.4 * half[1]
    if not far.any():
        return 0.0
    gradient = (inverse[q] - inverse[p])[far] / rows[far]
    return max(0.0, *(float(np.percentile(sign * gradient, _SLOPE_PERCENTILE)) for sign in (1, -1)))


def _hidden(rows: Index, uv: Array, inverse: Array, half: Array, slope: float, tree: cKDTree) -> npt.NDArray[np.bool_]:
    """Whether each of the points `rows` is hidden."""
    p, q = _pairs(rows, tree, uv / half)
    offset = uv[q] - uv[p]
    nearer = inverse[q] - inverse[p] > MARGIN * inverse[p] + slope * np.abs(offset[:, 1])

    def count(condition: npt.NDArray[np.bool_]) -> Index:
        return np.bincount(p[condition] - rows[0], minlength=len(rows))[: len(rows)]

    left, right = count(nearer & (offset[:, 0] < 0)), count(nearer & (offset[:, 0] > 0))
    hidden: npt.NDArray[np.bool_] = (left > 0) & (right > 0)
    return hidden & (count(nearer) >= NEARER_SHARE * count(np.ones_like(nearer)))


def _pairs(rows: Index, tree: cKDTree, scaled: Array) -> tuple[Index, Index]:
    """Pairs (p, q) of the points `rows`, in order, and the other points in their windows."""
    found: Any = tree.query_ball_point(scaled[rows], 1, p=np.inf)
    p = np.repeat(rows, [len(others) for others in found])
    q = np.concatenate([np.asarray(others, np.intp) for others in found])
    apart = p != q
    return p[apart], q[apart]
