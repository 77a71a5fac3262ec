"""Finished evaluations read from their folders, and several of them as one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.evaluation.records import Record, record_of
from flowinpaint.evaluation.summary import Score, summarise
from flowinpaint.io import StrPath
from flowinpaint.masks.cases import Case, case_order, case_text
from flowinpaint.networks.weights import WEIGHTS_SUFFIX

RESULTS = "results.json"


@dataclass(frozen=True)
class Evaluation:
    """What `flowinpaint evaluate` left in a folder."""

    folder: Path
    machine: dict[str, str]
    settings: dict[str, Any]
    reference: str
    records: list[Record]


@dataclass(frozen=True)
class Results:
    """Evaluations as one: of each method, case and sample there is one record.

    sources: the places in `evaluations` that the records of a method come from.
    """

    evaluations: list[Evaluation]
    reference: str
    records: list[Record]
    scores: list[Score]
    sources: dict[str, list[int]]

    @property
    def methods(self) -> list[str]:
        """In the order in which they were asked for."""
        return list(dict.fromkeys(score.method for score in self.scores))

    @property
    def cases(self) -> list[Case]:
        """Densities, then patterns."""
        return sorted({score.case for score in self.scores}, key=case_order)

    @property
    def datasets(self) -> list[str]:
        """In the order of the evaluations."""
        return list(dict.fromkeys(score.dataset for score in self.scores if score.dataset is not None))

    def score(self, method: str, case: Case, dataset: str | None) -> Score | None:
        """The one score, None where nothing was measured; over all data sets if none is named."""
        return next((s for s in self.scores if (s.method, s.case, s.dataset) == (method, case, dataset)), None)

    def samples(self, dataset: str) -> int:
        """How many frames of a data set were measured."""
        return len({record.key.sample for record in self.records if record.key.dataset == dataset})


def read_evaluation(folder: StrPath) -> Evaluation:
    """The evaluation in a folder; an error says what is missing."""
    folder = Path(folder)
    path = folder / RESULTS
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such file; a folder that 'flowinpaint evaluate' wrote to is taken")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        records = [record_of(values) for values in content["records"]]
        return Evaluation(folder, content["machine"], content["settings"], content["reference"], records)
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"{path}: is not what 'flowinpaint evaluate' writes ({error!r})") from error


def merge(evaluations: Sequence[Evaluation]) -> Results:
    """Several evaluations as one; where two have the same run, the first one counts unless it failed.

    All have one reference, and in all of them a case of a sample has the same image, truth and mask, so that methods
    of different evaluations can be compared.
    """
    if not evaluations:
        raise InputError("evaluations: none was given; at least one is taken.")
    first = evaluations[0]
    found: dict[tuple[str, Case, str, str], tuple[Record, int]] = {}
    inputs: dict[tuple[str, str, Case], tuple[object, Path]] = {}
    for number, evaluation in enumerate(evaluations):
        if evaluation.reference != first.reference:
            raise InputError(
                f"{evaluation.folder}: R compares with {evaluation.reference} there, and with {first.reference} in "
                f"{first.folder}; one reference is taken"
            )
        for record in evaluation.records:
            key = record.key
            seen = (key.inputs, key.mask, None if key.mask == "fixed" else key.seed, key.crop)
            other, folder = inputs.setdefault((key.dataset, key.sample, key.case), (seen, evaluation.folder))
            if other != seen:
                raise InputError(
                    f"{evaluation.folder}: {key.dataset}/{key.sample}, {case_text(key.case)}, has another image, truth "
                    f"or mask than in {folder}; evaluations of the same frames and seed are taken"
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


def short_names(methods: Sequence[str]) -> dict[str, str]:
    """What to call methods in a table: files of weights by their name, with their folder's where two share it."""
    names = {method: Path(method).name if method.endswith(WEIGHTS_SUFFIX) else method for method in methods}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {method: "/".join(Path(method).parts[-2:]) if name in shared else name for method, name in names.items()}
