"""A job is one frame and the runs to make on it; jobs are done one after the other or by several processes."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.api import inpaint
from flowinpaint.data.folder import Frame
from flowinpaint.errors import InputError
from flowinpaint.evaluation.foresight import foresight_of
from flowinpaint.evaluation.records import Measurement, Record, RunKey
from flowinpaint.io import write_image
from flowinpaint.masks.cases import Case
from flowinpaint.metrics import epe, errors_over, fl_outliers
from flowinpaint.result import Result
from flowinpaint.viz.sheet import preview


class Loadable(Protocol):
    """A frame that is read when asked for, as `data.folder.Sample`."""

    def load(self, case: Case, seed: int = 0, crop: int = 0) -> Frame:
        """The frame, or the crop×crop pixels in its middle, with the mask of a case."""


@dataclass(frozen=True)
class Job:
    """Runs that share a sample, case, seed and crop; the picture of them all goes to `picture`."""

    sample: Loadable
    runs: tuple[RunKey, ...]
    picture: Path | None = None


def check_processes(jobs: int) -> None:
    """Raise InputError unless there is at least one process."""
    if jobs < 1:
        raise InputError(f"jobs: {jobs} was given; 1 or more processes are taken.")


def run_jobs(jobs: Sequence[Job], processes: int = 1) -> Generator[Record, None, None]:
    """The records of all runs as they are finished: in order in this process, or in any order from several.

    More than one process needs a main program that can be imported (`if __name__ == "__main__":`).
    """
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield from run_job(job)
        return
    processes = min(processes, len(jobs))
    threads = max(1, torch.get_num_threads() // processes)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _prepare, (threads,))
    try:
        with _interrupts_ignored():
            waiting = [pool.submit(_run_whole, job) for job in jobs]
        for done in as_completed(waiting):
            yield from done.result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"jobs: one of {processes} processes died, perhaps for want of memory; what was finished is kept, and "
            "fewer of them may do."
        ) from error
    except BaseException:
        # Ctrl-C, or nobody wants the rest: a process in the middle of a long run is not waited for.
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
        record, result = _run(key, frame)
        if result is not None:
            filled[key.method] = (result.flow, f"{result.info['seconds']:.2f} s")
        yield record
    if job.picture is not None and filled:
        job.picture.parent.mkdir(parents=True, exist_ok=True)
        write_image(job.picture, preview(frame.image, frame.truth, frame.mask, filled, frame.truth))


def _run(key: RunKey, frame: Frame) -> tuple[Record, Result | None]:
    parameters: dict[str, Any] = dict(key.parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = inpaint(frame.image, frame.truth, frame.mask, key.method, key.device, **parameters)
        except Exception as error:
            return Record(key, error=sentence_of(error)), None
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    return Record(key, measure(result, frame), notes=notes), result


def measure(result: Result, frame: Frame) -> Measurement:
    """Compare a filled field with the truth of its frame."""
    flow, info, truth, valid = result.flow, result.info, frame.truth, frame.valid
    hidden: npt.NDArray[np.bool_] = valid & ~frame.mask
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
        foresight=foresight_of(result, frame),
    )


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that Ctrl-C, which reaches the whole group, does not make complain: their parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def _prepare(threads: int) -> None:
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it is not inherited: Windows, and callers in a thread


def _run_whole(job: Job) -> list[Record]:
    return list(run_job(job))


def sentence_of(error: Exception) -> str:
    """What an error says; of one that is not meant for users, also its type."""
    return str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
