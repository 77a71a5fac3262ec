"""`inpaint_points`: fill a field from points between pixels, such as matches and tracks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.api import inpaint
from flowinpaint.checks import Limit
from flowinpaint.errors import InputError
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.registry import all_methods, get_method
from flowinpaint.result import Result
from flowinpaint.subpixel import (
    Merged,
    at_pixel_centres,
    bilinear,
    expected_values,
    local_slopes,
    merge,
    neighbours_of,
)

Array = npt.NDArray[Any]

UNKNOWN = 1e9
"""Values beyond it mean unknown, as in .flo files."""
_LARGEST_CHANGE = 30.0
"""Largest change of log-odds between a point and its pixel."""
_SMALLEST_NOISE = 1e-3
"""Least noise for the odds of points that share a pixel, relative to the spread of the values."""


@dataclass(frozen=True)
class PointResults:
    """What `inpaint_points` made of each of its N points, in their order; numpy arrays.

    used: (N,) bool, False where a point is outside the image or not finite.
    inliers: (N,) float32, the estimated probability that the point is correct, NaN where it was not used; None if the
    points were not judged.
    fitted: (N, C) float32, the dense field at the position of the point, interpolated bilinearly, NaN where it was not
    used. Its difference from the value is the residual of the point.
    """

    used: npt.NDArray[np.bool_]
    inliers: npt.NDArray[np.float32] | None
    fitted: npt.NDArray[np.float32]


class _Points(NamedTuple):
    """The used points: points (N, 2), values (N, C), noise and confidence (N,) or None; float64."""

    points: Array
    values: Array
    noise: Array | None
    confidence: Array | None


def inpaint_points(
    image: Any,
    points: Any,
    values: Any,
    method: str | Path = DEFAULT_METHOD,
    device: str | torch.device = "auto",
    *,
    robust: bool = True,
    noise: Any = None,
    confidence: Any = None,
    **parameters: Any,
) -> Result:
    """Fill a field from values at points between pixels, guided by an image.

    Each value moves to the centre of its pixel along the local slope of the values, and points that share a pixel are
    merged by weight. Points outside the image or with a number that is not finite are skipped, with a warning.
    `result.points` has the `PointResults`.

    image: (H, W, 3) or (H, W), as for `inpaint`.
    points: (N, 2), x to the right and y down in px; (0, 0) is the centre of the first pixel, so that points with
    -0.5 <= x < W - 0.5 are inside.
    values: (N, C) or (N,), for example displacements `end - start`. Above 1e9 they are unknown.
    robust: judge the points, as matches always contain outliers. Methods that do not take weights need False.
    noise: standard deviation of the components of a correct value, a number or (N,).
    confidence: probability that a value is correct, a number or (N,) in [0, 1].
    The other arguments are those of `inpaint`.
    """
    if not isinstance(robust, bool | np.bool_):
        raise InputError(f"robust must be True or False, got {robust!r:.60}")
    _check_method(method, bool(robust))
    H, W = _size_of(image)
    given = _check(points, values, noise, confidence)
    used = _select(given, H, W)
    chosen = _Points(*(None if x is None else x[used] for x in given))  # type: ignore[arg-type]
    moved, merged = _on_pixels(chosen, W, bool(robust))
    maps = [None if x is None else _on_grid(x[:, None], merged.pixel, H, W)[..., 0] for x in merged[3:]]
    flow = _on_grid(merged.values, merged.pixel, H, W)
    result = inpaint(image, flow, None, method, device, robust=robust, noise=maps[0], confidence=maps[1], **parameters)

    arrays = result.arrays
    assert arrays is not None
    fitted = _for_all(used, bilinear(arrays.flow, chosen.points))
    inliers = None
    if arrays.inliers is not None:
        judged = bool(robust) or parameters.get("second") is not None
        of_pixels = arrays.inliers.reshape(-1)[merged.pixel]
        probability = (
            _inliers(of_pixels, moved, merged, arrays.flow, result.info["noise"])
            if judged
            else (np.ones(len(moved)) if chosen.confidence is None else chosen.confidence)
        )
        inliers = _for_all(used, probability)
    return replace(result, points=PointResults(used, inliers, fitted))


def _check_method(method: str | Path, robust: bool) -> None:
    if not robust:
        return
    found = get_method(method)
    if not found.takes_weights:
        fit = ", ".join(m.name for m in all_methods() if m.takes_weights)
        raise InputError(
            f"robust must be False for {found.name}, which cannot judge points; pass robust=False, or one of the "
            f"methods {fit}"
        )


def _size_of(image: Any) -> tuple[int, int]:
    shape = getattr(image, "shape", None)
    if shape is None or len(shape) not in (2, 3):
        got = type(image).__name__ if shape is None else tuple(shape)
        raise InputError(f"image must be an array of shape (H, W, 3) or (H, W), got {got}")
    return int(shape[0]), int(shape[1])


def _check(points: Any, values: Any, noise: Any, confidence: Any) -> _Points:
    """The arguments as arrays of float64; InputError unless their shapes fit."""
    place, value = _numbers("points", points), _numbers("values", values)
    if place.ndim == 3 and place.shape[1:] == (1, 2):  # as OpenCV's functions have them
        place = place[:, 0]
    if place.ndim != 2 or place.shape[1] != 2:
        raise InputError(f"points must have shape (N, 2), x and y, got {place.shape}{_hint(place.shape)}")
    count = len(place)
    if value.ndim == 3 and value.shape[0] == count and value.shape[1] == 1:
        value = value[:, 0]
    if value.ndim == 3:
        raise InputError(
            f"values must have shape (N, C) or (N,), one row per point, got {value.shape}; a field (H, W, C) is for "
            "inpaint"
        )
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim != 2 or value.shape[1] < 1:
        raise InputError(f"values must have shape (N, C) or (N,), got {value.shape}")
    if len(value) != count:
        hint = "; pass values.T" if value.shape[1] == count else ""
        raise InputError(f"values must have one row for each of the {count} points, got {value.shape}{hint}")
    if count == 0:
        raise InputError("points must have at least one row, got none")
    return _Points(
        place,
        value,
        _per_point("noise", noise, count, Limit.WEIGHT),
        _per_point("confidence", confidence, count, Limit.CHANCE),
    )


def _hint(shape: tuple[int, ...]) -> str:
    """What to pass instead of points of this shape."""
    if len(shape) == 2 and shape[1] == 4:
        return "; for rows x1 y1 x2 y2 pass points[:, :2] as points and points[:, 2:] - points[:, :2] as values"
    if len(shape) == 2 and shape[0] == 2:
        return "; pass points.T"
    if shape == (2,):
        return "; pass [points]"
    if len(shape) == 3:
        return "; a field (H, W, C) is for inpaint"
    return ""


def _numbers(name: str, x: Any) -> Array:
    """Lists, tensors and arrays as a new float64 array."""
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu().numpy()
    if isinstance(x, np.ma.MaskedArray):
        x = x.astype(np.float64).filled(np.nan)
    try:
        array = np.asarray(x)
    except ValueError:
        raise InputError(f"{name} must be an array of numbers, got rows of different lengths") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be an array of real numbers, got {array.dtype}")
    return array.astype(np.float64)


def _per_point(name: str, x: Any, count: int, limit: Limit) -> Array | None:
    """A number or (N,) as (N,); NaN and infinity stay, since they only exclude their points."""
    if x is None:
        return None
    array = _numbers(name, x)
    if array.ndim == 2 and array.shape == (count, 1):
        array = array[:, 0]
    if array.shape not in ((), (count,)):
        raise InputError(f"{name} must be a number or have shape ({count},), one per point, got {array.shape}")
    finite = array[np.isfinite(array)]
    wrong = finite[(finite < 0) | ((finite > 1) & (limit is Limit.CHANCE))]
    if wrong.size or not finite.size:
        got = wrong.flat[0] if wrong.size else array.flat[0]
        raise InputError(f"{name} must be {limit.value[0]} at each point, got {got}")
    return np.broadcast_to(array, count).copy()


def _select(given: _Points, H: int, W: int) -> npt.NDArray[np.bool_]:
    """Which points can be used, (N,); warns of the others."""
    points, values, *hints = given
    finite = np.isfinite(points).all(1) & (np.abs(values) <= UNKNOWN).all(1)
    for hint in hints:
        if hint is not None:
            finite &= np.isfinite(hint)

    def within(x: Array, y: Array) -> npt.NDArray[np.bool_]:
        return np.asarray((x >= -0.5) & (x < W - 0.5) & (y >= -0.5) & (y < H - 0.5))

    x, y = points.T
    used = finite & within(x, y)
    outside, bad = int((finite & ~used).sum()), int((~finite).sum())
    swapped = bool(2 * outside > finite.sum() and within(y, x)[finite].all())
    hint = "; points are x, y, so pass points[:, ::-1] for rows and columns" if swapped else ""
    size = f"the image of {W}x{H} pixels (width x height)"
    if not used.any():
        raise InputError(
            f"points must have a finite one inside {size}, got {outside} outside and {bad} not finite{hint}"
        )
    if outside or bad:
        parts = [f"{outside} outside the image"] * (outside > 0) + [f"{bad} that are not finite"] * (bad > 0)
        noun = "point" if outside + bad == 1 else "points"
        sentence = f"inpaint_points skipped {outside + bad} {noun}: {' and '.join(parts)}{hint}."
        warnings.warn(sentence.replace("1 that are", "1 that is"), stacklevel=3)
    if _look_like_end_points(points[used], values[used]):
        warnings.warn(
            "The values look like end points. inpaint_points needs displacements: pass end - start.", stacklevel=3
        )
    return used


def _look_like_end_points(points: Array, values: Array) -> bool:
    """Whether the values follow the positions, one to one, as no motion does."""
    if values.shape[1] != 2 or len(values) < 8:
        return False
    spread, of_difference = (np.abs(x - np.median(x, axis=0)).mean() for x in (values, values - points))
    return bool(of_difference < 0.3 * spread)


def _on_pixels(chosen: _Points, W: int, robust: bool) -> tuple[Array, Merged]:
    """The values (N, C) moved to pixel centres, and merged."""
    points, values, noise, confidence = chosen
    weight = confidence
    if noise is not None and noise.max() > 0:
        weight = (1 if weight is None else weight) / np.maximum(noise / noise.max(), 1e-3) ** 2
    near = neighbours_of(points)
    slope = local_slopes(values, weight, near)
    moved = at_pixel_centres(points, values, slope)
    column, row = np.floor(points + 0.5).astype(np.int64).T
    pixel = row * W + column
    residual = None
    if robust and len(shared := _sharing(pixel)):
        residual = np.zeros(len(pixel))
        residual[shared] = np.linalg.norm(values[shared] - expected_values(values, slope, near, shared), axis=1)
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
