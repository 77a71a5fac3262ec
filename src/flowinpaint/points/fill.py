"""`inpaint_points`: fill a field from points between pixels, such as matches and tracks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.api import inpaint
from flowinpaint.arguments import spaces
from flowinpaint.arguments.spaces import SpaceName
from flowinpaint.errors import InputError
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.functions import OwnFill
from flowinpaint.methods.registry import all_methods, get_method
from flowinpaint.points.checks import GivenPoints, check_points, select, size_of
from flowinpaint.points.subpixel import (
    Merged,
    PointSet,
    at_pixel_centres,
    bilinear,
    expected_values,
    local_slopes,
    merge,
)
from flowinpaint.result import ProgressCallback, Result

Array = npt.NDArray[Any]

_LARGEST_CHANGE = 30.0
"""Largest change of log-odds between a point and its pixel."""
_SMALLEST_NOISE = 1e-3
"""Least noise for the odds of points that share a pixel, relative to the spread of the values."""


@dataclass(frozen=True)
class PointResults:
    """What `inpaint_points` made of each of its N points, in their order; tensors if the values were one.

    used: (N,) bool, False where a point is outside the image or not finite.
    inliers: (N,) float32, the estimated probability that the point is correct, NaN where it was not used; None if the
    points were not judged.
    fitted: float32 of the shape of the values, the dense field at the position of the point, interpolated bilinearly;
    NaN where it was not used. `values - fitted` are the residuals.
    """

    used: Any
    inliers: Any
    fitted: Any


def inpaint_points(
    image: Any,
    points: Any,
    values: Any,
    method: str | Path | OwnFill = DEFAULT_METHOD,
    device: str | torch.device = "auto",
    *,
    robust: bool = True,
    noise: Any = None,
    confidence: Any = None,
    second: Any = None,
    size: tuple[int, int] | None = None,
    fill_where: Any = None,
    image_where: Any = None,
    max_gap: float | None = None,
    space: SpaceName = "linear",
    bounds: tuple[float | None, float | None] | None = None,
    progress: ProgressCallback | None = None,
    **parameters: Any,
) -> Result:
    """Fill a field from values at points between pixels, guided by an image.

    Each value moves to the centre of its pixel along the local slope of the values, and points that share a pixel are
    merged by weight. Points outside the image or with a number that is not finite are skipped, with a warning.
    `result.points` has the `PointResults`.

    image: (H, W, 3) or (H, W), as for `inpaint`.
    points: (N, 2), x to the right and y down in px; (0, 0) is the centre of the first pixel, so that points with
    -0.5 <= x < W - 0.5 are inside.
    values: (N, C), for example displacements `end - start`, or (N,) for a field (H, W). Above 1e9 they are unknown.
    robust: detect outliers and estimate the noise; True by default, because matches usually contain outliers. Methods
    that do not accept a weight per vector need False.
    noise: standard deviation of the components of a correct value, a number or (N,).
    confidence: probability that a value is correct, a number or (N,) in [0, 1].
    size: (H, W) of the field if the image is None.
    The other arguments are those of `inpaint`.
    """
    if not isinstance(robust, bool | np.bool_):
        raise InputError(f"robust must be True or False, got {robust!r:.60}")
    judged = bool(robust) or second is not None
    _check_method(method, bool(robust))
    H, W = size_of(image, size)
    given, flat = check_points(points, values, noise, confidence)
    used = select(given, H, W)
    chosen = GivenPoints(*(None if x is None else x[used] for x in given))  # type: ignore[arg-type]
    moved, merged = _on_pixels(chosen, W, judged, space, bounds)
    sigma, p = (None if x is None else _on_grid(x[:, None], merged.pixel, H, W)[..., 0] for x in merged[3:])
    grid = _on_grid(merged.values, merged.pixel, H, W)
    flow = grid[..., 0] if flat else grid
    result = inpaint(
        image,
        torch.from_numpy(flow).to(values.device) if isinstance(values, torch.Tensor) else flow,
        np.isfinite(grid[..., 0]),
        method,
        device,
        robust=robust,
        noise=sigma,
        confidence=p,
        second=second,
        fill_where=fill_where,
        image_where=image_where,
        max_gap=max_gap,
        space=space,
        bounds=bounds,
        progress=progress,
        **parameters,
    )
    arrays = result.arrays
    assert arrays is not None
    inliers = None
    if arrays.inliers is not None:
        if judged:
            of_pixels = arrays.inliers.reshape(-1)[merged.pixel]
            probability = _inliers(of_pixels, moved, merged, arrays.flow, result.info["noise"])
        else:
            probability = np.ones(len(moved)) if chosen.confidence is None else chosen.confidence
        inliers = _for_all(used, probability)
    fitted = _for_all(used, bilinear(arrays.flow, chosen.points))
    found = used, inliers, fitted[:, 0] if flat else fitted
    if isinstance(values, torch.Tensor):
        found = tuple(None if x is None else torch.from_numpy(x).to(values.device) for x in found)  # type: ignore[assignment]
    return replace(result, points=PointResults(*found))


def _check_method(method: str | Path | OwnFill, robust: bool) -> None:
    if not robust:
        return
    found = get_method(method)
    if not found.takes_weights:
        fit = ", ".join(m.name for m in all_methods() if m.takes_weights)
        raise InputError(
            f"robust must be False for {found.name}, which cannot judge points; pass robust=False, or one of the "
            f"methods {fit}"
        )


def _on_pixels(chosen: GivenPoints, W: int, robust: bool, space: SpaceName, bounds: Any) -> tuple[Array, Merged]:
    """The values (N, C) moved to pixel centres, and merged."""
    points, values, noise, confidence = chosen
    weight = confidence
    if noise is not None and noise.max() > 0:
        weight = (1 if weight is None else weight) / np.maximum(noise / noise.max(), 1e-3) ** 2
    positive = spaces.check_space(space, values, np.ones(len(values), np.bool_))
    limits = spaces.check_bounds(bounds, positive)
    point_set = PointSet(points)
    u = values if positive is None else positive.forward(values)
    slope = local_slopes(point_set, u, weight)
    moved = at_pixel_centres(points, u, slope)
    if positive is not None:
        with np.errstate(all="ignore"):
            moved = positive.backward(moved)
            ratio = moved / values
        moved = np.where((ratio > 0.5) & (ratio < 2), moved, values)
    if limits is not None:
        moved = np.clip(moved, np.minimum(values, limits[0]), np.maximum(values, limits[1]))
    column, row = np.floor(points + 0.5).astype(np.int64).T
    pixel = row * W + column
    residual = None
    if robust and len(shared := _sharing(pixel)):
        residual = np.zeros(len(pixel))
        residual[shared] = np.linalg.norm(u[shared] - expected_values(point_set, u, slope, shared), axis=1)
    return moved, merge(pixel, moved, noise, confidence, residual)


def _sharing(pixel: Array) -> Array:
    """The indices of points that share their pixel."""
    order = np.argsort(pixel, kind="stable")
    same = pixel[order][1:] == pixel[order][:-1]
    return np.sort(order[np.append(same, False) | np.insert(same, 0, False)])


def _on_grid(values: Array, pixel: Array, H: int, W: int) -> npt.NDArray[np.float32]:
    """Values (M, C) of pixels (M,) as an array (H, W, C), NaN elsewhere."""
    grid = np.full((H * W, values.shape[1]), np.nan, np.float32)
    grid[pixel] = values
    return grid.reshape(H, W, -1)


def _inliers(of_pixels: Array, moved: Array, merged: Merged, flow: Array, noise: float | None) -> Array:
    """Probabilities (N,) of the points from those of their pixels (M,).

    A point that shares its pixel gets the odds of the pixel, changed by how much more or less its value differs from
    the filled field than the merged value.
    """
    p = of_pixels.astype(np.float64)[merged.point]
    if noise is None or len(merged.pixel) == len(moved):
        return p
    at = flow.reshape(-1, flow.shape[-1])[merged.pixel]
    per_pair = 2 / flow.shape[-1]
    off_pixel = ((merged.values - at) ** 2).sum(1)[merged.point] * per_pair
    off = ((moved - at[merged.point]) ** 2).sum(1) * per_pair
    spread = float(np.abs(merged.values - np.median(merged.values, axis=0)).mean())
    variance = max(noise, _SMALLEST_NOISE * spread, 1e-30) ** 2
    change = np.clip((off - off_pixel) / (4 * variance), -_LARGEST_CHANGE, _LARGEST_CHANGE)
    with np.errstate(divide="ignore"):
        odds = np.log(p) - np.log1p(-p) - change
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -500, 500))))


def _for_all(used: npt.NDArray[np.bool_], x: Array) -> npt.NDArray[np.float32]:
    """Values of the used points as values of all points, NaN where they were not used."""
    full = np.full((len(used), *x.shape[1:]), np.nan, np.float32)
    full[used] = x
    return full
