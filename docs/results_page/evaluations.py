"""Finished evaluations: reading from folders, and merging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from flowinpaint.config_parsing import convert
from flowinpaint.errors import FileFormatError, InputError, MissingFileError, shown
from flowinpaint.evaluation.records import Record, record_of
from flowinpaint.evaluation.report import run_text
from flowinpaint.evaluation.summary import Score, summarise
from flowinpaint.evaluation.uncertainty import UncertaintyQuality
from flowinpaint.io import StrPath
from flowinpaint.io.budget import byte_budget
from flowinpaint.io.text import read_json
from flowinpaint.masks.cases import Case, case_order, is_input

RESULTS = "results.json"


@dataclass(frozen=True)
class Evaluation:
    """The content of a folder that `flowinpaint evaluate` wrote."""

    folder: Path
    machine: dict[str, str]
    settings: dict[str, Any]
    reference: str
    records: list[Record]


@dataclass(frozen=True)
class Results:
    """Merged evaluations, with one record for each method, case and sample.

    sources: the indices of the evaluations that a method's records come from.
    """

    evaluations: list[Evaluation]
    reference: str
    records: list[Record]
    scores: list[Score]
    sources: dict[str, list[int]]

    @property
    def methods(self) -> list[str]:
        """The methods in the order they were asked for."""
        return list(dict.fromkeys(score.method for score in self.scores))

    @property
    def cases(self) -> list[Case]:
        """Densities, then patterns."""
        return sorted({score.case for score in self.scores if not is_input(score.case)}, key=case_order)

    @property
    def inputs(self) -> list[Case]:
        """The imperfect inputs."""
        return sorted({score.case for score in self.scores if is_input(score.case)}, key=case_order)

    @property
    def datasets(self) -> list[str]:
        """The data sets in the order of the evaluations."""
        return list(dict.fromkeys(score.dataset for score in self.scores if score.dataset is not None))

    def score(self, method: str, case: Case, dataset: str | None) -> Score | None:
        """The score on a data set, or over all of them if None; None if nothing was measured."""
        return next((s for s in self.scores if (s.method, s.case, s.dataset) == (method, case, dataset)), None)

    def figure(self, name: str, method: str, case: Case, dataset: str | None) -> float | None:
        """One number of a score, such as "epe"; None if nothing was measured."""
        value: float | None = getattr(self.score(method, case, dataset), name, None)
        return value

    def qualities(self, method: str, case: Case) -> list[UncertaintyQuality]:
        """The quality of a method's predicted errors on each frame of a case; empty if it predicts none."""
        measured = (r.measured for r in self.records if (r.key.method, r.key.case) == (method, case))
        return [m.uncertainty for m in measured if m is not None and m.uncertainty is not None]

    def samples(self, dataset: str) -> int:
        """The number of measured frames of a data set."""
        return len({record.key.sample for record in self.records if record.key.dataset == dataset})


def read_evaluation(folder: StrPath) -> Evaluation:
    """Read the evaluation in a folder."""
    folder = Path(folder)
    path = folder / RESULTS
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such file; pass a folder that 'flowinpaint evaluate' wrote.")
    try:
        content = read_json(path, byte_budget())
        records = [record_of(values, f"records[{i}]") for i, values in enumerate(content["records"])]
        machine = convert(content["machine"], dict[str, str], "machine")
        settings = convert(content["settings"], dict[str, Any], "settings")
        return Evaluation(folder, machine, settings, convert(content["reference"], str, "reference"), records)
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"{path}: is not what 'flowinpaint evaluate' writes ({shown(error)}).") from error


def merge(evaluations: Sequence[Evaluation]) -> Results:
    """Merge evaluations; if two have the same run, the first one counts unless it failed.

    All must have one reference method, and the same image, truth and mask wherever they share a case of a sample, so
    that their methods can be compared.
    """
    if not evaluations:
        raise InputError("evaluations must have at least one element, got none.")
    first = evaluations[0]
    found: dict[tuple[str, Case, str, str], tuple[Record, int]] = {}
    inputs: dict[tuple[str, str, Case], tuple[object, Path]] = {}
    for number, evaluation in enumerate(evaluations):
        if evaluation.reference != first.reference:
            raise InputError(
                f"{evaluation.folder}: the reference method must be {first.reference}, as in {first.folder}, got "
                f"{evaluation.reference}"
            )
        for record in evaluation.records:
            key = record.key
            seen = (key.inputs, key.mask, None if key.mask == "fixed" else key.seed, key.crop)
            other, folder = inputs.setdefault((key.dataset, key.sample, key.case), (seen, evaluation.folder))
            if other != seen:
                raise InputError(
                    f"{evaluation.folder}: {run_text(key)}: image, truth and mask must be the same as in {folder}; "
                    "merge evaluations of the same frames and seed."
                )
            place = (key.method, key.case, key.dataset, key.sample)
            if place not in found or found[place][0].measured is None:
                found[place] = (record, number)
    records = [record for record, _ in found.values()]
    sources = {record.key.method: set[int]() for record in records}
    for record, number in found.values():
        sources[record.key.method].add(number)
    scores = summarise(records, first.reference)
    return Results(list(evaluations), first.reference, records, scores, {m: sorted(n) for m, n in sources.items()})


def mean_quality(parts: Sequence[UncertaintyQuality]) -> UncertaintyQuality:
    """The mean of all numbers and curves over frames; each frame has the same weight."""
    names = [field.name for field in fields(UncertaintyQuality)]
    means = {name: np.mean([getattr(part, name) for part in parts], axis=0).tolist() for name in names}
    return UncertaintyQuality(**means)
