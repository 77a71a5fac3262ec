"""The tables of the page of results, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from flowinpaint.evaluation.finished import Results, short_names
from flowinpaint.evaluation.foresight import Foresight, mean_foresight
from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES, PAPER_METHODS, PaperTable
from flowinpaint.evaluation.summary import geometric_mean
from flowinpaint.masks.cases import Case, case_text

WIDEST = 4
"""Cases in a table at most: each has three columns."""
NONE = "–"
_HELD_BY_MANY = ("lidar", "holes")
"""Patterns that the README's table has."""


def case_groups(cases: Sequence[Case]) -> dict[str, list[list[Case]]]:
    """The cases of each table, by the heading of their section: the paper's densities, patterns, other densities."""
    groups: dict[str, list[Case]] = {
        "At random, as in the paper": [case for case in cases if case in PAPER_DENSITIES],
        "Patterns": [case for case in cases if isinstance(case, str)],
        "Other densities": [case for case in cases if not isinstance(case, str) and case not in PAPER_DENSITIES],
    }
    return {title: _in_parts(group) for title, group in groups.items() if group}


def _in_parts(cases: list[Case]) -> list[list[Case]]:
    """The cases in as few parts as can be, of about the same length."""
    tables = -(-len(cases) // WIDEST)
    length = -(-len(cases) // tables)
    return [cases[i : i + length] for i in range(0, len(cases), length)]


def ordered_methods(results: Results, cases: Sequence[Case]) -> list[str]:
    """The methods that were measured in one of the cases, by the geometric mean of their R over all data sets."""

    def place(method: str) -> float:
        ratios = [_value(results, method, case, None, "ratio") for case in cases]
        mean = geometric_mean([ratio for ratio in ratios if ratio is not None])
        return math.inf if mean is None else mean

    measured = [m for m in results.methods if any(_value(results, m, case, None, "epe") is not None for case in cases)]
    return sorted(measured, key=place)


def score_table(results: Results, cases: Sequence[Case], dataset: str | None) -> str:
    """R, EPE and Fl of the methods in a few cases, on a data set or over all; the best of a column in bold."""
    names = short_names(results.methods)
    figures = [(case, *figure) for case in cases for figure in (("ratio", 3), ("epe", 3), ("fl", 2))]
    headings = ["method", *(text for case in cases for text in (f"R {case_text(case)}", "EPE", "Fl"))]
    methods = ordered_methods(results, cases)
    columns = [[names[method] for method in methods]]
    for case, name, digits in figures:
        columns.append(best_in_bold([_value(results, method, case, dataset, name) for method in methods], digits))
    return markdown_table(headings, list(zip(*columns, strict=True)))


def foresight_table(results: Results) -> str:
    """What methods that foresee their errors expected and what came, case by case, means over all frames; or ""."""
    names = short_names(results.methods)
    headings = ["method", "given", "EPE unknown", "expected", "within 1 px (%)", "confidence (%)", "AUSE", "distance's"]
    rows = []
    for method in results.methods:
        for case in results.cases:
            parts = foresights(results, method, case)
            if parts:
                mean = mean_foresight(parts)
                shares = (f"{100 * share:.1f}" for share in (mean.within_1, mean.confidence))
                areas = (f"{part.ause:.3f}" for part in (mean.by_expected, mean.by_distance))
                rows.append(
                    [names[method], case_text(case), f"{mean.error:.3f}", f"{mean.expected:.3f}", *shares, *areas]
                )
    return markdown_table(headings, rows) if rows else ""


def foresights(results: Results, method: str, case: Case) -> list[Foresight]:
    """How well a method foresaw its errors on each frame of a case; none if it does not."""
    measured = [r.measured for r in results.records if (r.key.method, r.key.case) == (method, case)]
    return [m.foresight for m in measured if m is not None and m.foresight is not None]


def paper_table(results: Results, table: PaperTable, dataset: str | None) -> str:
    """A table of the paper beside what was measured on a data set, or alone; with R in brackets where it is of EPE."""
    names = short_names(results.methods)
    densities = [density for density in PAPER_DENSITIES if density in results.cases or dataset is None]
    known = set(PAPER_METHODS.values())
    methods = [] if dataset is None else ordered_methods(results, densities)
    methods += [method for method in PAPER_METHODS if method not in methods]
    rows = []
    for method in [*methods, *(name for name in table.values if name not in known)]:
        here: list[str] = []
        for density in densities:
            score = None if dataset is None else results.score(method, density, dataset)
            own = (None, None) if score is None else (getattr(score, table.figure), score.ratio)
            cells = [(*own, 3 if table.figure == "epe" else 2)] if dataset is not None else []
            cells.append((table.value(method, density), table.ratio(method, density), 2))
            here += [_with_ratio(value, ratio, digits, table.figure) for value, ratio, digits in cells]
        paper_name = PAPER_METHODS.get(method)
        title = names.get(method, method) + (f" ({paper_name})" if paper_name else "")
        if set(here) != {NONE}:
            rows.append([title, *here])
    pair = ("paper",) if dataset is None else ("here", "paper")
    return markdown_table(["method", *(f"{case_text(d)} {text}" for d in densities for text in pair)], rows)


def dataset_table(results: Results) -> str:
    """The data sets: their frames, and which of their masks were files and which drawn."""
    rows = []
    for dataset in results.datasets:
        frames = results.samples(dataset)
        files, drawn = list[str](), list[str]()
        for case in results.cases:
            scores = [s for s in results.scores if (s.case, s.dataset) == (case, dataset)]
            if not scores:
                continue
            score = max(scores, key=lambda score: score.samples)
            text = case_text(case)
            if isinstance(case, str) and score.given is not None:
                text += f" ({100 * score.given:.2g} %)"
            if score.samples < frames:
                text += f" on {score.samples}"
            if score.drawn < score.samples:
                files.append(text)
            if score.drawn:
                drawn.append(text)
        rows.append([dataset, str(frames), ", ".join(files) or NONE, ", ".join(drawn) or NONE])
    return markdown_table(["data set", "frames", "masks from files", "masks drawn"], rows, words=(0, 2, 3))


def readme_table(results: Results, densities: Sequence[Case], middle: Case) -> str:
    """R at some densities and of what users hold most, and EPE, Fl and seconds at one density, over all data sets."""
    names = short_names(results.methods)
    rated = [*dict.fromkeys([*densities, *(case for case in results.cases if case in _HELD_BY_MANY)])]
    headings = ["method", *(f"R at {case_text(c)}" if i == 0 else case_text(c) for i, c in enumerate(rated))]
    headings += [f"EPE at {case_text(middle)} (px)", f"Fl at {case_text(middle)} (%)", "seconds"]
    methods = ordered_methods(results, densities)
    columns = [[names[method] for method in methods]]
    figures = [*((case, "ratio", 2) for case in rated), (middle, "epe", 3), (middle, "fl", 2)]
    for case, name, digits in figures:
        columns.append(best_in_bold([_value(results, method, case, None, name) for method in methods], digits))
    columns.append([_seconds(_value(results, method, middle, None, "seconds")) for method in methods])
    return markdown_table(headings, list(zip(*columns, strict=True)))


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Lines of a table; the columns with words are flush left, all others are numbers."""
    rule = "|" + "|".join("---" if i in words else "--:" for i in range(len(headings))) + "|"
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def best_in_bold(values: Sequence[float | None], digits: int) -> list[str]:
    """The numbers as text, a dash for None, and in bold those that read as the smallest unless all do."""
    texts = [number(value, digits) for value in values]
    present = [text for text in texts if text != NONE]
    best = min(present, key=float, default=NONE)
    return [f"**{text}**" if text == best != NONE and set(present) != {best} else text for text in texts]


def number(value: float | None, digits: int) -> str:
    """A number as text, a dash for None."""
    return NONE if value is None else f"{value:.{digits}f}"


def _with_ratio(value: float | None, ratio: float | None, digits: int, figure: str) -> str:
    text = number(value, digits)
    return text if value is None or ratio is None or figure != "epe" else f"{text} ({ratio:.2f})"


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}" if value >= 10 else f"{value:.2f}"


def _value(results: Results, method: str, case: Case, dataset: str | None, name: str) -> float | None:
    score = results.score(method, case, dataset)
    value: float | None = None if score is None else getattr(score, name)
    return value
