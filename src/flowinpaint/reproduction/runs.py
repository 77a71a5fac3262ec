"""Runs of methods on frames, computed only where no record is known, and their means."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any, NamedTuple

import torch

from flowinpaint import checks
from flowinpaint.api import load_model, to_batch
from flowinpaint.data.folder import Frame
from flowinpaint.errors import sentence_of
from flowinpaint.evaluation.records import Record, RunKey
from flowinpaint.evaluation.runner import Job, Step, frame_key, measure, run_jobs
from flowinpaint.masks.cases import Case
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import confidence_of, expected_error
from flowinpaint.reproduction.frames import FrameSet
from flowinpaint.reproduction.networks import Callbacks
from flowinpaint.reproduction.records import Records
from flowinpaint.result import Info, Result
from flowinpaint.viz.colours import Field

KeepField = Callable[[RunKey, Field], None]


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


class ColumnRecord(NamedTuple):
    """The record of a column on a frame. Its method and device are those of the machine that made it."""

    column: str
    record: Record


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


class Means:
    """Means over the frames of a data set, by column and density."""

    def __init__(self, results: Iterable[ColumnRecord]) -> None:
        groups: dict[tuple[str, str, Case], list[Record]] = {}
        for column, record in results:
            groups.setdefault((column, record.key.dataset, record.key.case), []).append(record)
        self._means = {place: _mean(group) for place, group in groups.items()}
        self.columns = list(dict.fromkeys(column for column, _, _ in groups))
        self.datasets = list(dict.fromkeys(dataset for _, dataset, _ in groups))
        self.devices = sorted({device for mean in self._means.values() for device in mean.devices})

    def at(self, column: str, dataset: str, case: Case) -> Mean | None:
        """The mean of a column on a data set at a density, None if nothing was measured."""
        return self._means.get((column, dataset, case))

    def value(self, column: str, dataset: str, case: Case, figure: str = "epe") -> float | None:
        """One figure of it, "epe" or "fl"."""
        value: float | None = getattr(self.at(column, dataset, case), figure, None)
        return value

    @property
    def failures(self) -> dict[tuple[str, str, Case], Mean]:
        """The means that lack a frame."""
        return {place: mean for place, mean in self._means.items() if mean.failures}


def _mean(records: list[Record]) -> Mean:
    measured = [record.measured for record in records if record.measured is not None]
    errors = [record.error for record in records if record.measured is None]
    n = len(measured) or None
    return Mean(
        n and sum(m.epe for m in measured) / n,
        n and sum(m.fl for m in measured) / n,
        n and sum(m.seconds for m in measured) / n,
        len(records),
        len(errors),
        errors[0] if errors else "",
        tuple(sorted({record.key.device for record in records})),
    )


def run_columns(
    frames: FrameSet,
    columns: Sequence[Column],
    records: Records,
    options: RunOptions,
    callbacks: Callbacks,
    keep_field: KeepField | None = None,
) -> list[ColumnRecord]:
    """The record of each column on each frame that has enough valid pixels for its density.

    Runs are made column by column, so that a network is loaded once. Each record is kept at once.
    keep_field: receives the fields of networks that sample, see `_run_batches`.
    """
    cases = list(dict.fromkeys(column.case for column in columns))
    keys = {
        (sample, case): frame_key(sample, case, options.seed, options.device, frames.crop)
        for sample in frames.samples
        for case in sample.possible(cases)
    }
    wanted = [
        (column, sample, column.key(keys[sample, column.case]))
        for column in columns
        for sample in frames.samples
        if (sample, column.case) in keys
    ]
    # By key, since two columns may need the same run.
    missing = {k.text: Job(sample, (k,)) for c, sample, k in wanted if c.compute and records.find(k) is None}
    made = _run(list(missing.values()), records, options, callbacks, keep_field) if missing else {}
    found = ((column.name, records.find(key) or made.get(key.text)) for column, _, key in wanted)
    return [ColumnRecord(name, record) for name, record in found if record is not None]


def _run(
    jobs: Sequence[Job], records: Records, options: RunOptions, callbacks: Callbacks, keep_field: KeepField | None
) -> dict[str, Record]:
    """The records of jobs by key. Networks run in batches if the options say so."""
    batched = [job for job in jobs if options.batch > 1 and job.runs[0].weights]
    single = [job for job in jobs if not (options.batch > 1 and job.runs[0].weights)]
    groups = [list(group) for _, group in groupby(batched, key=_batch_of)]
    batches = (record for group in groups for record in _run_batches(group, options.batch, keep_field))
    left = Counter((job.runs[0].dataset, job.runs[0].method) for job in jobs)
    made: dict[str, Record] = {}
    # Closed, so that an interruption ends the processes at once.
    with callbacks.runs() as report, closing(run_jobs(single, options.jobs)) as singles:
        report(Step(0, len(jobs)))
        for record in chain(singles, batches):
            records.add(record)
            made[record.key.text] = record
            place = record.key.dataset, record.key.method
            left[place] -= 1
            report(Step(len(made), len(jobs), record, left[place]))
    return made


def _batch_of(job: Job) -> tuple[str, str, str]:
    """The properties that the runs of a batch share."""
    key = job.runs[0]
    return key.method, str(key.case), str(key.parameters)


def _run_batches(jobs: Sequence[Job], count: int, keep_field: KeepField | None) -> Iterator[Record]:
    """The records of jobs of one run each, with the same network, up to `count` frames of one size per call.

    A network that samples takes as long for one frame as for a few. The seconds of a run are those of its call over the
    number of frames. Random draws depend on a frame's place in the call. keep_field: receives the fields of networks
    that sample.
    """
    first = jobs[0].runs[0]
    try:
        model = load_model(first.method, first.device)
        if _compiled(model, torch.device(first.device)):
            model.compile_parts()
    except Exception as error:
        yield from (Record(job.runs[0], error=sentence_of(error)) for job in jobs)
        return
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
            yield from _run_batch(model, waiting.pop(frame.truth.shape), count, keep_field)
    for group in waiting.values():
        yield from _run_batch(model, group, count, keep_field)


def _run_batch(
    model: Network, group: Sequence[tuple[RunKey, Frame]], count: int, keep_field: KeepField | None
) -> list[Record]:
    keys, frames = zip(*group, strict=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = _fill(model, keys[0], frames, count)
        except Exception as error:
            return [Record(key, error=sentence_of(error)) for key in keys]
    if keep_field is not None and model.samples:
        for key, result in zip(keys, results, strict=True):
            keep_field(key, result.flow)
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    return [
        Record(key, measure(result, frame), notes=notes)
        for key, frame, result in zip(keys, frames, results, strict=True)
    ]


@torch.inference_mode()
def _fill(model: Network, key: RunKey, frames: Sequence[Frame], count: int) -> list[Result]:
    """The results of `inpaint` on frames of one size, from one call.

    A compiled network compiles anew for each batch size, so it always gets `count` frames: the last is repeated.
    """
    device, parameters = torch.device(key.device), dict[str, Any](key.parameters)
    padding = [frames[-1]] * (count - len(frames)) if _compiled(model, device) else []
    padded = [*frames, *padding]
    start = time.perf_counter()
    image = torch.cat([to_batch(checks.check_image(frame.image, frame.mask.shape), device) for frame in padded])
    mask = torch.cat([to_batch(frame.mask[..., None], device) for frame in padded])
    flow = torch.where(mask > 0, torch.cat([to_batch(frame.truth, device) for frame in padded]), 0)
    output = model.complete(image, flow, mask, None, **parameters)
    field = torch.where(mask > 0, flow, output.field.float())
    if not torch.isfinite(field).all():
        raise ValueError("the result is not finite everywhere.")
    dense = field.movedim(1, -1).contiguous().cpu().numpy()
    error = confidence = None
    if output.log_error is not None:
        expected = expected_error(output.log_error, flow, mask)
        error, confidence = (x[:, 0].cpu().numpy() for x in (expected, confidence_of(expected)))
    info: Info = {
        "method": key.method,
        "device": key.device,
        "seconds": (time.perf_counter() - start) / len(frames),
        "iterations": model.iterations(*flow.shape[-2:], **parameters),
        "residual": None,
        "status": "complete",
    }
    return [
        Result(
            flow=dense[i],
            confidence=None if confidence is None else confidence[i],
            expected_error=None if error is None else error[i],
            info=info,
        )
        for i in range(len(frames))
    ]


def _compiled(model: Network, device: torch.device) -> bool:
    return model.samples and device.type == "cuda"
