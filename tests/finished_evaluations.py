"""Finished evaluations with invented numbers, for tests of their readers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from results_page.evaluations import Evaluation

from flowinpaint.evaluation.records import Measurement, Record, RunKey
from flowinpaint.evaluation.report import write_reports
from flowinpaint.evaluation.summary import summarise
from flowinpaint.masks.cases import PATTERNS, Case

KEY = RunKey("", "", 0.05, 0, "fixed", 0, "", {}, "cpu", "files", "", "1.0")
MACHINE = {
    "flowinpaint": "1.0",
    "torch": "2.0",
    "platform": "Linux-6.1-x86_64",
    "device": "cpu",
    "device_name": "4 cores, abacus",
}
REFERENCE = "laplace-beltrami"


def made_up(method: str, case: Case, dataset: str, sample: str, epe: float | None, **change: Any) -> Record:
    """A record with an EPE, and other figures that follow from it; None for a failure."""
    key = replace(KEY, method=method, dataset=dataset, sample=sample)
    key = replace(key, density=None, mask=case) if isinstance(case, str) else replace(key, density=case)
    key = replace(key, **change)
    if epe is None:
        return Record(key, error="it broke")
    return Record(key, Measurement(epe, epe, 10 * epe, 0, 0, epe / 2, 1, None, "converged", 2, 0.123))


def evaluation(records: Sequence[Record], folder: str = "one", **change: Any) -> Evaluation:
    """An evaluation of these records, with settings that fit."""
    named = dict.fromkeys(record.key.mask for record in records if record.key.density is None)
    settings: dict[str, Any] = {
        "root": "/home/somebody/frames",
        "datasets": None,
        "methods": list(dict.fromkeys(record.key.method for record in records)),
        "densities": sorted({record.key.density for record in records if record.key.density is not None}),
        "patterns": [name for name in named if name in PATTERNS],
        "inputs": [name for name in named if name not in PATTERNS],
        "seed": 0,
        "jobs": 1,
        "parameters": {},
    }
    return replace(Evaluation(Path(folder), MACHINE, settings, REFERENCE, list(records)), **change)


def grid_of_records(
    errors: dict[str, float], cases: Sequence[Case], datasets: Sequence[str] = ("MPI-Sintel", "KITTI2015")
) -> list[Record]:
    """Records of methods with these EPE on the first of two samples of each data set, and twice that on the second."""
    return [
        made_up(method, case, dataset, sample, factor * epe)
        for dataset in datasets
        for sample, factor in (("one", 1), ("two", 2))
        for case in cases
        for method, epe in errors.items()
    ]


def write_evaluation(folder: Path, records: Sequence[Record]) -> Path:
    """A folder such as `flowinpaint evaluate` leaves."""
    folder.mkdir(parents=True)
    settings = evaluation(records).settings
    write_reports(folder, records, summarise(records, REFERENCE), REFERENCE, settings)
    return folder
