"""Results of an evaluation as tables, and as JSON, CSV and Markdown files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flowinpaint.evaluation.records import Measurement, Record, RunKey
from flowinpaint.evaluation.summary import Score
from flowinpaint.evaluation.variants import parse_variant
from flowinpaint.io import publishing
from flowinpaint.machine import machine
from flowinpaint.masks.cases import Case, case_order, case_text, is_input, why_left_out
from flowinpaint.networks.weights import WEIGHTS_SUFFIX
from flowinpaint.text_tables import TextTable, markdown_table, number, write_text

R_COLUMN = 1
_NAMED = 6
_HEADINGS = ["method", "R", "EPE", "EPE unknown", "Fl %", "> 1 px", "> 3 px", "seconds"]
_DIGITS = {"ratio": 3, "epe": 3, "epe_unknown": 3, "fl": 2, "over_1": 2, "over_3": 2, "seconds": 2}
"""The columns after the method, and their decimals."""
_AUC = "AUC"
_INPUTS = f"""\
Tables of inputs say how many of the given vectors are wrong, that is, off by more than 3 px. {_AUC} tells how well a \
method that judges them separates right from wrong ones: 1 is perfect, 0.5 chance."""


def overall_tables(scores: Sequence[Score], reference: str) -> list[TextTable]:
    """One table per case over all data sets, sorted by R, methods with fewer samples last."""
    tables = []
    for case in dict.fromkeys(score.case for score in scores):
        own = [score for score in scores if score.case == case]
        sets = {score.dataset for score in own} - {None}
        where = f"{len(sets)} data sets" if len(sets) > 1 else str(next(iter(sets), ""))
        rows = [score for score in own if score.dataset is None]
        title = f"{_about(rows, where)}; R is the EPE relative to {reference}"
        tables.append(_table(title, rows, ("failures",) if any(score.failures for score in rows) else ()))
    return tables


def dataset_tables(scores: Sequence[Score]) -> list[TextTable]:
    """One table per case and data set, sorted by R, methods with fewer samples last."""
    groups: dict[tuple[Case, str], list[Score]] = {}
    for score in scores:
        if score.dataset is not None:
            groups.setdefault((score.case, score.dataset), []).append(score)
    return [
        _table(f"{dataset}, {_about(rows)}", rows, ("samples", "failures")) for (_, dataset), rows in groups.items()
    ]


def _table(title: str, scores: Sequence[Score], counts: Sequence[str]) -> TextTable:
    judged = any(score.inlier_auc is not None for score in scores)
    digits = _DIGITS | ({"inlier_auc": 3} if judged else {})
    rows = []
    for s in sorted(scores, key=lambda s: (s.partial, float("inf") if s.ratio is None else s.ratio)):
        r, *figures = (number(getattr(s, name), n) for name, n in digits.items())
        marked = f"({r})" if s.partial and s.ratio is not None else r
        rows.append([s.method, marked, *figures, *(str(getattr(s, c)) for c in counts)])
    headings = [*_HEADINGS, *([_AUC] if judged else []), *(c.replace("failures", "failed") for c in counts)]
    return TextTable(title, headings, rows)


def _about(scores: Sequence[Score], where: str = "") -> str:
    """The case of these scores, where it was measured, and the origin of the masks.

    With a pattern or an input also the share of known pixels, and with an input the share of wrong vectors.
    """
    case = scores[0].case
    if not isinstance(case, str):
        return ", ".join(filter(None, [f"{case_text(case)} given", where, masks_text(scores)]))
    shares = [(score.given, score.wrong) for score in scores if score.given is not None]
    given = [f"{percent(share)} % given" for share, _ in shares[:1]]
    wrong = [f"{percent(share)} % of them wrong" for _, share in shares[:1] if share is not None]
    return ", ".join(filter(None, [case, *given, *wrong, where, "" if is_input(case) else masks_text(scores)]))


def percent(share: float) -> str:
    """A share in per cent, with two significant figures."""
    return f"{100 * share:.2g}" if share < 0.995 else "100"


def masks_text(scores: Sequence[Score]) -> str:
    """The origin of the masks of these scores: files, drawn, or both."""
    score = max(scores, key=lambda score: score.samples)
    if score.drawn in (0, score.samples):
        return "masks drawn" if score.drawn else "masks from files"
    return f"masks of {score.drawn} of {score.samples} samples drawn, the rest from files"


def left_out(records: Sequence[Record], settings: dict[str, Any]) -> list[str]:
    """Sentences on the samples that are missing from a case, or from the runs of a variant that needs image2.png.

    settings: as in `as_json`; cases, methods and samples that it names count even without a record.
    """
    places = [(r.key.case, r.key.method, f"{r.key.dataset}/{r.key.sample}") for r in records]
    asked = (case for kind in ("densities", "patterns", "inputs") for case in settings.get(kind, []))
    samples = settings.get("samples") or list(dict.fromkeys(sample for _, _, sample in places))
    missing = {}
    for case in sorted({case for case, _, _ in places}.union(asked), key=case_order):
        found = {sample for c, _, sample in places if c == case}
        reason = f"{case_text(case)}: left out, because {why_left_out(case)}"
        missing[reason] = [sample for sample in samples if sample not in found]
    for method in dict.fromkeys([*settings.get("methods", []), *(method for _, method, _ in places)]):
        if parse_variant(method).second:
            found = {sample for _, m, sample in places if m == method}
            others = dict.fromkeys(sample for _, _, sample in places)
            missing[f"{method}: left out, because they lack image2.png"] = [s for s in others if s not in found]
    return [f"{reason}: {_some(names)}." for reason, names in missing.items() if names]


def partial_methods(scores: Sequence[Score]) -> list[str]:
    """A sentence on the methods that were measured on fewer samples than others."""
    names = dict.fromkeys(score.method for score in scores if score.partial and score.ratio is not None)
    return [f"R in parentheses is over fewer samples than the others: {', '.join(names)}."] if names else []


def kinds_of_notes(records: Sequence[Record]) -> list[str]:
    """One note of each kind and method, with its run; notes that differ in their numbers only are of one kind."""
    found: dict[tuple[str, str], str] = {}
    for record in records:
        for note in record.notes:
            kind = re.sub(r"[-+\d.e]*\d", "", note)
            found.setdefault((record.key.method, kind), f"{run_text(record.key)}: {note}")
    return list(found.values())


def _some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def write_reports(
    folder: Path,
    records: Sequence[Record],
    scores: Sequence[Score],
    reference: str,
    settings: dict[str, Any],
    durable: bool = False,
) -> list[Path]:
    """Write results.json, results.csv and results.md, all or none. durable: flush them to disk."""
    texts = {
        "results.json": json.dumps(as_json(records, scores, reference, settings), indent=1) + "\n",
        "results.csv": as_csv(records),
        "results.md": as_markdown(records, scores, reference, settings),
    }
    with publishing(durable):
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
        *([_INPUTS] if any(is_input(score.case) for score in scores) else []),
        *_scored_fields(settings),
        *left_out(records, settings),
        *partial_methods(scores),
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


def _scored_fields(settings: dict[str, Any]) -> list[str]:
    """A sentence on the fields that other programs computed."""
    folders = [f"`{name}` ({folder})" for name, folder in settings.get("fields", {}).items()]
    return [f"Fields computed by other programs, whose seconds are unknown: {', '.join(folders)}."] if folders else []


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
    files = {method for method in methods if parse_variant(method).method.endswith(WEIGHTS_SUFFIX)}
    names = {method: Path(method).name if method in files else method for method in methods}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {method: "/".join(Path(method).parts[-2:]) if name in shared else name for method, name in names.items()}
