"""Points between pixels: the local slope of their values, values moved to pixel centres, and points merged there.

A value v at the position p belongs to the pixel c that contains p. Rounding p to c costs an error of the slope times
the distance, up to 0.7 px. Instead, v + J (c - p) is the value at c: the slope J is a robust local fit to the values of
the nearest points. All functions compute in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

Array = npt.NDArray[Any]

NEIGHBOURS = 12
_RANK = 4
"""The width of the Cauchy weights follows this smallest residual of a fit, so that a third of the neighbours suffices:
at a motion edge the slope is that of the surface with the most similar values."""
_REWEIGHTINGS = 3
_CHUNK = 50_000
"""Points whose slopes are computed together, to bound the memory."""
_TINY = 1e-12
"""Ridge penalty, relative to the mean squared distance: collinear neighbours have no slope across their line."""


class Merged(NamedTuple):
    """The values of M pixels that have points.

    pixel (M,): row * W + column. point (N,): the index of each point in these arrays. values (M, C). noise (M,):
    standard deviation of a merged value, or None. confidence (M,): mean of those of its points, or None.
    """

    pixel: Array
    point: Array
    values: Array
    noise: Array | None
    confidence: Array | None


class Neighbours(NamedTuple):
    """The nearest other points of n points: their indices (n, K), and K steps x, y to them, each (n, K)."""

    others: Array
    x: Array
    y: Array


class PointSet:
    """Points (N, 2) that know their neighbours; K is 0 for a single point."""

    def __init__(self, points: Array) -> None:
        self.points, self.tree = points, cKDTree(points)
        self.columns = points.T.copy()
        self.count = min(NEIGHBOURS, len(points) - 1)

    def __len__(self) -> int:
        return len(self.points)

    def near(self, which: Array) -> Neighbours:
        """The neighbours of some points, indices (n,)."""
        near = np.asarray(self.tree.query(self.points[which], self.count + 1)[1]).reshape(len(which), -1)
        own = near == which[:, None]
        own[~own.any(1), -1] = True  # many points at the same place
        others = near[~own].reshape(len(which), self.count)
        x, y = (column[others] - column[which, None] for column in self.columns)
        return Neighbours(others, x, y)


def local_slopes(points: PointSet, values: Array, weight: Array | None = None) -> Array:
    """Robust slopes (N, C, 2) of values (N, C), their derivatives by x and y, from neighbours with a weight (N,)."""
    slope = np.zeros((*values.shape, 2))
    if points.count == 0:
        return slope
    steepness = None
    for start in range(0, len(points), _CHUNK):
        which = np.arange(start, min(start + _CHUNK, len(points)))
        near = points.near(which)
        if steepness is None:
            steepness = _typical_steepness(values, which, near)
        slope[which] = _fit(values, weight, which, near, steepness)
    return slope


def expected_values(points: PointSet, values: Array, slope: Array, which: Array) -> Array:
    """The values (n, C) that the neighbours of some points, indices (n,), expect there: the medians of theirs."""
    if points.count == 0:
        return values[which]
    others, x, y = points.near(which)
    predicted = values[others] - slope[others, :, 0] * x[..., None] - slope[others, :, 1] * y[..., None]
    return np.asarray(np.median(predicted, axis=1))


def at_pixel_centres(points: Array, values: Array, slope: Array) -> Array:
    """The values (N, C) at the centres of the pixels that contain the points (N, 2)."""
    return np.asarray(values + np.einsum("ncd,nd->nc", slope, np.floor(points + 0.5) - points))


def merge(pixel: Array, values: Array, noise: Array | None, confidence: Array | None, residual: Array | None) -> Merged:
    """Merge points that share a pixel (N,): the mean of their values (N, C), weighted by precision.

    noise, confidence: (N,) or None. residual (N,): distances from the values that the neighbours expect, for Cauchy
    weights, so that an outlier does not spoil its pixel; None trusts all points.
    """
    pixels, first, point, count = np.unique(pixel, return_index=True, return_inverse=True, return_counts=True)
    point = point.reshape(-1)
    merged = Merged(
        pixels,
        point,
        values[first],
        None if noise is None else noise[first],
        None if confidence is None else confidence[first],
    )
    shared = count[point] > 1
    if not shared.any():
        return merged
    weight = np.ones(len(pixel)) if confidence is None else confidence.copy()
    if noise is not None:
        weight /= np.maximum(noise, max(1e-6 * float(noise.max()), 1e-150)) ** 2
    if residual is not None:
        width = max(float(np.median(residual)), 1e-6 * float(np.abs(values).max(initial=0)), 1e-150)
        weight /= 1 + (residual / width) ** 2
    index = np.searchsorted(wanted := np.flatnonzero(count > 1), point[shared])

    def total(x: Array) -> Array:
        return np.bincount(index, x, len(wanted))

    w = weight[shared]
    w = np.where(total(w)[index] > 0, w, 1)  # all have the confidence 0
    w /= total(w)[index]
    merged.values[wanted] = np.stack([total(w * channel) for channel in values[shared].T], -1)
    if merged.noise is not None and noise is not None:
        merged.noise[wanted] = np.sqrt(total((w * noise[shared]) ** 2))
    if merged.confidence is not None and confidence is not None:
        merged.confidence[wanted] = np.clip(total(w * confidence[shared]), 0, 1)
    return merged


def bilinear(field: Array, points: Array) -> Array:
    """The values (N, C) of a field (H, W, C) at points (N, 2), from the finite ones of the four nearest pixels.

    NaN if none of these is finite. Outside the outermost pixel centres the field is constant.
    """
    x, y = (np.clip(points[:, i], 0, field.shape[1 - i] - 1) for i in (0, 1))
    column, row = np.floor(x).astype(int), np.floor(y).astype(int)
    sums, weights = np.zeros((len(points), field.shape[2])), np.zeros((len(points), 1))
    for dy in (0, 1):
        for dx in (0, 1):
            value = field[np.minimum(row + dy, field.shape[0] - 1), np.minimum(column + dx, field.shape[1] - 1)]
            share = ((1 - np.abs(x - column - dx)) * (1 - np.abs(y - row - dy)))[:, None]
            share = share * np.isfinite(value).all(1, keepdims=True)
            sums += share * np.where(share > 0, value, 0)
            weights += share
    return np.where(weights > 0, sums / np.where(weights > 0, weights, 1), np.nan)


def _typical_steepness(values: Array, which: Array, near: Neighbours) -> float:
    """The median of the differences between some points and a neighbour of each, per px."""
    middle = near.others.shape[1] // 2
    distance = np.hypot(near.x[:, middle], near.y[:, middle])
    apart = distance > 0
    if not apart.any():
        return 0.0
    differences = np.linalg.norm(values[which] - values[near.others[:, middle]], axis=1)
    return float(np.median(differences[apart] / distance[apart]))


def _fit(values: Array, weight: Array | None, which: Array, near: Neighbours, steepness: float) -> Array:
    """The slopes (n, C, 2) at some points, indices (n,): iteratively reweighted least squares through the own value.

    At the end the slope shrinks towards zero as far as the residuals explain it: noisy points close to each other have
    none, and that of an affine field is exact.
    """
    others = near.others
    reach = np.sqrt((near.x**2 + near.y**2).mean(1, keepdims=True))
    reach[reach == 0] = 1  # all at the same place
    x, y = near.x / reach, near.y / reach
    rises = [column[others] - column[which, None] for column in values.T.copy()]  # C of (n, k)
    xx, xy, yy = x * x, x * y, y * y
    prior = 1 / (1 + xx + yy)
    if weight is not None:
        prior *= weight[others]
    ridge = _TINY * prior.sum(1) + 1e-100
    rank = min(_RANK, others.shape[1]) - 1
    squared = sum(rise * rise for rise in rises)
    smallest = np.maximum(1e-18 * squared.max(1, keepdims=True), 1e-300)
    slopes: list[tuple[Array, Array]] = []
    for i in range(_REWEIGHTINGS + 1):
        width = np.maximum(2.25 * np.partition(squared, rank, axis=1)[:, rank, None], smallest)
        w = prior / (1 + squared / width)
        penalty = ridge
        if i == _REWEIGHTINGS:
            variance = _sum(w, squared) / np.maximum(w.sum(1), 1e-300)
            penalty = ridge + np.minimum(variance / np.maximum((steepness * reach[:, 0]) ** 2, 1e-150), 1e100)
        a, b, c = _sum(w, xx) + penalty, _sum(w, xy), _sum(w, yy) + penalty
        determinant = a * c - b * b
        slopes = []
        for rise in rises:
            along_x, along_y = _sum(w * rise, x), _sum(w * rise, y)
            slopes.append(((c * along_x - b * along_y) / determinant, (a * along_y - b * along_x) / determinant))
        if i < _REWEIGHTINGS:
            squared = sum(
                (rise - u[:, None] * x - v[:, None] * y) ** 2 for rise, (u, v) in zip(rises, slopes, strict=True)
            )
    return np.asarray(np.stack([np.stack(pair, -1) for pair in slopes], 1) / reach[..., None])


def _sum(x: Array, y: Array) -> Array:
    """The sums of products over the neighbours, (n,)."""
    return np.asarray(np.einsum("nk,nk->n", x, y))
