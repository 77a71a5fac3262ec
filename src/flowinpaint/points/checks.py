"""`GivenPoints`: the arguments of `inpaint_points`, checked, and which of its points can be used."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.arguments.arrays import image_of, to_numpy
from flowinpaint.checks import Limit, is_known
from flowinpaint.errors import InputError, warn_user

Array = npt.NDArray[Any]

_MOST_PIXELS = 2**28


class GivenPoints(NamedTuple):
    """Points: points (N, 2), values (N, C), noise and confidence (N,) or None; float64."""

    points: Array
    values: Array
    noise: Array | None
    confidence: Array | None


def size_of(image: Any, size: tuple[int, int] | None) -> tuple[int, int]:
    """The size (H, W) of the field: that of the image, or `size` without one."""
    if image is None:
        if size is None:
            raise InputError("size must be (H, W) if image is None, got None")
        try:
            H, W = map(int, size)
        except (TypeError, ValueError):
            raise InputError(f"size must be (H, W), got {size!r:.60}") from None
        if not (H > 0 and W > 0 and H * W <= _MOST_PIXELS):
            raise InputError(f"size must be (H, W) of at most {_MOST_PIXELS} pixels, got {size!r:.60}")
        return H, W
    shape = image_of(image)[0].shape
    if len(shape) not in (2, 3):
        raise InputError(f"image must have shape (H, W, 3) or (H, W), got {shape}")
    if size is not None and tuple(size) != shape[:2]:
        raise InputError(f"size must be left out or that of the image, {shape[:2]}, got {size!r:.60}")
    return int(shape[0]), int(shape[1])


def check_points(points: Any, values: Any, noise: Any, confidence: Any) -> tuple[GivenPoints, bool]:
    """The arguments as arrays of float64, and whether the values are (N,); InputError unless their shapes fit."""
    place, value = _numbers("points", points, "(N, 2)"), _numbers("values", values, "(N, C) or (N,)")
    if place.ndim == 3 and place.shape[1:] == (1, 2):  # as OpenCV's functions have them
        place = place[:, 0]
    if place.ndim != 2 or place.shape[1] != 2:
        raise InputError(f"points must have shape (N, 2), x and y, got {place.shape}{_hint(place.shape)}")
    count, flat = len(place), value.ndim == 1
    if value.ndim == 3 and value.shape[:2] == (count, 1):
        value = value[:, 0]
    if value.ndim == 3:
        raise InputError(
            f"values must have shape (N, C) or (N,), one row per point, got {value.shape}; a field (H, W, C) is for "
            "inpaint"
        )
    if flat:
        value = value[:, None]
    if value.ndim != 2 or value.shape[1] < 1:
        raise InputError(f"values must have shape (N, C) or (N,), got {value.shape}")
    if len(value) != count:
        hint = "; pass values.T" if value.shape[1] == count else ""
        raise InputError(f"values must have one row for each of the {count} points, got {value.shape}{hint}")
    if count == 0:
        raise InputError("points must have at least one row, got none")
    sigma = _per_point("noise", noise, count, Limit.WEIGHT)
    return GivenPoints(place, value, sigma, _per_point("confidence", confidence, count, Limit.CHANCE)), flat


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


def _numbers(name: str, x: Any, shape: str) -> Array:
    """Numbers, lists, tensors and arrays as a float64 array."""
    array = to_numpy(name, np.asarray(x) if isinstance(x, int | float) else x, shape)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be an array of real numbers {shape}, got {array.dtype}")
    return array.astype(np.float64)


def _per_point(name: str, x: Any, count: int, limit: Limit) -> Array | None:
    """A number or (N,) as (N,); NaN and infinity stay, since they only exclude their points."""
    if x is None:
        return None
    array = _numbers(name, x, "(N,)")
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


def select(given: GivenPoints, H: int, W: int) -> npt.NDArray[np.bool_]:
    """Which points can be used, (N,); warns of the others."""
    points, values, *hints = given
    finite = np.isfinite(points).all(1) & is_known(values).all(1)
    for known in hints:
        if known is not None:
            finite &= np.isfinite(known)

    def within(x: Array, y: Array) -> npt.NDArray[np.bool_]:
        return np.asarray((x >= -0.5) & (x < W - 0.5) & (y >= -0.5) & (y < H - 0.5))

    x, y = points.T
    used = finite & within(x, y)
    outside, bad = int((finite & ~used).sum()), int((~finite).sum())
    swapped = bool(2 * outside > finite.sum() and within(y, x)[finite].all())
    hint = "; points are x, y, so pass points[:, ::-1] for rows and columns" if swapped else ""
    if not used.any():
        raise InputError(
            f"points must have a finite one inside the {W}x{H} pixels (width x height), got {outside} outside and "
            f"{bad} not finite{hint}"
        )
    if outside or bad:
        parts = [f"{outside} outside the image"] * (outside > 0) + [f"{bad} that are not finite"] * (bad > 0)
        noun = "point" if outside + bad == 1 else "points"
        sentence = f"inpaint_points skipped {outside + bad} {noun}: {' and '.join(parts)}{hint}."
        warn_user(sentence.replace("1 that are", "1 that is"))
    if _look_like_end_points(points[used], values[used]):
        warn_user("The values look like end points. inpaint_points needs displacements: pass end - start.")
    return used


def _look_like_end_points(points: Array, values: Array) -> bool:
    """Whether the values follow the positions, one to one, as no motion does."""
    if values.shape[1] != 2 or len(values) < 8:
        return False
    spread, of_difference = (np.abs(x - np.median(x, axis=0)).mean() for x in (values, values - points))
    return bool(of_difference < 0.3 * spread)
