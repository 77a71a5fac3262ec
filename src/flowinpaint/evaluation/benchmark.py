"""`evaluate`: every method on every frame of a folder, at every density and with every pattern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from flowinpaint.checks import check_device
from flowinpaint.data.folder import Sample, file_hash, find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation.jobs import Job, check_processes, run_jobs
from flowinpaint.evaluation.records import Record, RecordStore, RunKey, open_store
from flowinpaint.io import StrPath, make_folder
from flowinpaint.masks.cases import Case, case_label, check_patterns
from flowinpaint.methods.registry import get_method
from flowinpaint.networks.shipped import check_shipped
from flowinpaint.networks.weights import WEIGHTS_SUFFIX
from flowinpaint.version import __version__

DENSITIES = (0.01, 0.05, 0.10)
"""Those of the paper."""

Parameters = Callable[[str, Case], dict[str, float | str]]
"""Parameters of a method, by its name and the density or pattern."""


@dataclass(frozen=True)
class Step:
    """How far an evaluation is: `done` of `total` runs, `record` the last; None while only earlier runs count.

    left: how many runs of the record's data set and method are still to come.
    """

    done: int
    total: int
    record: Record | None = None
    left: int = 0


def evaluate(
    root: StrPath,
    methods: Sequence[str],
    densities: Sequence[float] = DENSITIES,
    *,
    patterns: Sequence[str] = (),
    datasets: Collection[str] | None = None,
    out: StrPath | None = None,
    parameters: Parameters = lambda method, case: {},
    seed: int = 0,
    device: str | torch.device = "auto",
    jobs: int = 1,
    pictures: bool = False,
    fresh: bool = False,
    progress: Callable[[Step], None] | None = None,
) -> list[Record]:
    """Fill every frame below root (see `data.folder`) by every method, and measure the errors.

    methods: names, or paths of .safetensors files. densities: shares of the pixels in (0, 1]; a frame with fewer valid
    ones than would have to be drawn is left out there. patterns: names of `masks.cases.PATTERNS`.
    out: a folder that keeps each record when it is finished (records.jsonl), so that a second call goes on where the
    first was stopped; what depends on changed files, parameters or another version is computed again, and everything if
    fresh. pictures: also draw out/previews/<dataset>/<sample>_<case>.png. jobs: processes; more than one needs a
    main program that can be imported. What a method raises on a frame becomes a record with an error.
    """
    if pictures and out is None:
        raise InputError("pictures: True was given without out; a folder for them is needed.")
    cases = check_cases(densities, patterns)
    check_processes(jobs)
    weights = {method: check_method(method) for method in methods}
    if not weights:
        raise InputError("methods: none was given; at least one is taken.")
    chosen = str(check_device(device))
    samples = find_samples(root, datasets)
    runs = {(m, c): parameters(m, c) for m in weights for c in cases}
    for (method, _), values in runs.items():
        get_method(method).check_parameters(values)

    keys: list[tuple[Sample, list[RunKey]]] = []
    for sample in samples:
        for case in sample.possible(cases):
            key = frame_key(sample, case, seed, chosen)
            named = [replace(key, method=m, parameters=runs[m, case], weights=w) for m, w in weights.items()]
            keys.append((sample, named))
    if not keys:
        raise InputError(f"densities: {100 * min(densities):g} % was given; no frame has as many valid pixels.")

    folder = None if out is None else _folder(Path(out), Path(root))
    with open_store(None if folder is None else folder / "records.jsonl", fresh) as store:
        todo = []
        for sample, named in keys:
            missing = [key for key in named if store.find(key) is None]
            picture = None
            if pictures and folder is not None:
                picture = folder / "previews" / sample.dataset / f"{sample.name}_{case_label(named[0].case)}.png"
                if missing or not picture.exists():
                    missing = named
            if missing:
                todo.append(Job(sample, tuple(missing), picture))
        return complete(store, [key for _, named in keys for key in named], todo, jobs, progress)


def complete(
    store: RecordStore,
    keys: Sequence[RunKey],
    todo: Sequence[Job],
    processes: int,
    progress: Callable[[Step], None] | None,
) -> list[Record]:
    """Do the jobs, keep their records, and return those of all keys, in their order."""
    report = progress or (lambda step: None)
    left = Counter((key.dataset, key.method) for job in todo for key in job.runs)
    total = len(keys)
    done = total - left.total()
    report(Step(done, total))
    new: dict[str, Record] = {}
    with closing(run_jobs(todo, processes)) as records:  # so that an interruption ends the processes at once
        for record in records:
            store.add(record)
            new[record.key.text] = record
            done += 1
            left[record.key.dataset, record.key.method] -= 1
            report(Step(done, total, record, left[record.key.dataset, record.key.method]))
    found = (new.get(key.text) or store.find(key) for key in keys)
    return [record for record in found if record is not None]


def frame_key(sample: Sample, case: Case, seed: int, device: str, crop: int = 0) -> RunKey:
    """The part of a key that belongs to the frame; the method is still to be named."""
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


def check_cases(densities: Sequence[float], patterns: Sequence[str]) -> list[Case]:
    """The densities and the patterns, each once; InputError unless there is one and all are known."""
    named = check_patterns(list(patterns))
    if densities or not named:
        check_densities(densities)
    return [*dict.fromkeys(densities), *named]


def check_densities(densities: Sequence[float]) -> None:
    """Raise InputError unless there is one, and all are in (0, 1]."""
    if not densities:
        raise InputError("densities: none was given; at least one is taken.")
    for density in densities:
        if not 0 < density <= 1:
            raise InputError(f"densities: {density:g} was given; shares above 0 and up to 1 (100 %) are taken.")


def check_method(method: str, argument: str = "methods") -> str:
    """A hash of the weights a method needs, "" if it needs none; InputError unless it can be run."""
    if method.endswith(WEIGHTS_SUFFIX):
        if not Path(method).is_file():
            raise InputError(f"{argument}: {method!r} was given, but there is no such file.")
        return file_hash(Path(method))
    found = get_method(method, argument)
    if found.weights is None:
        return ""
    if found.shipped:
        check_shipped(found.weights)  # at once, and not in each of the runs
    return file_hash(found.weights)


def failures(records: Iterable[Record]) -> list[Record]:
    """The records that tell of an error."""
    return [record for record in records if record.measured is None]


def _folder(out: Path, root: Path) -> Path:
    """The folder to write to, made if need be, and not where it would be taken for a data set."""
    if out.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{out}: lies in the root {root}; a folder outside of it is taken")
    return make_folder(out)
