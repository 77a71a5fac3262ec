"""Tables of imperfect inputs, and of errors relative to OpenCV's, for the results page and the README."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from flowinpaint.evaluation.report import percent, short_names
from flowinpaint.evaluation.summary import summarise
from flowinpaint.masks.cases import Case, case_text
from flowinpaint.metrics import geometric_mean
from flowinpaint.text_tables import NONE, markdown_table, number
from results_page.evaluations import Results
from results_page.tables import best_in_bold

PEERS = ("opencv-edgeaware", "opencv-ric")
"""The methods that the relative error compares with."""

Errors = dict[tuple[str, Case], float]
"""The relative error by method and input."""


def relative_errors(results: Results) -> Errors:
    """EPE relative to that of the better peer of each data set, as geometric mean over data sets.

    On a data set, a method is compared with each peer on the frames where both succeeded; the larger ratio counts. A
    method without a ratio on one of the data sets has no mean.
    """
    by_peer = [summarise(results.records, peer) for peer in PEERS if peer in results.methods]
    ratios: dict[tuple[str, Case], dict[str, list[float]]] = {}
    for score in (score for scores in by_peer for score in scores):
        if score.dataset is not None:
            own = ratios.setdefault((score.method, score.case), {}).setdefault(score.dataset, [])
            own += [] if score.ratio is None else [score.ratio]
    means = {key: geometric_mean([max(r, default=None) for r in own.values()]) for key, own in ratios.items()}
    return {key: mean for key, mean in means.items() if mean is not None}


def relative_table(results: Results, errors: Errors) -> str:
    """Relative errors of methods (rows), clean and with inputs (columns), sorted by their mean; "" without any."""
    cases = [*results.cases, *results.inputs]
    return _table(results, _ordered(results, errors), lambda method, case: errors.get((method, case)), cases=cases)


def error_table(results: Results, errors: Errors, dataset: str) -> str:
    """EPE (px) of methods (rows) with inputs (columns) on a data set, below what was given; "" if not measured."""
    given: list[list[str]] = [["*given (%)*"], ["*wrong (%)*"], ["*frames*"]]
    for case in results.inputs:
        scores = [s for s in results.scores if (s.case, s.dataset) == (case, dataset)]
        best = max(scores, key=lambda score: score.samples - score.failures, default=None)
        shares = (None, None) if best is None else (best.given, best.wrong)
        texts = [NONE if share is None else percent(share) for share in shares]
        for row, text in zip(given, [*texts, str(best.samples if best else 0)], strict=True):
            row.append(text)
    return _table(results, _ordered(results, errors), lambda m, case: results.figure("epe", m, case, dataset), given)


def judgement_table(results: Results) -> str:
    """The AUC over all data sets of methods (rows) that judge the vectors of inputs (columns); "" without any."""
    names = short_names(results.methods)
    rows = []
    for method in results.methods:
        found = [results.figure("inlier_auc", method, case, None) for case in results.inputs]
        if any(value is not None for value in found):
            rows.append([names[method], *(number(value, 3) for value in found)])
    return markdown_table(["method", *map(case_text, results.inputs)], rows) if rows else ""


def _table(
    results: Results,
    methods: Sequence[str],
    figure: Callable[[str, Case], float | None],
    first: Sequence[Sequence[str]] = (),
    cases: Sequence[Case] | None = None,
) -> str:
    """A table of figures by method and input, the best of a column in bold; "" without any figure."""
    names, cases = short_names(results.methods), results.inputs if cases is None else cases
    columns = [best_in_bold([figure(method, case) for method in methods], 3) for case in cases]
    rows = [[names[m], *cells] for m, *cells in zip(methods, *columns, strict=True) if set(cells) != {NONE}]
    return markdown_table(["method", *map(case_text, cases)], [*first, *rows]) if rows else ""


def _ordered(results: Results, errors: Errors) -> list[str]:
    """The methods, sorted by the geometric mean of their relative errors; those without any come last."""

    def mean(method: str) -> float:
        found = geometric_mean([errors[method, case] for case in results.inputs if (method, case) in errors])
        return math.inf if found is None else found

    return sorted(results.methods, key=mean)
