"""Runs of methods on frames: one after the other or in several processes; each record is saved when it is finished."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.api import inpaint
from flowinpaint.data.folder import Frame, FrameSource
from flowinpaint.errors import sentence_of
from flowinpaint.evaluation.given_vectors import inlier_auc, wrong_share
from flowinpaint.evaluation.records import Measurement, Record, RecordStore, RunKey
from flowinpaint.evaluation.uncertainty import uncertainty_quality
from flowinpaint.evaluation.variants import parse_variant
from flowinpaint.io import write_image
from flowinpaint.masks.cases import Case
from flowinpaint.metrics import epe, errors_over, fl_outliers
from flowinpaint.result import Result
from flowinpaint.version import __version__
from flowinpaint.viz.sheet import preview


@dataclass(frozen=True)
class Job:
    """Runs that share a sample, case, seed and crop; their results are drawn to `picture`."""

    sample: FrameSource
    runs: tuple[RunKey, ...]
    picture: Path | None = None


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
            store.add(record)
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
        with _interrupts_ignored():
            waiting = [pool.submit(_run_whole, job) for job in jobs]
        for done in as_completed(waiting):
            yield from done.result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"jobs: one of {processes} processes died, perhaps out of memory. Finished runs are kept; try fewer "
            "processes"
        ) from error
    except BaseException:
        # Ctrl-C, or the caller stopped: do not wait for a process in the middle of a long run.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown()


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
        record, result = fill_frame(key, frame)
        if result is not None:
            filled[key.method] = (result.flow, f"{result.info['seconds']:.2f} s")
        yield record
    if job.picture is not None and filled:
        job.picture.parent.mkdir(parents=True, exist_ok=True)
        write_image(job.picture, preview(frame.image, frame.given, frame.mask, filled, frame.truth))


def fill_frame(key: RunKey, frame: Frame) -> tuple[Record, Result | None]:
    """The record of a run on its frame, and its result; None if it raised."""
    variant = parse_variant(key.method)
    keywords = variant.keywords(frame) | key.parameters
    given = (frame.image, frame.given, frame.mask)
    return record_runs([key], [frame], lambda: [inpaint(*given, variant.method, key.device, **keywords)])[0]


def record_runs(
    keys: Sequence[RunKey], frames: Sequence[Frame], fill: Callable[[], Sequence[Result]]
) -> list[tuple[Record, Result | None]]:
    """Fill frames in one call: the record and result of each, or records of the error if the call raises one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = fill()
        except Exception as error:
            return [(Record(key, error=sentence_of(error)), None) for key in keys]
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    return [(Record(k, measure(r, f), notes=notes), r) for k, f, r in zip(keys, frames, results, strict=True)]


def measure(result: Result, frame: Frame) -> Measurement:
    """Compare a filled field with the truth of its frame."""
    flow, info, truth, valid = result.flow, result.info, frame.truth, frame.valid
    hidden: npt.NDArray[np.bool_] = valid & ~frame.mask
    imperfect = frame.vectors is not None
    inliers = result.inliers
    noise: Any = info.get("noise")
    return Measurement(
        epe=epe(flow, truth, valid),
        epe_unknown=epe(flow, truth, hidden) if hidden.any() else None,
        fl=fl_outliers(flow, truth, valid),
        over_1=errors_over(flow, truth, 1, valid),
        over_3=errors_over(flow, truth, 3, valid),
        seconds=info["seconds"],
        iterations=info["iterations"],
        residual=info["residual"],
        status=info["status"],
        threads=torch.get_num_threads(),
        given=float(frame.mask.mean()),
        uncertainty=uncertainty_quality(result, frame),
        noise=None if noise is None else float(noise),
        wrong=wrong_share(frame) if imperfect else None,
        inlier_auc=inlier_auc(inliers, frame) if imperfect and inliers is not None else None,
    )


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which the whole process group receives: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def _start_process(threads: int) -> None:
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for Windows and callers in a thread, where it is not inherited


def _run_whole(job: Job) -> list[Record]:
    return list(run_job(job))
