"""Results of an evaluation as tables, and as JSON, CSV and Markdown files."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
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
"""The columns behind the method, and their decimals."""


def overall_tables(scores: Sequence[Score], reference: str) -> list[TextTable]:
    """One table per case over all data sets, sorted by R."""
    tables = []
    for own in _by_case(scores):
        sets = {score.dataset for score in own} - {None}
        where = f"{len(sets)} data sets" if len(sets) > 1 else str(next(iter(sets), ""))
        rows = [score for score in own if score.dataset is None]
        title = f"{_given(rows)}, {where}, {masks_text(rows)}; R is the EPE relative to {reference}"
        tables.append(_table(title, rows, ("failures",) if any(score.failures for score in rows) else ()))
    return tables


def dataset_tables(scores: Sequence[Score]) -> list[TextTable]:
    """One table per case and data set, sorted by R."""
    tables = []
    for own in _by_case(scores):
        for dataset in dict.fromkeys(score.dataset for score in own if score.dataset is not None):
            rows = [score for score in own if score.dataset == dataset]
            tables.append(_table(f"{dataset}, {_given(rows)}, {masks_text(rows)}", rows, ("samples", "failures")))
    return tables


def _by_case(scores: Sequence[Score]) -> Iterator[list[Score]]:
    for case in sorted({score.case for score in scores}, key=case_order):
        yield [score for score in scores if score.case == case]


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
    found: dict[Case, dict[str, None]] = {}
    for record in records:
        found.setdefault(record.key.case, {})[f"{record.key.dataset}/{record.key.sample}"] = None
    samples = dict.fromkeys(f"{record.key.dataset}/{record.key.sample}" for record in records)
    missing = {case: [s for s in samples if s not in found[case]] for case in sorted(found, key=case_order)}
    return {case: names for case, names in missing.items() if names}


def left_out_text(case: Case, names: Sequence[str]) -> str:
    """A sentence on the samples that are missing from a case."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{case_text(case)}: left out, because fewer of their pixels are valid: {', '.join(names[:_NAMED])}{more}."


def write_reports(
    folder: Path, records: Sequence[Record], scores: Sequence[Score], reference: str, settings: dict[str, Any]
) -> list[Path]:
    """Write results.json, results.csv and results.md, each whole or not at all."""
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
    keys, measures = ([f.name for f in fields(kind)] for kind in (RunKey, Measurement))
    measures.remove("uncertainty")
    predicted = ["expected_epe", "within_1", "confidence", "ause", "ause_distance"]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*keys, *measures, *predicted, "error", "notes"], lineterminator="\n")
    writer.writeheader()
    for record in records:
        row = asdict(record.key) | {"parameters": parameters_text(record.key.parameters)}
        row |= {"error": record.error, "notes": "; ".join(record.notes)}
        if record.measured is not None:
            row |= {name: getattr(record.measured, name) for name in measures}
            if (q := record.measured.uncertainty) is not None:
                values = (q.expected, q.within_1, q.confidence, q.by_expected.ause, q.by_distance.ause)
                row |= dict(zip(predicted, values, strict=True))
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
    """Parameters as key=value, separated by blanks."""
    return " ".join(f"{k}={v if isinstance(v, str) else f'{v:g}'}" for k, v in parameters.items())


def short_names(methods: Sequence[str]) -> dict[str, str]:
    """The names of methods in tables: weights files by their name, with their folder if two share it."""
    names = {method: Path(method).name if method.endswith(WEIGHTS_SUFFIX) else method for method in methods}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {method: "/".join(Path(method).parts[-2:]) if name in shared else name for method, name in names.items()}
