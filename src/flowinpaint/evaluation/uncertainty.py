"""Quality of predicted errors: sparsification, measured by AUSE, and calibration.

Sparsification removes pixels in order of decreasing uncertainty. If it predicts the error, the mean error of the rest
falls fast; an oracle that removes by the error itself is the lower bound (Ilg et al., *Uncertainty estimates and
multi-hypotheses networks for optical flow*, ECCV 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt

from flowinpaint.data.folder import Frame
from flowinpaint.errors import InputError
from flowinpaint.metrics import endpoint_error
from flowinpaint.result import Result

Map = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Curve = npt.NDArray[np.float64]

STEPS = 50
"""Number of points of the curves that an evaluation saves."""


@dataclass(frozen=True)
class Sparsification:
    """curve, oracle (n,): the mean error of the remaining pixels over that of all, when a fraction i / n is removed.

    `curve` removes by the uncertainty, `oracle` by the error itself.
    """

    curve: Curve
    oracle: Curve

    @property
    def removed(self) -> Curve:
        """The fractions (n,) of removed pixels, from 0 to just below 1."""
        return np.arange(self.curve.size) / self.curve.size

    @property
    def ause(self) -> float:
        """The area between curve and oracle: 0 for the best order."""
        above = self.curve - self.oracle
        return float(np.sum(np.diff(self.removed) * (above[1:] + above[:-1]) / 2))


def sparsification(error: Map, uncertainty: Map, valid: Mask | None = None, steps: int = 100) -> Sparsification:
    """Sparsification curves of an uncertainty (H, W) for a non-negative error (H, W).

    Only valid (H, W) pixels count; by default those whose error is not NaN. Only the order of the uncertainties
    matters; for equal ones the curve is the average over random orders. The curves are flat if all errors are 0.
    """
    errors, uncertainties = _valid_values(error, uncertainty, valid)
    if steps < 2:
        raise InputError(f"steps must be at least 2, got {steps}")
    return Sparsification(_curve(errors, uncertainties, steps), _curve(errors, errors, steps))


def distance_to_known(mask: Mask) -> Curve:
    """The distance (H, W) to the nearest known pixel of a mask (H, W): a baseline for uncertainties."""
    if not mask.any():
        raise InputError("mask must mark at least one known pixel, got none")
    return np.asarray(distance_transform_edt(~mask), np.float64)


@dataclass(frozen=True)
class UncertaintyQuality:
    """Means over the valid unknown pixels, and sparsification curves (STEPS,) over them.

    error, expected: the true and the expected endpoint error in px. within_1: the fraction of pixels with an error
    below 1 px, which the mean `confidence` should match. curve, distance, oracle: pixels removed by the expected error,
    the distance to the nearest known pixel, and the error itself.
    """

    error: float
    expected: float
    within_1: float
    confidence: float
    curve: list[float]
    distance: list[float]
    oracle: list[float]

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


def _curve(errors: Curve, uncertainties: Curve, steps: int) -> Curve:
    """The relative mean error (steps,) of the remaining errors (N,) when a fraction i / steps is removed."""
    if not errors.any():
        return np.ones(steps)
    count = errors.size
    _, group, sizes = np.unique(-uncertainties, return_inverse=True, return_counts=True)
    expected = np.bincount(group, errors) / sizes  # mean error of each group of equal uncertainty, the largest first
    # Sum from the end, so that a remaining sum is not a difference of large sums.
    remaining = np.cumsum(np.repeat(expected, sizes)[::-1])[::-1]
    gone = np.arange(steps) * count // steps
    means = remaining[gone] / (count - gone)
    return np.asarray(means / means[0])


def _valid_values(error: Map, uncertainty: Map, valid: Mask | None) -> tuple[Curve, Curve]:
    """Error and uncertainty (N,) of the valid pixels."""
    if error.ndim != 2 or uncertainty.shape != error.shape:
        raise InputError(f"error and uncertainty must both be (H, W), got {error.shape} and {uncertainty.shape}")
    counted = ~np.isnan(error) if valid is None else valid
    if counted.dtype != np.bool_ or counted.shape != error.shape:
        raise InputError(f"valid must be bool of shape {error.shape}, got {counted.dtype} {counted.shape}")
    errors, uncertainties = error[counted].astype(np.float64), uncertainty[counted].astype(np.float64)
    if not errors.size:
        raise InputError("valid must mark at least one pixel, got none")
    if not np.isfinite(errors).all() or errors.min() < 0:
        raise InputError("error must be finite and not negative at valid pixels")
    if np.isnan(uncertainties).any():
        raise InputError("uncertainty must not be NaN at valid pixels")
    return errors, uncertainties


def _numbers(curve: Curve) -> list[float]:
    return [round(value, 6) for value in curve.tolist()]
