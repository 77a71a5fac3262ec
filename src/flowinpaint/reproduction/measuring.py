"""Runs: every entrant on every frame, computed only where no record of the same run is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from flowinpaint.evaluation.records import Record, RunKey
from flowinpaint.evaluation.runner import Job, Step, complete
from flowinpaint.masks.cases import Case
from flowinpaint.reproduction.audience import Audience
from flowinpaint.reproduction.batches import KeepField, run_batches
from flowinpaint.reproduction.frames import AnySample, FrameSet
from flowinpaint.reproduction.ledger import Ledger
from flowinpaint.version import __version__


@dataclass(frozen=True)
class Entrant:
    """Who fills the frames at a density for a column of a table.

    method: a name, or the path of a file of weights, whose hash is `weights`. compute: False takes only runs that are
    known, for what cannot be run here.
    """

    column: str
    case: Case
    method: str
    weights: str = ""
    parameters: dict[str, float | str] = field(default_factory=dict)
    compute: bool = True

    def key(self, frame: RunKey) -> RunKey:
        """The key of its run on a frame, of `frame_key`."""
        return replace(frame, method=self.method, weights=self.weights, parameters=self.parameters)


@dataclass(frozen=True)
class Outcome:
    """What became of a frame in a column; the record's own method and device are those of the machine that made it."""

    column: str
    case: Case
    dataset: str
    sample: str
    record: Record


@dataclass(frozen=True)
class Machine:
    """How runs are made: device, processes, frames to one call of a network, and the seed of the masks."""

    device: str
    jobs: int = 1
    batch: int = 1
    seed: int = 0


def measure(
    frames: FrameSet,
    entrants: Sequence[Entrant],
    ledger: Ledger,
    machine: Machine,
    audience: Audience,
    keep_field: KeepField | None = None,
) -> list[Outcome]:
    """The outcome of each entrant on each frame that has pixels enough for its density.

    Runs are made entrant by entrant, so that a network is loaded once, and each is kept when it is finished.
    keep_field: is given the fields of batches, see `run_batches`.
    """
    wanted: list[tuple[Entrant, AnySample, RunKey]] = []
    cases = list(dict.fromkeys(entrant.case for entrant in entrants))
    frame_keys = {
        (sample, case): frame_key(sample, case, frames.crop, machine)
        for sample in frames.samples
        for case in sample.possible(cases)
    }
    for entrant in entrants:
        for sample in frames.samples:
            key = frame_keys.get((sample, entrant.case))
            if key is not None:
                wanted.append((entrant, sample, entrant.key(key)))
    todo: dict[str, Job] = {}
    for entrant, sample, key in wanted:
        if entrant.compute and ledger.find(key) is None:
            todo[key.text] = Job(sample, (key,))  # two columns may ask for the same
    made = _run(list(todo.values()), ledger, machine, audience, keep_field) if todo else {}
    outcomes = []
    for entrant, sample, key in wanted:
        record = ledger.find(key) or made.get(key.text)
        if record is not None:
            outcomes.append(Outcome(entrant.column, entrant.case, sample.dataset, sample.name, record))
    return outcomes


def frame_key(sample: AnySample, case: Case, crop: int, machine: Machine) -> RunKey:
    """The part of a key that belongs to the frame; the method is still to be named."""
    return RunKey(
        dataset=sample.dataset,
        sample=sample.name,
        density=None if isinstance(case, str) else case,
        seed=machine.seed,
        mask=sample.mask_kind(case),
        crop=crop,
        method="",
        parameters={},
        device=machine.device,
        inputs=sample.fingerprint(case),
        weights="",
        version=__version__,
    )


def _run(
    jobs: Sequence[Job], ledger: Ledger, machine: Machine, audience: Audience, keep_field: KeepField | None
) -> dict[str, Record]:
    """Do the jobs, those of networks in batches if there are to be any, and return their records by key."""
    batched = [job for job in jobs if machine.batch > 1 and job.runs[0].weights]
    single = [job for job in jobs if machine.batch == 1 or not job.runs[0].weights]
    made: dict[str, Record] = {}

    def keep(records: Iterable[Record]) -> None:
        for record in records:
            made[record.key.text] = record
            ledger.keep(record)

    if single:
        with audience.runs() as report:

            def progress(step: Step) -> None:
                keep([] if step.record is None else [step.record])
                report(step)

            keys = [job.runs[0] for job in single]
            complete(ledger.store, keys, single, machine.jobs, progress)
    if batched:
        with audience.runs() as report:
            report(Step(0, len(batched)))
            done = 0
            for _, group in groupby(batched, key=_shared):
                own = list(group)
                for place, record in enumerate(run_batches(own, machine.batch, keep_field), 1):
                    ledger.store.add(record)
                    keep([record])
                    done += 1
                    report(Step(done, len(batched), record, len(own) - place))
    return made


def _shared(job: Job) -> tuple[str, str, str]:
    """What the runs of a batch have in common."""
    key = job.runs[0]
    return key.method, str(key.case), str(key.parameters)
