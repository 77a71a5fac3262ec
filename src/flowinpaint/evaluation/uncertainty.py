"""Quality of a method's predicted errors on one frame: sparsification and calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.sparsification import Sparsification, distance_to_known, sparsification
from flowinpaint.metrics import endpoint_error
from flowinpaint.result import Result

STEPS = 50

Numbers = list[float]


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
    expected, confidence = result.expected_error, result.confidence
    if expected is None or confidence is None or not np.isfinite(expected).all() or not counted.any():
        return None
    error = endpoint_error(result.flow, frame.truth)
    by_expected = sparsification(error, expected, counted, STEPS)
    by_distance = sparsification(error, distance_to_known(frame.mask), counted, STEPS)
    return UncertaintyQuality(
        error=float(error[counted].mean()),
        expected=float(expected[counted].mean(dtype=np.float64)),
        within_1=float((error[counted] < 1).mean()),
        confidence=float(confidence[counted].mean(dtype=np.float64)),
        curve=_numbers(by_expected.curve),
        distance=_numbers(by_distance.curve),
        oracle=_numbers(by_expected.oracle),
    )


def _numbers(curve: npt.NDArray[np.float64]) -> Numbers:
    return [round(value, 6) for value in curve.tolist()]
