import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.uncertainty import STEPS, UncertaintyQuality, uncertainty_quality
from flowinpaint.result import Result

SIZE = (30, 40)


def told(flow: Any, expected: Any) -> Result:
    info: Any = {"method": "made up"}
    return Result(flow, None if expected is None else np.exp(-expected).astype(np.float32), expected, info)


def problem() -> tuple[Frame, Any]:
    """A frame, and a filled field whose errors grow from left to right."""
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 5, (*SIZE, 2)).astype(np.float32)
    mask, valid = rng.random(SIZE) < 0.1, rng.random(SIZE) < 0.9
    flow = truth.copy()
    flow[..., 0] += np.where(mask, 0, np.linspace(0, 3.1, SIZE[1])).astype(np.float32)
    return Frame(np.zeros((*SIZE, 3), np.uint8), truth, valid, mask & valid), flow


def test_perfectly_predicted_errors() -> None:
    frame, flow = problem()
    error = np.linalg.norm(flow - frame.truth, axis=-1).astype(np.float32)
    found = uncertainty_quality(told(flow, error), frame)
    assert found is not None
    counted = frame.valid & ~frame.mask
    assert found.error == pytest.approx(error[counted].mean(), rel=1e-5)
    assert found.expected == pytest.approx(found.error, rel=1e-5)
    assert found.within_1 == pytest.approx((error[counted] < 1).mean())
    assert found.confidence == pytest.approx(np.exp(-error[counted]).mean(), rel=1e-5)
    assert found.by_expected.ause == pytest.approx(0, abs=1e-6)
    assert found.by_distance.ause > 0.2
    assert len(found.curve) == len(found.distance) == len(found.oracle) == STEPS


def test_errors_predicted_the_wrong_way_round_are_worse_than_constant_ones() -> None:
    frame, flow = problem()
    error = np.linalg.norm(flow - frame.truth, axis=-1).astype(np.float32)
    wrong, none = (uncertainty_quality(told(flow, e), frame) for e in (4 - error, np.ones_like(error)))
    assert wrong is not None
    assert none is not None
    assert wrong.by_expected.ause > none.by_expected.ause > 0.2


def test_what_cannot_be_told() -> None:
    frame, flow = problem()
    assert uncertainty_quality(told(flow, None), frame) is None
    assert uncertainty_quality(told(flow, np.full(SIZE, np.inf, np.float32)), frame) is None
    assert uncertainty_quality(told(flow, np.ones(SIZE, np.float32)), replace(frame, mask=frame.valid)) is None


def test_json_and_back() -> None:
    quality = UncertaintyQuality(0.5, 0.6, 0.9, 0.85, [1.0, 0.5], [1.0, 0.8], [1.0, 0.4])
    assert UncertaintyQuality(**json.loads(json.dumps(asdict(quality)))) == quality
