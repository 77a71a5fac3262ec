"""Runs of methods on frames: one after the other or in several processes; each record is saved when it is finished."""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from flowinpaint.api import inpaint
from flowinpaint.data.folder import Frame, FrameSource
from flowinpaint.errors import FileFormatError, InputError, sentence_of
from flowinpaint.evaluation.measure import Field, measure, measure_field
from flowinpaint.evaluation.records import Record, RecordStore, RunKey
from flowinpaint.evaluation.scored_fields import doubts, read_field
from flowinpaint.evaluation.variants import parse_variant
from flowinpaint.interrupts import deferred, end_with_parent
from flowinpaint.io import new_folder, publishing, write_image
from flowinpaint.io.temporaries import remove_stale
from flowinpaint.masks.cases import Case
from flowinpaint.methods.functions import told
from flowinpaint.methods.registry import find_method
from flowinpaint.result import Result
from flowinpaint.version import __version__
from flowinpaint.viz.sheet import preview


@dataclass(frozen=True)
class Job:
    """Runs that share a sample, case, seed and crop; their results are drawn to `picture`.

    fields: the files of those runs that only measure a field, by the name in place of the method. durable: flush the
    picture to disk.
    """

    sample: FrameSource
    runs: tuple[RunKey, ...]
    picture: Path | None = None
    fields: Mapping[str, Path] = field(default_factory=dict)
    durable: bool = False


@dataclass(frozen=True)
class Step:
    """Progress of an evaluation: `done` of `total` runs, `record` the last, None before the first new one.

    left: the number of remaining runs of the record's data set and method.
    """

    done: int
    total: int
    record: Record | None = None
    left: int = 0


def frame_key(sample: FrameSource, case: Case, seed: int, device: str, crop: int = 0) -> RunKey:
    """The key of a frame, whose method, parameters and weights are still empty."""
    return RunKey(
        dataset=sample.dataset,
        sample=sample.name,
        density=None if isinstance(case, str) else case,
        seed=seed,
        mask=sample.mask_kind(case),
        crop=crop,
        method="",
        parameters={},
        device=device,
        inputs=sample.fingerprint(case),
        weights="",
        version=__version__,
    )


def complete(
    store: RecordStore,
    plan: Sequence[Job],
    processes: int,
    progress: Callable[[Step], None] | None,
    run: Callable[[Sequence[Job], int], Generator[Record, None, None]] | None = None,
) -> list[Record]:
    """Do the runs of a plan that are missing in the store, add their records, and return all records in order.

    run: gets the missing jobs and the number of processes, and yields their records; by default `run_jobs`.
    """
    report = progress or (lambda step: None)
    keys = [key for job in plan for key in job.runs]
    todo = [job for planned in plan if (job := _unfinished(planned, store)).runs]
    left = Counter((key.dataset, key.method) for job in todo for key in job.runs)
    done = len(keys) - left.total()
    report(Step(done, len(keys)))
    new: dict[str, Record] = {}
    with closing((run or run_jobs)(todo, processes)) as records:  # an interruption ends the processes immediately
        for record in records:
            record = store.add(record)
            new[record.key.text] = record
            done += 1
            left[record.key.dataset, record.key.method] -= 1
            report(Step(done, len(keys), record, left[record.key.dataset, record.key.method]))
    found = (new.get(key.text) or store.find(key) for key in keys)
    return [record for record in found if record is not None]


def _unfinished(job: Job, store: RecordStore) -> Job:
    """The runs of a job that are missing in the store; all of them if its picture has to be drawn."""
    missing = tuple(key for key in job.runs if store.find(key) is None)
    draws = job.picture is not None and (missing or not job.picture.exists())
    return job if draws else replace(job, runs=missing)


