"""The results of an evaluation as tables, and as JSON, CSV and Markdown files."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flowinpaint.evaluation.records import Measurement, Record, RunKey
from flowinpaint.evaluation.summary import Score
from flowinpaint.io import atomic_path
from flowinpaint.masks.cases import Case, case_order, case_text
from flowinpaint.version import __version__


@dataclass(frozen=True)
class TextTable:
    """A table as text, R in the column R_COLUMN."""

    title: str
    headings: list[str]
    rows: list[list[str]]


R_COLUMN = 1
_NAMED = 6
_HEADINGS = ["method", "R", "EPE", "EPE unknown", "Fl %", "> 1 px", "> 3 px", "seconds"]


def overall_tables(scores: Sequence[Score], reference: str) -> list[TextTable]:
    """One table per case, the methods in the order of their R."""
    tables = []
    for case in sorted({score.case for score in scores}, key=case_order):
        own = [score for score in scores if score.case == case]
        sets = {score.dataset for score in own} - {None}
        where = f"{len(sets)} data sets" if len(sets) > 1 else str(next(iter(sets), ""))
        rows = [score for score in own if score.dataset is None]
        title = f"{_given(rows)}, {where}, {masks_text(rows)}; R is the EPE relative to {reference}"
        failed = any(score.failures for score in rows)
        tables.append(
            TextTable(
                title,
                [*_HEADINGS, "failed"] if failed else _HEADINGS,
                [_row(score) + ([str(score.failures)] if failed else []) for score in sorted(rows, key=_by_ratio)],
            )
        )
    return tables


def dataset_tables(scores: Sequence[Score]) -> list[TextTable]:
    """One table per case and data set."""
    tables = []
    headings = [*_HEADINGS, "samples", "failed"]
    for case in sorted({score.case for score in scores}, key=case_order):
        own = [score for score in scores if score.case == case]
        for dataset in dict.fromkeys(score.dataset for score in own if score.dataset is not None):
            rows = [score for score in own if score.dataset == dataset]
            cells = [[*_row(s), str(s.samples), str(s.failures)] for s in sorted(rows, key=_by_ratio)]
            tables.append(TextTable(f"{dataset}, {_given(rows)}, {masks_text(rows)}", headings, cells))
    return tables


def masks_text(scores: Sequence[Score]) -> str:
    """Whether the masks of the samples behind these scores were files or drawn."""
    score = max(scores, key=lambda score: score.samples)
    if score.drawn in (0, score.samples):
        return "masks drawn" if score.drawn else "masks from files"
    return f"masks of {score.drawn} of {score.samples} samples drawn, the rest from files"


def left_out(records: Sequence[Record]) -> dict[Case, list[str]]:
    """The samples by case that others have and this one has not: too few of their pixels are valid to draw it."""
    samples = dict.fromkeys((record.key.dataset, record.key.sample) for record in records)
    found: dict[Case, set[tuple[str, str]]] = {}
    for record in records:
        found.setdefault(record.key.case, set()).add((record.key.dataset, record.key.sample))
    missing = {case: ["/".join(s) for s in samples if s not in found[case]] for case in sorted(found, key=case_order)}
    return {case: names for case, names in missing.items() if names}


def left_out_text(case: Case, names: Sequence[str]) -> str:
    """A sentence of `left_out` for one case."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{case_text(case)}: left out, for fewer of their pixels are valid, are {', '.join(names[:_NAMED])}{more}."


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
        with atomic_path(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in texts]


