"""The learning rate over a run."""

from __future__ import annotations

import math

from flowinpaint.training.config import ScheduleConfig


def share_done(schedule: ScheduleConfig, step: int, seconds: float) -> float:
    """How much of the run is over after so many steps and seconds of training, from 0 to 1."""
    done = seconds / (60 * schedule.minutes) if schedule.minutes else step / schedule.steps
    return min(1.0, done)


def rate_factor(schedule: ScheduleConfig, step: int, share: float) -> float:
    """The factor of the learning rate in a step, the first being 0, after that share of the run.

    In a run by minutes the place on the curve is the share of the time, in `steps` that a run by steps would have.
    """
    rise = min(1.0, (step + 1) / schedule.warmup) if schedule.warmup else 1.0
    if schedule.curve == "cosine":
        return rise * (schedule.floor + (1 - schedule.floor) * (1 + math.cos(math.pi * share)) / 2)
    if schedule.curve == "trapezoid":
        left = min(1.0, (1 - share) / schedule.decay) if schedule.decay else 1.0
        return rise * (schedule.floor + (1 - schedule.floor) * left)
    place = share * schedule.steps if schedule.minutes else step
    halvings = max(0, math.floor((place - schedule.halve_after) / schedule.halve_every) + 1)
    return rise * 0.5**halvings
