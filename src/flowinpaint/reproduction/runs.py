"""Columns of tables: their runs on frames, in batches if a network makes them, and their means."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from flowinpaint.api import fill_together, load_model
from flowinpaint.checks import check_picture
from flowinpaint.data.folder import Frame
from flowinpaint.errors import sentence_of
from flowinpaint.evaluation.records import Record, RunKey
from flowinpaint.evaluation.runner import Job, record_runs, run_jobs
from flowinpaint.masks.cases import Case
from flowinpaint.methods.method import Fill
from flowinpaint.methods.neural import fill_function
from flowinpaint.networks.network import Network
from flowinpaint.result import Result, Solution
from flowinpaint.viz.colours import Field


@dataclass(frozen=True)
class RunOptions:
    """device, processes, frames per call of a network, and the seed of the masks."""

    device: str
    jobs: int = 1
    batch: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Column:
    """A column of a table at one density: the method that fills the frames.

    method: a name, or the path of a file of weights, whose hash is `weights`. compute: False to use known records only.
    """

    name: str
    case: Case
    method: str
    weights: str = ""
    parameters: dict[str, float | str] = field(default_factory=dict)
    compute: bool = True

    def key(self, frame: RunKey) -> RunKey:
        """The key of its run on a frame, from the frame's own key."""
        return replace(frame, method=self.method, weights=self.weights, parameters=self.parameters)


ColumnRecord = tuple[str, Record]
"""The name of a column and its record on a frame, whose method and device are those of the machine that made it."""


@dataclass(frozen=True)
class Mean:
    """Mean EPE (px), Fl (%) and seconds over the frames without a failure; None if all failed.

    frames: how many there are; failures: on how many the method failed; error: the first failure.
    """

    epe: float | None
    fl: float | None
    seconds: float | None
    frames: int
    failures: int
    error: str
    devices: tuple[str, ...]


class Means(dict[tuple[str, str, Case], Mean]):
    """Means over the frames of a data set, by column, data set and density."""

    @property
    def columns(self) -> list[str]:
        """The columns with a result."""
        return list(dict.fromkeys(column for column, _, _ in self))

    @property
    def datasets(self) -> list[str]:
        """The data sets."""
        return list(dict.fromkeys(dataset for _, dataset, _ in self))

    @property
    def devices(self) -> list[str]:
        """The devices of all runs."""
        return sorted({device for mean in self.values() for device in mean.devices})

    def value(self, column: str, dataset: str, case: Case, figure: str = "epe") -> float | None:
        """One figure of a mean, "epe" or "fl"; None if nothing was measured."""
        value: float | None = getattr(self.get((column, dataset, case)), figure, None)
        return value


def means_of(results: Iterable[ColumnRecord]) -> Means:
    """The means over records."""
    groups: dict[tuple[str, str, Case], list[Record]] = {}
    for column, record in results:
        groups.setdefault((column, record.key.dataset, record.key.case), []).append(record)
    return Means({place: _mean(group) for place, group in groups.items()})


def _mean(records: list[Record]) -> Mean:
    measured = [record.measured for record in records if record.measured is not None]
    errors = [record.error for record in records if record.measured is None]
    n = len(measured) or None
    epe, fl, seconds = (n and sum(getattr(m, name) for m in measured) / n for name in ("epe", "fl", "seconds"))
    devices = tuple(sorted({record.key.device for record in records}))
    return Mean(epe, fl, seconds, len(records), len(errors), errors[0] if errors else "", devices)


def run_all(
    jobs: Sequence[Job], processes: int, *, batch: int, keep_field: Callable[[RunKey, Field], None]
) -> Generator[Record, None, None]:
    """The records of jobs of one run each; networks fill up to `batch` frames in a call.

    keep_field: receives the fields of networks that sample, see `_run_batches`.
    """

    def in_batch(job: Job) -> bool:
        return batch > 1 and bool(job.runs[0].weights)

    yield from run_jobs([job for job in jobs if not in_batch(job)], processes)
    for _, group in groupby(filter(in_batch, jobs), key=_batch_of):
        yield from _run_batches(list(group), batch, keep_field)


def _batch_of(job: Job) -> tuple[str, str, str]:
    """The properties that the runs of a batch share."""
    key = job.runs[0]
    return key.method, str(key.case), str(key.parameters)


def _run_batches(jobs: Sequence[Job], count: int, keep_field: Callable[[RunKey, Field], None]) -> Iterator[Record]:
    """The records of jobs of one run each, with the same network, up to `count` frames of one size per call.

    A network that samples takes as long for one frame as for a few. The seconds of a run are those of its call over the
    number of frames. Random draws depend on a frame's place in the call. keep_field: receives the fields of networks
    that sample.
    """
    first = jobs[0].runs[0]
    device = torch.device(first.device)
    try:
        model = load_model(first.method, device)
        fill = partial(
            _compiled_fill(model, count) if _compiled(model, device) else fill_function(model), **first.parameters
        )
    except Exception as error:
        yield from (Record(job.runs[0], error=sentence_of(error)) for job in jobs)
        return

    def run_batch(group: Sequence[tuple[RunKey, Frame]]) -> Iterator[Record]:
        keys, frames = zip(*group, strict=True)

        def results() -> list[Result]:
            fields = [(check_picture(frame.image, frame.mask.shape), frame.truth, frame.mask) for frame in frames]
            return fill_together(fill, fields, first.method, device)

        for record, result in record_runs(keys, frames, results):
            if model.samples and result is not None:
                keep_field(record.key, result.flow)
            yield record

    waiting: dict[tuple[int, ...], list[tuple[RunKey, Frame]]] = {}
    for job in jobs:
        (key,) = job.runs
        try:
            frame = job.sample.load(key.case, key.seed, key.crop)
        except Exception as error:
            yield Record(key, error=sentence_of(error))
            continue
        group = waiting.setdefault(frame.truth.shape, [])
        group.append((key, frame))
        if len(group) == count:
            yield from run_batch(waiting.pop(frame.truth.shape))
    for group in waiting.values():
        yield from run_batch(group)


def _compiled(model: Network, device: torch.device) -> bool:
    return model.samples and device.type == "cuda"


def _compiled_fill(model: Network, count: int) -> Fill:
    """The fill function of a network, compiled for `count` fields: where fewer are left, the last is repeated.

    It would be compiled anew for each number of fields.
    """
    model.compile_parts()
    fill = fill_function(model)

    def padded(*tensors: Tensor, **parameters: Any) -> Solution:
        there = len(tensors[0])
        solution = fill(*(torch.cat([x, *[x[-1:]] * (count - there)]) for x in tensors), **parameters)
        error = solution.expected_error
        return replace(solution, u=solution.u[:there], expected_error=None if error is None else error[:there])

    return padded
