"""`complete_depth`: dense depth from an image and points of known depth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.api import inpaint
from flowinpaint.depth.restrain import restrain
from flowinpaint.depth.visibility import check_points, visible_points
from flowinpaint.errors import InputError
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.points.checks import size_of
from flowinpaint.points.fill import PointResults
from flowinpaint.points.subpixel import bilinear
from flowinpaint.result import ProgressCallback, Result


def complete_depth(
    image: Any,
    uv: npt.ArrayLike,
    depth: npt.ArrayLike,
    method: str | Path = DEFAULT_METHOD,
    device: str | torch.device = "auto",
    *,
    robust: bool = False,
    noise: float | npt.ArrayLike | None = None,
    confidence: float | npt.ArrayLike | None = None,
    visible_only: bool = True,
    bounds: tuple[float | None, float | None] | None = None,
    progress: ProgressCallback | None = None,
    **parameters: Any,
) -> Result:
    """Fill the depth of an image from points.

    Points behind a nearer object are removed (`visible_points`), the others are filled in inverse depth, and where
    they are dense and the method expects a large error, its result is held to plain interpolations.

    image: (H, W, 3) or (H, W), as for `inpaint`. uv: (M, 2), sub-pixel x, y, and depth: (M,), above 0, in any unit, as
    `project`, `read_colmap` and `depth_points` return them. method, device, progress, parameters: as for `inpaint`.
    robust: also judge the points by their neighbours, for points that may be wrong, such as those of COLMAP.
    noise, confidence: standard deviation of the depth, and probability that it is correct, a number or (M,).
    visible_only: False keeps points behind nearer objects. bounds: smallest and largest depth of the result, by default
    those of the visible points.

    `result.flow` (H, W, 1) and `result.expected_error` (H, W) are numpy arrays in the unit of depth. A pixel with a
    visible point keeps its depth, of several points that of the nearest, unless `robust`, `noise` or `confidence` says
    otherwise. `result.points` has for each point whether the camera sees it (`used`), `inliers`, and the depth there
    (`fitted`).
    """
    size = size_of(image, None)
    places, distance = check_points(uv, depth)
    visible = visible_points(places, distance) if visible_only else np.ones(len(places), np.bool_)
    front = np.flatnonzero(visible)[_front(places[visible], distance[visible], size)]

    def on_grid(values: npt.ArrayLike | None, name: str) -> Any:
        if values is None or np.ndim(values) == 0:
            return values
        array = np.asarray(values, np.float32)
        if array.shape != distance.shape:
            raise InputError(f"{name} must be a number or have shape {distance.shape}, got {array.shape}")
        return _placed(places[front], array[front], size)

    sparse = _placed(places[front], distance[front], size)[..., None]
    if bounds is None:
        bounds = float(np.nanmin(sparse)), float(np.nanmax(sparse))
        bounds = bounds if bounds[0] < bounds[1] else None
    result = inpaint(
        image,
        sparse,
        method=method,
        device=device,
        robust=robust,
        noise=on_grid(noise, "noise"),
        confidence=on_grid(confidence, "confidence"),
        space="inverse",
        bounds=bounds,
        progress=progress,
        **parameters,
    )
    result = result if result.inliers is not None else restrain(result)
    arrays = result.arrays
    assert arrays is not None
    inliers = None
    if arrays.inliers is not None:
        inliers = np.full(len(places), np.nan, np.float32)
        columns, rows = np.rint(places[visible]).astype(np.intp).T
        inliers[visible] = arrays.inliers[rows, columns]
    fitted = bilinear(arrays.flow, places)[:, 0].astype(np.float32)
    return replace(result, points=PointResults(visible, inliers, fitted))


def depth_points(
    depth: npt.NDArray[np.floating[Any]], valid: npt.NDArray[np.bool_] | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """The points of a depth image (H, W) or (H, W, 1): uv (M, 2), x, y, and depth (M,), where it is finite and above 0.

    valid: (H, W) bool, False where the depth is not to be used.
    """
    field = np.asarray(depth)
    if field.ndim not in (2, 3) or field.shape[2:] not in ((), (1,)) or field.dtype.kind != "f":
        raise InputError(f"depth must be a floating array (H, W) or (H, W, 1), got {field.dtype} {field.shape}")
    field = field.reshape(field.shape[:2])
    if valid is not None and (np.shape(valid) != field.shape or np.asarray(valid).dtype != np.bool_):
        raise InputError(f"valid must be bool {field.shape}, got {np.asarray(valid).dtype} {np.shape(valid)}")
    used = np.isfinite(field) & (field > 0) & (True if valid is None else valid)
    rows, columns = np.nonzero(used)
    return np.column_stack([columns, rows]).astype(np.float64), field[used].astype(np.float32)


def depth_image(uv: npt.ArrayLike, depth: npt.ArrayLike, size: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The depths of points as an image (H, W, 1), NaN where no point is; of several in a pixel, the nearest."""
    places, distance = check_points(uv, depth)
    front = _front(places, distance, size)
    return _placed(places[front], distance[front], size)[..., None]


def _front(places: npt.NDArray[np.float64], distance: npt.NDArray[Any], size: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """The index of the nearest point in each pixel that has one."""
    if not len(places):
        raise InputError("uv must have at least one point, got none")
    cells = np.rint(places).astype(np.intp)
    if (outside := (cells < 0).any(axis=1) | (cells >= (size[1], size[0])).any(axis=1)).any():
        x, y = places[outside][0]
        raise InputError(
            f"uv must be inside the image of {size[1]}x{size[0]} pixels, got {outside.sum()} points outside, the first "
            f"at x {x:.1f}, y {y:.1f}"
        )
    order = np.argsort(distance, kind="stable")
    _, first = np.unique(cells[order, 1] * size[1] + cells[order, 0], return_index=True)
    return order[first]


def _placed(
    places: npt.NDArray[np.float64], values: npt.NDArray[Any], size: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    """Values of points, of which no two share a pixel, as a map (H, W), NaN elsewhere."""
    field = np.full(size[:2], np.nan, np.float32)
    columns, rows = np.rint(places).astype(np.intp).T
    field[rows, columns] = values
    return field
