"""Mean errors over the frames of a data set, by column and density."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowinpaint.masks.cases import Case
from flowinpaint.reproduction.measuring import Outcome


@dataclass(frozen=True)
class Mean:
    """EPE (px), Fl (%) and seconds over the frames where a method succeeded; None if it failed on all.

    frames: how many there are; failures: on how many of them it failed, and why on the first of these.
    """

    epe: float | None
    fl: float | None
    seconds: float | None
    frames: int
    failures: int
    error: str
    devices: tuple[str, ...]

    def figure(self, name: str) -> float | None:
        """One of "epe" and "fl"."""
        value: float | None = getattr(self, name)
        return value


class Means:
    """The means of outcomes, and what they are of."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        groups: dict[tuple[str, str, Case], list[Outcome]] = {}
        for outcome in outcomes:
            groups.setdefault((outcome.column, outcome.dataset, outcome.case), []).append(outcome)
        self._means = {place: _mean(group) for place, group in groups.items()}
        self.columns = list(dict.fromkeys(column for column, _, _ in groups))
        self.datasets = list(dict.fromkeys(dataset for _, dataset, _ in groups))
        self.devices = sorted({device for mean in self._means.values() for device in mean.devices})

    def at(self, column: str, dataset: str, case: Case) -> Mean | None:
        """The mean of a column on a data set at a density, None if nothing was measured."""
        return self._means.get((column, dataset, case))

    def value(self, column: str, dataset: str, case: Case, figure: str = "epe") -> float | None:
        """One figure of it."""
        mean = self.at(column, dataset, case)
        return None if mean is None else mean.figure(figure)

    @property
    def failures(self) -> dict[tuple[str, str, Case], Mean]:
        """The means that lack a frame."""
        return {place: mean for place, mean in self._means.items() if mean.failures}


def _mean(group: list[Outcome]) -> Mean:
    measured = [outcome.record.measured for outcome in group if outcome.record.measured is not None]
    errors = [outcome.record.error for outcome in group if outcome.record.measured is None]

    def over(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    return Mean(
        over([m.epe for m in measured]),
        over([m.fl for m in measured]),
        over([m.seconds for m in measured]),
        len(group),
        len(errors),
        errors[0] if errors else "",
        tuple(sorted({outcome.record.key.device for outcome in group})),
    )