def as_json(
    records: Sequence[Record], scores: Sequence[Score], reference: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """Everything: the machine, the settings, the scores, and every record."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(records),
        "settings": settings,
        "reference": reference,
        "scores": [asdict(score) for score in scores],
        "records": [asdict(record) for record in records],
    }


def as_csv(records: Sequence[Record]) -> str:
    """One line per record, with a heading."""
    keys, measures = ([f.name for f in fields(kind)] for kind in (RunKey, Measurement))
    measures.remove("foresight")
    foreseen = ["expected_epe", "within_1", "confidence", "ause", "ause_distance"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, *measures, *foreseen, "error", "notes"])
    for record in records:
        values = asdict(record.key) | {"parameters": parameters_text(record.key.parameters)}
        measured = {} if record.measured is None else asdict(record.measured)
        cells = [values[name] for name in keys] + [measured.get(name) for name in measures]
        cells += _foresight_cells(record) or [None] * len(foreseen)
        writer.writerow([*cells, record.error, "; ".join(record.notes)])
    return text.getvalue()


def _foresight_cells(record: Record) -> list[float]:
    told = None if record.measured is None else record.measured.foresight
    if told is None:
        return []
    return [told.expected, told.within_1, told.confidence, told.by_expected.ause, told.by_distance.ause]


def as_markdown(records: Sequence[Record], scores: Sequence[Score], reference: str, settings: dict[str, Any]) -> str:
    """The tables, with what the figures mean, and the failures."""
    host = machine(records)
    parts = [
        "# Evaluation",
        f"flowinpaint {host['flowinpaint']}, torch {host['torch']}, {host['device_name']}; seed {settings['seed']}.",
        f"**R** is a method's mean EPE over that of `{reference}` on the same samples (below 1 is better), and over "
        "data sets the geometric mean. EPE, in px, is over all valid pixels, the given ones included; `EPE unknown` "
        "leaves these out. Fl: per cent off by more than 3 px and 5 %; > 1 px and > 3 px are in per cent too. Means "
        "over a data set's samples, then over data sets. Masks are files of the samples, or drawn by the seed.",
        *(left_out_text(case, names) for case, names in left_out(records).items()),
        "## Over all data sets",
        *map(_markdown_table, overall_tables(scores, reference)),
        "## By data set",
        *map(_markdown_table, dataset_tables(scores)),
    ]
    used = {(r.key.method, r.key.case): r.key.parameters for r in records if r.key.parameters}
    if used:
        parts += ["## Parameters other than the defaults"]
        parts += ["\n".join(f"- {m}, {case_text(c)}: {parameters_text(values)}" for (m, c), values in used.items())]
    told = [(r, text) for r in records for text in ([r.error] if r.error else r.notes)]
    if told:
        lines = (
            f"- {r.key.dataset}/{r.key.sample}, {case_text(r.key.case)}, {r.key.method}"
            f"{' FAILED' if r.error else ''}: {text}"
            for r, text in told
        )
        parts += ["## Failures and notes", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def machine(records: Sequence[Record]) -> dict[str, str]:
    """Versions, and the device that the records were taken on."""
    device = next((record.key.device for record in records), "cpu")
    on_gpu = device.startswith("cuda") and torch.cuda.is_available()
    processor = f"{os.cpu_count()} cores, {platform.machine()}"
    return {
        "flowinpaint": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if on_gpu else processor,
    }


def parameters_text(parameters: dict[str, float | str]) -> str:
    """Parameters as key=value, separated by blanks."""
    return " ".join(f"{k}={v if isinstance(v, str) else f'{v:g}'}" for k, v in parameters.items())


def _given(scores: Sequence[Score]) -> str:
    """The case of these scores, and of a pattern the share of the pixels that it marks."""
    case = scores[0].case
    if not isinstance(case, str):
        return f"{case_text(case)} given"
    share = next((score.given for score in scores if score.given is not None), None)
    return case if share is None else f"{case}, {100 * share:.2g} % given"


def _row(score: Score) -> list[str]:
    return [
        score.method,
        _number(score.ratio, 3),
        _number(score.epe, 3),
        _number(score.epe_unknown, 3),
        _number(score.fl, 2),
        _number(score.over_1, 2),
        _number(score.over_3, 2),
        _number(score.seconds, 2),
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _by_ratio(score: Score) -> float:
    return float("inf") if score.ratio is None else score.ratio


def _markdown_table(table: TextTable) -> str:
    def line(cells: list[str]) -> str:
        bold = [f"**{cell}**" if i == R_COLUMN else cell for i, cell in enumerate(cells)]
        return "| " + " | ".join(bold) + " |"

    rule = "|" + "|".join("---" if i == 0 else "--:" for i in range(len(table.headings))) + "|"
    return "\n".join([f"### {table.title}", "", line(table.headings), rule, *map(line, table.rows)])
