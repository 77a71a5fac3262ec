"""Runs of methods on frames: table columns and their means, known records and fields, and batches of new runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flowinpaint.api import fill_together, load_model
from flowinpaint.checks import check_picture
from flowinpaint.data.folder import Frame
from flowinpaint.errors import FileFormatError, MissingFileError, sentence_of
from flowinpaint.evaluation.records import Record, RecordStore, RunKey, open_store, read_lines
from flowinpaint.evaluation.runner import Job, record_runs, run_jobs
from flowinpaint.io import atomic_path, make_folder
from flowinpaint.masks.cases import Case
from flowinpaint.methods.method import Fill
from flowinpaint.methods.neural import fill_function
from flowinpaint.networks.network import Network
from flowinpaint.result import Result, Solution
from flowinpaint.viz.colours import Field

RECORDS = "records.jsonl"
FIELDS = "fields"
"""Name of the folder of filled fields, next to the records."""


@dataclass(frozen=True)
class RunOptions:
    """Options of runs: device, processes, frames per call of a network, and the seed of the masks."""

    device: str
    jobs: int = 1
    batch: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Column:
    """A column of a table at one density: the method that fills the frames.

    method: a name, or the path of a weights file with the hash `weights`. compute: False to use only known records.
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

    frames: the number of frames; failures: the number on which the method failed; error: the first failure.
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
        """One value of a mean, "epe" or "fl"; None if nothing was measured."""
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


def identity(key: RunKey, *, any_device: bool = False) -> str:
    """The part of a key that identifies a run independent of its weights' path, and with any_device of the device."""
    return replace(key, method="" if key.weights else key.method, device="" if any_device else key.device).text


class Records:
    """Successful runs and their fields: this reproduction's on the same device, other machines' on any device."""

    def __init__(self, store: RecordStore, others: Sequence[Record], folders: Sequence[Path]) -> None:
        self.store, self._folders = store, folders
        self._known = {identity(r.key, any_device=True): r for r in reversed(others) if r.measured is not None}
        self.know(store)

    def know(self, records: Iterable[Record]) -> None:
        """Make `find` return these records, which are already in the store."""
        self._known |= {identity(record.key): record for record in records if record.measured is not None}

    def find(self, key: RunKey) -> Record | None:
        """The record of a successful run, or None."""
        return self._known.get(identity(key)) or self._known.get(identity(key, any_device=True))

    def find_field(self, key: RunKey) -> Field | None:
        """The field of a run on any device, or None."""
        for path in (folder / _field_file(key) for folder in self._folders):
            if path.is_file():
                field: Field = np.load(path, allow_pickle=False)
                return field
        return None

    def keep_field(self, key: RunKey, field: Field) -> None:
        """Write a field, atomically. Sampling takes too long to repeat it for `figure-samples`."""
        with atomic_path(make_folder(self._folders[0]) / _field_file(key)) as temporary, temporary.open("wb") as file:
            np.save(file, field, allow_pickle=False)


@contextmanager
def open_records(out: Path, others: Sequence[Path] = ()) -> Iterator[Records]:
    """The records in a folder, locked against other processes, and in other machines' files."""
    known = [record for path in others for record in read_records(path)]
    with open_store(make_folder(out) / RECORDS) as store:
        yield Records(store, known, [path.parent / FIELDS for path in (out / RECORDS, *others)])


def read_records(path: Path) -> list[Record]:
    """The records in a file of JSON lines."""
    if not path.is_file():
        raise MissingFileError(f"--records must be the {RECORDS} of a reproduction, but {path} does not exist")
    records = []
    with path.open("rb") as file:
        for record in read_lines(path, file):
            if not isinstance(record, Record):
                raise FileFormatError(f"--records: {record}; it must be the record of a run")
            records.append(record)
    return records


def _field_file(key: RunKey) -> str:
    return hashlib.blake2b(identity(key, any_device=True).encode(), digest_size=16).hexdigest() + ".npy"


def run_all(
    jobs: Sequence[Job], processes: int, *, batch: int, keep_field: Callable[[RunKey, Field], None]
) -> Generator[Record, None, None]:
    """The records of jobs of one run each; networks fill up to `batch` frames per call.

    keep_field: receives the fields of networks that sample, see `_run_batches`.
    """

    def in_batch(job: Job) -> bool:
        return batch > 1 and bool(job.runs[0].weights)

    yield from run_jobs([job for job in jobs if not in_batch(job)], processes)
    for _, group in groupby(filter(in_batch, jobs), key=_batch_of):
        yield from _run_batches(list(group), batch, keep_field)


def _batch_of(job: Job) -> tuple[str, str, str]:
    """The properties that all runs of a batch must share."""
    key = job.runs[0]
    return key.method, str(key.case), str(key.parameters)


def _run_batches(jobs: Sequence[Job], count: int, keep_field: Callable[[RunKey, Field], None]) -> Iterator[Record]:
    """The records of jobs of one run each, with the same network, up to `count` frames of one size per call.

    A network that samples takes as long for one frame as for a few. The seconds of a run are those of its call divided
    by the number of frames. Random draws depend on a frame's index in the call. keep_field: receives the fields of
    networks that sample.
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
            fields = [(check_picture(frame.image, frame.mask.shape), frame.given, frame.mask) for frame in frames]
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
    """The fill function of a network, compiled for `count` fields; if fewer are left, the last is repeated.

    Otherwise it would be compiled again for each number of fields.
    """
    model.compile_parts()
    fill = fill_function(model)

    def padded(*tensors: Tensor, **parameters: Any) -> Solution:
        there = len(tensors[0])
        solution = fill(*(torch.cat([x, *[x[-1:]] * (count - there)]) for x in tensors), **parameters)
        error = solution.expected_error
        return replace(solution, u=solution.u[:there], expected_error=None if error is None else error[:there])

    return padded
