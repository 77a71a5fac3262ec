"""The space in which a field is filled: linear, inverse (1/depth) or logarithmic; and bounds of its values.

On a plane 1/depth is linear in the image and depth is not, so depth is best filled in the inverse space.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from flowinpaint.diffusion.data_term import RELATIVE_FLOOR
from flowinpaint.errors import InputError, warn_user

Array = npt.NDArray[Any]
SpaceName = Literal["linear", "inverse", "log"]
_REACH = 2.0
"""Without bounds, an inverse or logarithmic fill stays within the range of the known values times this factor."""


@dataclass(frozen=True)
class Space:
    """A space of positive values f, filled as u = forward(f).

    slope: |df/du| as a function of f, by which errors of u become errors of f. range: of u, from that of f.
    """

    name: SpaceName
    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    slope: Callable[[Array], Array]


_SPACES = {
    "inverse": Space("inverse", lambda f: 1 / f, lambda u: 1 / u, lambda f: f * f),
    "log": Space("log", np.log, np.exp, lambda f: f),
}


def check_space(space: object, flow: Array, known: npt.NDArray[np.bool_]) -> Space | None:
    """The space, None for "linear"; InputError if it does not exist, or the known values (H, W, C) do not fit."""
    if space not in get_args(SpaceName):
        raise InputError(f"space must be one of {', '.join(get_args(SpaceName))}, got {space!r:.60}")
    if space == "linear":
        return None
    least = flow[known].min()
    if not least > 0:
        hint = "; if 0 means unknown, pass mask=flow > 0" if least == 0 else ""
        raise InputError(f"flow must be above 0 where known for space={space!r}, got {least:.4g}{hint}")
    return _SPACES[str(space)]


def check_bounds(bounds: object, space: Space | None) -> tuple[float, float] | None:
    """The bounds (low, high), infinite where one is None; InputError unless low < high."""
    if bounds is None:
        return None
    try:
        first, last = tuple(bounds)  # type: ignore[arg-type,var-annotated]
        low, high = -math.inf if first is None else float(first), math.inf if last is None else float(last)
    except (TypeError, ValueError):
        raise InputError(f"bounds must be a pair (low, high) of numbers or None, got {bounds!r:.60}") from None
    if not low < high:
        raise InputError(f"bounds must be a pair low < high, got {bounds!r:.60}")
    if space is not None and not high > 0:
        raise InputError(f"bounds must allow values above 0 for space={space.name!r}, got {bounds!r:.60}")
    return low, high


def warn_of_bounds(bounds: tuple[float, float] | None, flow: Array, known: npt.NDArray[np.bool_]) -> None:
    """Warn if known values are outside the bounds; InputError if all are."""
    count = 0 if bounds is None else int(((flow[known] < bounds[0]) | (flow[known] > bounds[1])).sum())
    if bounds is not None and count == flow[known].size:
        raise InputError(
            f"bounds must include known values, which are {flow[known].min():.4g} to {flow[known].max():.4g}, got "
            f"{bounds[0]:g} to {bounds[1]:g}"
        )
    if bounds is not None and count:
        warn_user(
            f"bounds: {count} of {flow[known].size} known values are outside {bounds[0]:g} to {bounds[1]:g}; they are "
            "kept, and no filled value goes there."
        )


def to_space(space: Space, flow: Array, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """The known values of a field (H, W, C) in a space, NaN elsewhere."""
    moved = np.full(flow.shape, np.nan, np.float32)
    moved[known] = space.forward(flow[known].astype(np.float64))
    return moved


def noise_in_space(space: Space, noise: Array, flow: Array, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """Standard deviations (H, W) in the unit of the field (H, W, C) as those of its values in a space."""
    scaled = np.zeros(known.shape, np.float32)
    scaled[known] = noise[known] / _slope(space, flow[known].astype(np.float64))
    return scaled


def from_space(space: Space, u: Array, flow: Array, known: npt.NDArray[np.bool_]) -> Array:
    """A filled field (H, W, C) in the unit of the flow; its values stay within the doubled range of the known ones."""
    low, high = float(flow[known].min()) / _REACH, float(flow[known].max()) * _REACH
    ends = sorted(space.forward(np.array([low, high], np.float64)))
    return space.backward(np.clip(u.astype(np.float64), *ends)).astype(np.float32)


def error_from_space(space: Space, error: Array, filled: Array) -> Array:
    """Expected errors (H, W) of values in a space as errors of the filled field (H, W, C), to first order.

    They are at most the range of the filled values, or their largest value if these are all equal.
    """
    moved = error * _slope(space, filled.astype(np.float64))
    spread, largest = float(np.ptp(filled)), float(np.max(filled))
    return np.asarray(np.minimum(moved, spread if spread > RELATIVE_FLOOR * largest else largest), np.float32)


def typical_noise(space: Space, noise: float, flow: Array, known: npt.NDArray[np.bool_]) -> float:
    """The noise of values in a space as that of the median known value."""
    return noise * float(np.median(_slope(space, flow[known].astype(np.float64))))


def _slope(space: Space, f: Array) -> Array:
    """The root mean square over the channels, the last axis, of |df/du|."""
    return np.asarray(np.sqrt(np.square(space.slope(f)).mean(-1)))
