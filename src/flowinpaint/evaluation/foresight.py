"""How well a method foresaw its errors on a frame: sparsification, and whether what it expected is what came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.sparsification import Sparsification, distance_to_known, sparsification
from flowinpaint.result import Result

STEPS = 50

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Foresight:
    """Over the valid pixels that were not given, means: of the error, of the error that was expected, of the share
    within 1 px, of the confidence; and sparsification curves (STEPS,) by the expected error, by the distance to the
    nearest given pixel, and by the error itself, the oracle's.
    """

    error: float
    expected: float
    within_1: float
    confidence: float
    curve: Numbers
    distance: Numbers
    oracle: Numbers

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Foresight:
        """From what `asdict` makes of it, after JSON has made lists of its tuples."""
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)

    @property
    def by_expected(self) -> Sparsification:
        """The curves of the expected error."""
        return _curves(self.curve, self.oracle)

    @property
    def by_distance(self) -> Sparsification:
        """The curves of the distance to the nearest given pixel."""
        return _curves(self.distance, self.oracle)


def foresight_of(result: Result, frame: Frame) -> Foresight | None:
    """None if nothing was to be filled, or the method does not tell what error it expects; from one vector none can."""
    counted = frame.valid & ~frame.mask
    if result.expected_error is None or result.confidence is None or not counted.any():
        return None
    if not np.isfinite(result.expected_error).all():
        return None
    error: npt.NDArray[np.float64] = np.linalg.norm(result.flow.astype(np.float64) - frame.truth, axis=-1)
    by_expected = sparsification(error, result.expected_error, counted, STEPS)
    by_distance = sparsification(error, distance_to_known(frame.mask), counted, STEPS)
    return Foresight(
        error=float(error[counted].mean()),
        expected=float(result.expected_error[counted].mean(dtype=np.float64)),
        within_1=float((error[counted] < 1).mean()),
        confidence=float(result.confidence[counted].mean(dtype=np.float64)),
        curve=_numbers(by_expected.curve),
        distance=_numbers(by_distance.curve),
        oracle=_numbers(by_expected.oracle),
    )


def mean_foresight(parts: Sequence[Foresight]) -> Foresight:
    """The mean of all figures and curves over frames; each frame weighs the same."""
    means: dict[str, Any] = {}
    for field in fields(Foresight):
        mean = np.mean([getattr(part, field.name) for part in parts], axis=0)
        means[field.name] = tuple(mean.tolist()) if mean.ndim else float(mean)
    return Foresight(**means)


def _numbers(curve: npt.NDArray[np.float64]) -> Numbers:
    return tuple(round(float(value), 6) for value in curve)


def _curves(curve: Numbers, oracle: Numbers) -> Sparsification:
    return Sparsification(np.arange(len(curve)) / len(curve), np.array(curve), np.array(oracle))
