"""Results of an evaluation as tables, and as JSON, CSV and Markdown files."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flowinpaint.evaluation.records import Measurement, Record, RunKey
from flowinpaint.evaluation.summary import Score
from flowinpaint.machine import machine
from flowinpaint.masks.cases import Case, case_order, case_text
from flowinpaint.networks.weights import WEIGHTS_SUFFIX
from flowinpaint.text_tables import TextTable, markdown_table, number, write_text

R_COLUMN = 1
_NAMED = 6
_HEADINGS = ["method", "R", "EPE", "EPE unknown", "Fl %", "> 1 px", "> 3 px", "seconds"]
_DIGITS = {"ratio": 3, "epe": 3, "epe_unknown": 3, "fl": 2, "over_1": 2, "over_3": 2, "seconds": 2}
"""The columns after the method, and their decimals."""


def overall_tables(scores: Sequence[Score], reference: str) -> list[TextTable]:
    """One table per case over all data sets, sorted by R."""
    tables = []
    for case in dict.fromkeys(score.case for score in scores):
        own = [score for score in scores if score.case == case]
        sets = {score.dataset for score in own} - {None}
        where = f"{len(sets)} data sets" if len(sets) > 1 else str(next(iter(sets), ""))
        rows = [score for score in own if score.dataset is None]
        title = f"{_given(rows)}, {where}, {masks_text(rows)}; R is the EPE relative to {reference}"
        tables.append(_table(title, rows, ("failures",) if any(score.failures for score in rows) else ()))
    return tables


def dataset_tables(scores: Sequence[Score]) -> list[TextTable]:
    """One table per case and data set, sorted by R."""
    groups: dict[tuple[Case, str], list[Score]] = {}
    for score in scores:
        if score.dataset is not None:
            groups.setdefault((score.case, score.dataset), []).append(score)
    return [
        _table(f"{dataset}, {_given(rows)}, {masks_text(rows)}", rows, ("samples", "failures"))
        for (_, dataset), rows in groups.items()
    ]


def _table(title: str, scores: Sequence[Score], counts: Sequence[str]) -> TextTable:
    rows = [
        [s.method, *(number(getattr(s, name), n) for name, n in _DIGITS.items()), *(str(getattr(s, c)) for c in counts)]
        for s in sorted(scores, key=lambda score: float("inf") if score.ratio is None else score.ratio)
    ]
    return TextTable(title, [*_HEADINGS, *(c.replace("failures", "failed") for c in counts)], rows)


def _given(scores: Sequence[Score]) -> str:
    """The case of these scores; for a pattern also the share of known pixels."""
    case = scores[0].case
    if not isinstance(case, str):
        return f"{case_text(case)} given"
    share = next((score.given for score in scores if score.given is not None), None)
    return case if share is None else f"{case}, {100 * share:.2g} % given"


def masks_text(scores: Sequence[Score]) -> str:
    """The origin of the masks of these scores: files, drawn, or both."""
    score = max(scores, key=lambda score: score.samples)
    if score.drawn in (0, score.samples):
        return "masks drawn" if score.drawn else "masks from files"
    return f"masks of {score.drawn} of {score.samples} samples drawn, the rest from files"


def left_out(records: Sequence[Record]) -> dict[Case, list[str]]:
    """Samples missing from a case because they have too few valid pixels for it, by case."""
    found = {(record.key.case, f"{record.key.dataset}/{record.key.sample}") for record in records}
    samples = dict.fromkeys(f"{record.key.dataset}/{record.key.sample}" for record in records)
    cases = sorted({case for case, _ in found}, key=case_order)
    return {case: names for case in cases if (names := [s for s in samples if (case, s) not in found])}


def left_out_text(case: Case, names: Sequence[str]) -> str:
    """A sentence on the samples that are missing from a case."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{case_text(case)}: left out, because fewer of their pixels are valid: {', '.join(names[:_NAMED])}{more}."


