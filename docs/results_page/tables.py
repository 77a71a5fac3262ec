"""Markdown tables of the results page and of the README."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES, PAPER_METHODS, PaperTable
from flowinpaint.evaluation.report import short_names
from flowinpaint.masks.cases import Case, case_text
from flowinpaint.metrics import geometric_mean
from flowinpaint.text_tables import NONE, markdown_table, number
from results_page.evaluations import Results, mean_quality

WIDEST = 4
"""The largest number of cases in a table; each has three columns."""


def case_groups(cases: Sequence[Case]) -> dict[str, list[list[Case]]]:
    """The cases of each table, by the heading of their section."""
    groups: dict[str, list[Case]] = {
        "At random, as in the paper": [case for case in cases if case in PAPER_DENSITIES],
        "Patterns": [case for case in cases if isinstance(case, str)],
        "Other densities": [case for case in cases if not isinstance(case, str) and case not in PAPER_DENSITIES],
    }
    return {title: _in_parts(group) for title, group in groups.items() if group}


def _in_parts(cases: list[Case]) -> list[list[Case]]:
    """The cases in the fewest parts of at most WIDEST, of similar lengths."""
    tables = -(-len(cases) // WIDEST)
    length = -(-len(cases) // tables)
    return [cases[i : i + length] for i in range(0, len(cases), length)]


def ordered_methods(results: Results, cases: Sequence[Case]) -> list[str]:
    """The methods measured in one of the cases, sorted by the geometric mean of their R over all data sets."""

    def mean_ratio(method: str) -> float:
        ratios = [results.figure("ratio", method, case, None) for case in cases]
        mean = geometric_mean([ratio for ratio in ratios if ratio is not None])
        return math.inf if mean is None else mean

    measured = [m for m in results.methods if any(results.figure("epe", m, c, None) is not None for c in cases)]
    return sorted(measured, key=mean_ratio)


def score_table(results: Results, cases: Sequence[Case], dataset: str | None) -> str:
    """R, EPE and Fl of the methods in a few cases, on a data set or over all; the best of a column in bold."""
    headings = ["method", *(text for case in cases for text in (f"R {case_text(case)}", "EPE", "Fl"))]
    figures = [(case, *figure) for case in cases for figure in (("ratio", 3), ("epe", 3), ("fl", 2))]
    methods = ordered_methods(results, cases)
    columns = _columns(results, methods, figures, dataset)
    return markdown_table(headings, list(zip(*columns, strict=True)))


def _columns(
    results: Results, methods: Sequence[str], figures: Sequence[tuple[Case, str, int]], dataset: str | None
) -> list[list[str]]:
    """The short names of methods, and columns of figures: case, name and decimals."""
    names = short_names(results.methods)
    columns = [[names[method] for method in methods]]
    for case, name, digits in figures:
        columns.append(best_in_bold([results.figure(name, method, case, dataset) for method in methods], digits))
    return columns


def uncertainty_table(results: Results) -> str:
    """Expected and true errors of the methods that predict their errors, as means over all frames; "" without any."""
    names = short_names(results.methods)
    headings = ["method", "given", "EPE unknown", "expected", "within 1 px (%)", "confidence (%)", "AUSE", "distance's"]
    rows = []
    for method in results.methods:
        for case in results.cases:
            if parts := results.qualities(method, case):
                mean = mean_quality(parts)
                errors = [f"{error:.3f}" for error in (mean.error, mean.expected)]
                shares = [f"{100 * share:.1f}" for share in (mean.within_1, mean.confidence)]
                areas = [f"{part.ause:.3f}" for part in (mean.by_expected, mean.by_distance)]
                rows.append([names[method], case_text(case), *errors, *shares, *areas])
    return markdown_table(headings, rows) if rows else ""


def paper_table(results: Results, table: PaperTable, dataset: str | None) -> str:
    """A table of the paper next to the results on a data set, or alone; tables of EPE have R in brackets."""
    names = short_names(results.methods)
    densities = [density for density in PAPER_DENSITIES if density in results.cases or dataset is None]
    known = set(PAPER_METHODS.values())
    methods = [] if dataset is None else ordered_methods(results, densities)
    methods += [method for method in PAPER_METHODS if method not in methods]
    rows = []
    for method in [*methods, *(name for name in table.values if name not in known)]:
        cells: list[str] = []
        for density in densities:
            if dataset is not None:
                value, ratio = (results.figure(name, method, density, dataset) for name in (table.figure, "ratio"))
                cells.append(_with_ratio(value, ratio, 3 if table.figure == "epe" else 2, table.figure))
            cells.append(
                _with_ratio(table.value(method, density), paper_ratio(table, method, density), 2, table.figure)
            )
        paper_name = PAPER_METHODS.get(method)
        title = names.get(method, method) + (f" ({paper_name})" if paper_name else "")
        if set(cells) != {NONE}:
            rows.append([title, *cells])
    pair = ("paper",) if dataset is None else ("here", "paper")
    return markdown_table(["method", *(f"{case_text(d)} {text}" for d in densities for text in pair)], rows)


def paper_ratio(table: PaperTable, method: str, density: float) -> float | None:
    """R: a figure of the paper over that of Laplace-Beltrami."""
    own, other = table.value(method, density), table.value("laplace-beltrami", density)
    return None if own is None or not other else own / other


def dataset_table(results: Results) -> str:
    """The data sets: their frames, and which of their masks were files or drawn."""
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


def best_in_bold(values: Sequence[float | None], digits: int) -> list[str]:
    """The numbers as text, a dash for None; the smallest in bold, unless all read the same."""
    texts = [number(value, digits) for value in values]
    present = [text for text in texts if text != NONE]
    best = min(present, key=float, default=NONE)
    return [f"**{text}**" if text == best != NONE and set(present) != {best} else text for text in texts]


def _with_ratio(value: float | None, ratio: float | None, digits: int, figure: str) -> str:
    text = number(value, digits)
    return text if value is None or ratio is None or figure != "epe" else f"{text} ({ratio:.2f})"
