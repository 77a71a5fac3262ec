"""Means over data sets, and R: a method's error relative to that of a reference method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flowinpaint.errors import InputError
from flowinpaint.evaluation.records import Measurement, Record
from flowinpaint.masks.cases import Case, case_order
from flowinpaint.metrics import geometric_mean


@dataclass(frozen=True)
class Score:
    """One method in one case (a density, pattern or input) on one data set, or over all of them if dataset is None.

    Errors and seconds are means over a data set's samples, or means of these means over all data sets; None if no
    sample was measured. ratio: R, the mean EPE relative to that of the reference method on the same samples, and over
    all data sets the geometric mean, None if one of them has none; below 1 is better than the reference. drawn: the
    number of samples whose mask was drawn instead of read from a file. given: the fraction of known pixels. wrong,
    inlier_auc: as in `Measurement`, for an input. partial: some samples were measured for other methods, but not for
    this one, so that its figures cannot be compared with theirs.
    """

    method: str
    case: Case
    dataset: str | None
    samples: int
    failures: int
    drawn: int
    ratio: float | None
    epe: float | None
    epe_unknown: float | None
    fl: float | None
    over_1: float | None
    over_3: float | None
    seconds: float | None
    given: float | None
    wrong: float | None = None
    inlier_auc: float | None = None
    partial: bool = False


_MEANS = ("epe", "epe_unknown", "fl", "over_1", "over_3", "seconds", "given", "wrong", "inlier_auc")

Group = dict[str, Record]
"""Records of one method, case and data set, by sample."""


def summarise(records: Iterable[Record], reference: str) -> list[Score]:
    """Scores by case, then method, then data set, the one over all data sets last.

    If several records have the same method, case and sample, the last is used. Data sets without a sample in a case
    are left out of it.
    """
    groups = defaultdict[tuple[Case, str, str], Group](dict)
    for record in records:
        key = record.key
        groups[key.case, key.method, key.dataset][key.sample] = record
    cases = sorted({case for case, _, _ in groups}, key=case_order)
    methods = list(dict.fromkeys(method for _, method, _ in groups))
    datasets = list(dict.fromkeys(dataset for _, _, dataset in groups))
    if reference not in methods:
        raise InputError(
            f"reference must be one of the measured methods {', '.join(methods) or '(none)'}, got {reference!r}"
        )
    scores = []
    for case in cases:
        present = [dataset for dataset in datasets if any((case, method, dataset) in groups for method in methods)]
        common = {d: set[str]().union(*(_measured(groups[case, method, d]) for method in methods)) for d in present}
        for method in methods:
            own = [
                _score(method, case, d, groups[case, method, d], groups[case, reference, d], common[d]) for d in present
            ]
            scores += [*own, _over_all(method, case, own)]
    return scores


def _measured(group: Group) -> set[str]:
    """The samples that were measured."""
    return {sample for sample, record in group.items() if record.measured is not None}


def _score(method: str, case: Case, dataset: str, group: Group, base: Group, common: set[str]) -> Score:
    measured = [record.measured for record in group.values() if record.measured is not None]
    drawn = sum(record.key.mask != "fixed" for record in group.values())
    failures = len(group) - len(measured)
    partial = _measured(group) != common
    ratio = _ratio(group, base)
    return Score(method, case, dataset, len(group), failures, drawn, ratio, **_means(measured), partial=partial)


def _over_all(method: str, case: Case, scores: Sequence[Score]) -> Score:
    samples, failures, drawn = (sum(getattr(s, name) for s in scores) for name in ("samples", "failures", "drawn"))
    ratio = geometric_mean([s.ratio for s in scores])
    partial = any(score.partial for score in scores)
    return Score(method, case, None, samples, failures, drawn, ratio, **_means(scores), partial=partial)


def _ratio(group: Group, base: Group) -> float | None:
    """Mean EPE over mean EPE on the samples where both methods succeeded; None without any, or over 0."""
    pairs = [(record.measured, base[sample].measured) for sample, record in group.items() if sample in base]
    errors = [(own.epe, other.epe) for own, other in pairs if own is not None and other is not None]
    own_sum, other_sum = sum(own for own, _ in errors), sum(other for _, other in errors)
    return own_sum / other_sum if other_sum > 0 else None


def _means(rows: Sequence[Measurement | Score]) -> dict[str, float | None]:
    present = {name: [x for row in rows if (x := getattr(row, name)) is not None] for name in _MEANS}
    return {name: sum(values) / len(values) if values else None for name, values in present.items()}