def write_reports(
    folder: Path, records: Sequence[Record], scores: Sequence[Score], reference: str, settings: dict[str, Any]
) -> list[Path]:
    """Write results.json, results.csv and results.md, each atomically."""
    texts = {
        "results.json": json.dumps(as_json(records, scores, reference, settings), indent=1) + "\n",
        "results.csv": as_csv(records),
        "results.md": as_markdown(records, scores, reference, settings),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def as_json(
    records: Sequence[Record], scores: Sequence[Score], reference: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """The machine, the settings, the scores, and every record."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(records[0].key.device),
        "settings": settings,
        "reference": reference,
        "scores": [asdict(score) for score in scores],
        "records": [asdict(record) for record in records],
    }


def as_csv(records: Sequence[Record]) -> str:
    """One line per record, below a heading."""
    columns = [field.name for kind in (RunKey, Measurement) for field in fields(kind) if field.name != "uncertainty"]
    columns += ["expected_epe", "within_1", "confidence", "ause", "ause_distance", "error", "notes"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in records:
        row = vars(record.key) | {"parameters": parameters_text(record.key.parameters)}
        row |= {"error": record.error, "notes": "; ".join(record.notes)}
        if (measured := record.measured) is not None:
            row |= vars(measured)
            if (quality := measured.uncertainty) is not None:
                row |= {"expected_epe": quality.expected, "within_1": quality.within_1}
                row |= {"confidence": quality.confidence, "ause": quality.by_expected.ause}
                row |= {"ause_distance": quality.by_distance.ause}
        writer.writerow(row)
    return text.getvalue()


def as_markdown(records: Sequence[Record], scores: Sequence[Score], reference: str, settings: dict[str, Any]) -> str:
    """The tables with an explanation of the numbers, parameters, failures and notes."""
    host = machine(records[0].key.device)
    parts = [
        "# Evaluation",
        f"flowinpaint {host['flowinpaint']}, torch {host['torch']}, {host['device_name']}; seed {settings['seed']}.",
        f"**R** is a method's mean EPE over that of `{reference}` on the same samples (below 1 is better), and over "
        "data sets the geometric mean. EPE (px) is over all valid pixels, the given ones included; `EPE unknown` "
        "leaves these out. Fl is the per cent of pixels off by more than 3 px and 5 %; > 1 px and > 3 px are in per "
        "cent too. Means are over a data set's samples, then over data sets. Masks are files of the samples, or drawn "
        "from the seed.",
        *(left_out_text(case, names) for case, names in left_out(records).items()),
        "## Over all data sets",
        *(_markdown(table) for table in overall_tables(scores, reference)),
        "## By data set",
        *(_markdown(table) for table in dataset_tables(scores)),
    ]
    used = {(r.key.method, r.key.case): r.key.parameters for r in records if r.key.parameters}
    if used:
        parts += ["## Parameters other than the defaults"]
        parts += ["\n".join(f"- {m}, {case_text(c)}: {parameters_text(values)}" for (m, c), values in used.items())]
    told = [(r, text) for r in records for text in ([r.error] if r.error else r.notes)]
    if told:
        lines = (f"- {run_text(r.key)}{' FAILED' if r.error else ''}: {text}" for r, text in told)
        parts += ["## Failures and notes", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _markdown(table: TextTable) -> str:
    rows = [[f"**{cell}**" if i == R_COLUMN else cell for i, cell in enumerate(row)] for row in table.rows]
    headings = [f"**{heading}**" if i == R_COLUMN else heading for i, heading in enumerate(table.headings)]
    return f"### {table.title}\n\n{markdown_table(headings, rows)}"


def run_text(key: RunKey) -> str:
    """Sample, case and method of a run."""
    return f"{key.dataset}/{key.sample}, {case_text(key.case)}, {key.method}"


def parameters_text(parameters: dict[str, float | str]) -> str:
    """Parameters as key=value, separated by spaces."""
    return " ".join(f"{k}={v if isinstance(v, str) else f'{v:g}'}" for k, v in parameters.items())


def short_names(methods: Sequence[str]) -> dict[str, str]:
    """The names of methods in tables: weights files by their name, with their folder if two share it."""
    names = {method: Path(method).name if method.endswith(WEIGHTS_SUFFIX) else method for method in methods}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {method: "/".join(Path(method).parts[-2:]) if name in shared else name for method, name in names.items()}