def run_jobs(jobs: Sequence[Job], processes: int = 1) -> Generator[Record, None, None]:
    """The records of all runs as they finish: in order in this process, in any order from several.

    More than one process needs a main program that can be imported (`if __name__ == "__main__":`).
    """
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield from run_job(job)
        return
    processes = min(processes, len(jobs))
    threads = max(1, torch.get_num_threads() // processes)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start_process, (threads,))
    try:
        with _interrupts_blocked():
            waiting = [pool.submit(_run_whole, job) for job in jobs]
        for done in as_completed(waiting):
            yield from done.result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"jobs: one of {processes} processes died, perhaps out of memory; finished runs are kept; try again "
            "with fewer processes"
        ) from error
    except BaseException:
        # Ctrl-C, or the caller stopped: do not wait for a process in the middle of a long run.
        pool.shutdown(wait=False, cancel_futures=True)
        ended = set(multiprocessing.active_children()) - others
        for process in ended:
            process.terminate()
        for process in ended:
            process.join()  # its temporary file counts as in use until then
        raise
    finally:
        pool.shutdown()
        for folder in {job.picture.parent for job in jobs if job.picture is not None}:
            remove_stale(folder)  # of the processes that were ended
            with suppress(OSError):  # not empty
                folder.rmdir()
                folder.parent.rmdir()


def run_job(job: Job) -> Iterator[Record]:
    """The records of a job's runs, one by one; a run that raises gives a record of its error."""
    first = job.runs[0]
    try:
        frame = job.sample.load(first.case, first.seed, first.crop)
    except Exception as error:
        yield from (Record(key, error=sentence_of(error)) for key in job.runs)
        return
    filled = {}
    for key in job.runs:
        if key.method in job.fields:
            record, flow = score_field(key, job.fields[key.method], frame)
            if flow is not None:
                filled[key.method] = (flow, "")
        else:
            record, result = fill_frame(key, frame)
            if result is not None:
                filled[key.method] = (result.flow, f"{result.info['seconds']:.2f} s")
        yield record
    if job.picture is not None and filled:
        picture = preview(frame.image, frame.given, frame.mask, filled, frame.truth)
        with new_folder(job.picture.parent, durable=job.durable), publishing(job.durable):
            write_image(job.picture, picture)


def fill_frame(key: RunKey, frame: Frame) -> tuple[Record, Result | None]:
    """The record of a run on its frame, and its result; None if it raised."""
    variant = parse_variant(key.method)
    keywords = variant.keywords(frame) | key.parameters
    given = (frame.image, frame.given, frame.mask)
    return record_runs([key], [frame], lambda: [inpaint(*given, variant.method, key.device, **keywords)])[0]


def score_field(key: RunKey, path: Path, frame: Frame) -> tuple[Record, Field | None]:
    """The record of a field that another program computed, and the field; None if it cannot be measured."""
    try:
        flow = read_field(path, frame)
    except Exception as error:
        return Record(key, error=sentence_of(error)), None
    return Record(key, measure_field(flow, frame), notes=doubts(flow, frame)), flow


def record_runs(
    keys: Sequence[RunKey], frames: Sequence[Frame], fill: Callable[[], Sequence[Result]]
) -> list[tuple[Record, Result | None]]:
    """Fill frames in one call: the record and result of each, or records of the error if the call raises one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = fill()
        except Exception as error:
            expected = isinstance(error, InputError | FileFormatError)
            sentence = sentence_of(error) if expected or not _is_own(keys[0].method) else told(error)
            return [(Record(key, error=sentence), None) for key in keys]
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    return [(Record(k, measure(r, f), notes=notes), r) for k, f, r in zip(keys, frames, results, strict=True)]


def _is_own(name: str) -> bool:
    """Whether a variant's method is a function of the user, whose errors need a place in its source."""
    method = parse_variant(name).method
    found = find_method(method)
    return ":" in method if found is None else found.own


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes that do not receive Ctrl-C, as the whole process group does: the parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where processes inherit nothing
        yield
        return
    with deferred():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_process(threads: int) -> None:
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for Windows
    end_with_parent()


def _run_whole(job: Job) -> list[Record]:
    return list(run_job(job))
