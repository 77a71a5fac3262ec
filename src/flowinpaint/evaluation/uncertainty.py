"""Quality of a method's predicted errors on one frame: sparsification and calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.sparsification import Sparsification, distance_to_known, sparsification
from flowinpaint.result import Result

STEPS = 50

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class UncertaintyQuality:
    """Means over the valid unknown pixels, and sparsification curves (STEPS,) over them.

    error, expected: the true and the expected endpoint error in px. within_1: the share of pixels with an error below
    1 px, which the mean `confidence` should match. curve, distance, oracle: pixels removed by the expected error, the
    distance to the nearest known pixel, and the error itself.
    """

    error: float
    expected: float
    within_1: float
    confidence: float
    curve: Numbers
    distance: Numbers
    oracle: Numbers

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> UncertaintyQuality:
        """The inverse of `asdict` after JSON has turned tuples into lists."""
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)

    @property
    def by_expected(self) -> Sparsification:
        """The curves of the expected error."""
        return Sparsification(np.array(self.curve), np.array(self.oracle))

    @property
    def by_distance(self) -> Sparsification:
        """The curves of the distance to the nearest known pixel."""
        return Sparsification(np.array(self.distance), np.array(self.oracle))


def uncertainty_quality(result: Result, frame: Frame) -> UncertaintyQuality | None:
    """The quality of a result's expected errors; None without (finite) ones, or if no pixel was unknown."""
    counted = frame.valid & ~frame.mask
    if result.expected_error is None or result.confidence is None or not counted.any():
        return None
    if not np.isfinite(result.expected_error).all():
        return None
    error: npt.NDArray[np.float64] = np.linalg.norm(result.flow.astype(np.float64) - frame.truth, axis=-1)
    by_expected = sparsification(error, result.expected_error, counted, STEPS)
    by_distance = sparsification(error, distance_to_known(frame.mask), counted, STEPS)
    return UncertaintyQuality(
        error=float(error[counted].mean()),
        expected=float(result.expected_error[counted].mean(dtype=np.float64)),
        within_1=float((error[counted] < 1).mean()),
        confidence=float(result.confidence[counted].mean(dtype=np.float64)),
        curve=_numbers(by_expected.curve),
        distance=_numbers(by_distance.curve),
        oracle=_numbers(by_expected.oracle),
    )


def _numbers(curve: npt.NDArray[np.float64]) -> Numbers:
    return tuple(round(float(value), 6) for value in curve)
