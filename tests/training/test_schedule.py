import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.training.config import Curve, ScheduleConfig


@pytest.mark.parametrize(
    ("step", "factor"),
    [(0, 1), (299_999, 1), (300_000, 0.5), (399_999, 0.5), (400_000, 0.25), (899_999, 2.0**-6)],
)
def test_the_paper_halves_every_100k_after_300k(step: int, factor: float) -> None:
    assert ScheduleConfig().rate_factor(step, ScheduleConfig().share_done(step, 0.0)) == factor


def test_warm_up_rises_to_the_full_rate_and_the_cosine_falls_to_its_floor() -> None:
    schedule = ScheduleConfig(curve="cosine", steps=1000, warmup=10, floor=0.1)
    rise = [schedule.rate_factor(step, 0.0) for step in range(12)]
    assert rise[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert rise[9:] == [1, 1, 1]
    assert schedule.rate_factor(500, 0.5) == pytest.approx(0.55)
    assert schedule.rate_factor(999, 1.0) == pytest.approx(0.1)


def test_the_trapezoid_stays_and_then_falls_to_its_floor() -> None:
    schedule = ScheduleConfig(curve="trapezoid", steps=1000, floor=0.1, decay=0.4)
    assert [schedule.rate_factor(0, share) for share in (0.0, 0.3, 0.6)] == [1, 1, pytest.approx(1)]
    assert schedule.rate_factor(0, 0.8) == pytest.approx(0.55)
    assert schedule.rate_factor(0, 1.0) == pytest.approx(0.1)
    assert ScheduleConfig(curve="trapezoid", decay=0.0).rate_factor(0, 1.0) == 1


@pytest.mark.parametrize("curve", ["cosine", "trapezoid"])
@given(st.floats(0, 1), st.floats(0, 1))
def test_these_curves_never_rise(curve: Curve, one: float, other: float) -> None:
    schedule = ScheduleConfig(curve=curve)
    early, late = sorted((one, other))
    assert schedule.rate_factor(0, early) >= schedule.rate_factor(0, late)


def test_by_minutes_the_share_of_the_time_counts() -> None:
    schedule = ScheduleConfig(minutes=2)
    assert schedule.share_done(10**9, 60.0) == 0.5
    assert schedule.share_done(0, 500.0) == 1
    assert ScheduleConfig(steps=10).share_done(5, math.inf) == 0.5
    # Half of the time is half of the paper's 900k steps: beyond 400k, two halvings.
    assert schedule.rate_factor(7, 0.5) == 0.25
