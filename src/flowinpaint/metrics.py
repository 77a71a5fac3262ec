"""Error metrics of flow fields."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.arguments.arrays import field_of, map_of
from flowinpaint.errors import InputError

_Array = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]

# KITTI's rule: an estimate is wrong if its error exceeds both.
_OUTLIER_PIXELS = 3.0
_OUTLIER_FRACTION = 0.05


def endpoint_error(flow: Any, truth: Any) -> _Array:
    """The Euclidean distance (H, W) in px between two fields (H, W, C).

    The error is inf where the flow is not finite but the truth is, and nan where the truth is not finite.
    """
    estimate, target = (
        x.astype(np.float64) if isinstance(x, np.ndarray) and x.ndim == 3 else field_of(name, x).astype(np.float64)
        for name, x in (("flow", flow), ("truth", truth))
    )
    if estimate.shape != target.shape:
        raise InputError(f"flow must have the shape of truth, {target.shape}, got {estimate.shape}")
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.asarray(np.linalg.norm(estimate - target, axis=2), np.float64)
    error[~np.isfinite(error)] = np.inf
    error[~np.isfinite(target).all(axis=2)] = np.nan
    return error


def epe(flow: Any, truth: Any, valid: Any = None) -> float:
    """The mean endpoint error in px of a field (H, W, C) over the valid pixels (H, W).

    The default for valid is where the truth is finite. The result is inf if the flow is not finite at a valid pixel.
    """
    error, _ = _valid_errors(flow, truth, valid)
    return float(error.mean())


def fl_outliers(flow: Any, truth: Any, valid: Any = None) -> float:
    """The percentage of the valid pixels (H, W) whose error exceeds 3 px and 5 % of the true magnitude.

    The default for valid is where the truth is finite. A non-finite flow is wrong.
    """
    error, counted = _valid_errors(flow, truth, valid)
    magnitude = np.linalg.norm(field_of("truth", truth)[counted].astype(np.float64), axis=1)
    wrong = (error > _OUTLIER_PIXELS) & (error > _OUTLIER_FRACTION * magnitude)
    return float(100 * wrong.mean())


def errors_over(flow: Any, truth: Any, pixels: float, valid: Any = None) -> float:
    """The percentage of the valid pixels (H, W) whose error exceeds a number of pixels.

    The default for valid is where the truth is finite. A non-finite flow is wrong.
    """
    error, _ = _valid_errors(flow, truth, valid)
    return float(100 * (error > pixels).mean())


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """Exp of the mean log; 0 if one of the values is 0, None if one is missing."""
    present = [value for value in values if value is not None]
    if not present or len(present) < len(values):
        return None
    return 0.0 if min(present) == 0 else math.exp(sum(map(math.log, present)) / len(present))


def _valid_errors(flow: Any, truth: Any, valid: Any) -> tuple[_Array, _Mask]:
    """The errors (N,) of the pixels that count, and the mask (H, W) of these."""
    error = endpoint_error(flow, truth)
    known = ~np.isnan(error)
    counted = known if valid is None else map_of("valid", valid)
    if counted.dtype != np.bool_ or counted.shape != error.shape:
        raise InputError(f"valid must be bool of shape {error.shape}, got {counted.dtype} {counted.shape}")
    if count := np.count_nonzero(counted & ~known):
        raise InputError(f"valid must be False where truth is not finite, got {count} True pixels there")
    if not counted.any():
        raise InputError("valid must have at least one pixel with a finite truth, got none")
    return error[counted], counted
