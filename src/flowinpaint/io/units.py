"""Units of 16-bit PNGs of one channel: the value that one level stands for."""

from __future__ import annotations

import math
import numbers
from pathlib import Path

import numpy as np

from flowinpaint.errors import InputError
from flowinpaint.io.arrays import Array, Flow, Mask
from flowinpaint.io.files import StrPath

Unit = str | float
"""A key of UNITS, or the value of one level."""

UNITS = {"m/256": 1 / 256, "mm": 1e-3, "cm": 1e-2, "m": 1.0, "px/256": 1 / 256, "px": 1.0}
"""The value of one level, in metres or px."""

LEVELS = 65535
_TOLERANCE = 1e-6
"""Relative rounding error of float32 values near one level."""


class MissingUnitError(InputError):
    """A 16-bit PNG of one channel is read or written without a unit."""

    def __init__(self, path: StrPath, option: str | None = None) -> None:
        """option: the command-line option that takes the unit."""
        self.path = path
        names = "m/256", "mm", "px/256"
        depth, millimetres, disparity = names if option else map(repr, names)
        depth = f"{option} {depth}" if option else f"unit={depth}"
        super().__init__(
            f"{path}: a 16-bit PNG of one channel needs a unit; pass {depth} (KITTI depth), {millimetres} "
            f"(RealSense, Kinect, NYU) or {disparity} (KITTI disparity)"
        )


def check_unit(path: StrPath, unit: Unit | None, name: str = "unit") -> float:
    """The value of one level in a 16-bit PNG of one channel; an error without a valid unit."""
    if unit is None:
        raise MissingUnitError(path)
    return unit_value(unit, name)


def unit_value(unit: object, name: str = "unit") -> float:
    """The value of one level in this unit; InputError unless it is a unit."""
    if isinstance(unit, str) and unit in UNITS:
        return UNITS[unit]
    if not isinstance(unit, bool) and isinstance(unit, numbers.Real) and 0 < float(unit) < math.inf:
        return float(unit)
    raise InputError(f"{name} must be {', '.join(UNITS)} or a number above 0, the value of one level, got {unit!r:.60}")


def parse_unit(text: str | None, name: str = "--unit") -> Unit | None:
    """The unit that an option names; a number is the value of one level."""
    if text is None:
        return None
    try:
        unit: Unit = float(text)
    except ValueError:
        unit = text
    unit_value(unit, name)
    return unit


def png_unit(path: StrPath, unit: Unit | None) -> Unit | None:
    """The unit for a PNG, None for other formats, which hold the values themselves."""
    return unit if Path(path).suffix.lower() == ".png" else None


def values_of(levels: Array, step: float) -> Flow:
    """The values (H, W, 1) float32 of levels (H, W) uint16, NaN for level 0."""
    values = (levels.astype(np.float64) * step).astype(np.float32)
    values[levels == 0] = np.nan
    return values[..., None]


def levels_of(values: Flow, valid: Mask, step: float) -> tuple[Array, Mask]:
    """Levels (H, W) uint16 of values (H, W, 1), 0 where not valid, and the valid values that have no level."""
    with np.errstate(over="ignore"):
        exact = np.where(valid[..., None], values, step).astype(np.float64) / step
        levels = np.rint(exact)
    bad = (exact < 1 - _TOLERANCE) | (levels > LEVELS)
    return np.where(valid & ~bad[..., 0], levels[..., 0], 0).astype(np.uint16), bad


def value_range(step: float) -> tuple[float, float]:
    """The smallest and the largest value that a PNG can hold."""
    return step, LEVELS * step
