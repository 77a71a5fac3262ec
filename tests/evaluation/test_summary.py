import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.errors import InputError
from flowinpaint.evaluation.records import Measurement, Record, RunKey
from flowinpaint.evaluation.summary import Score, summarise
from flowinpaint.masks.cases import Case
from flowinpaint.metrics import geometric_mean

KEY = RunKey("", "", 0.05, 0, "fixed", 0, "", {}, "cpu", "", "", "")
MEASURED = Measurement(0, 0, 0, 0, 0, 0, 0, None, "complete", 1)


def record(method: str, dataset: str, sample: str, epe: float | None, case: Case = 0.05) -> Record:
    key = replace(KEY, method=method, dataset=dataset, sample=sample)
    key = replace(key, density=None, mask=case) if isinstance(case, str) else replace(key, density=case)
    if epe is None:
        return Record(key, error="failed")
    return Record(key, replace(MEASURED, epe=epe, epe_unknown=2 * epe, fl=10 * epe, seconds=epe / 2))


def score(scores: list[Score], method: str, dataset: str | None, case: Case = 0.05) -> Score:
    (found,) = [s for s in scores if (s.method, s.dataset, s.case) == (method, dataset, case)]
    return found


def test_means_over_samples_then_over_data_sets_and_r_by_data_set_and_geometric() -> None:
    records = [
        record("ref", "A", "1", 1.0), record("ref", "A", "2", 3.0), record("ref", "B", "1", 8.0),
        record("new", "A", "1", 0.5), record("new", "A", "2", 0.5), record("new", "B", "1", 16.0),
    ]  # fmt: skip
    scores = summarise(records, "ref")
    first = score(scores, "new", "A")
    assert (first.epe, first.epe_unknown, first.fl, first.seconds) == (0.5, 1.0, 5.0, 0.25)
    assert first.ratio == 0.25  # a ratio of means, not the mean ratio of (0.5 + 1/6) / 2
    assert score(scores, "new", "B").ratio == 2
    total = score(scores, "new", None)
    assert total.ratio == pytest.approx(math.sqrt(0.25 * 2))
    assert total.epe == pytest.approx((0.5 + 16) / 2)  # data sets weigh the same, however many samples they have
    assert (total.samples, total.failures) == (3, 0)
    assert not any(s.partial for s in scores)
    assert not any(s.partial for s in summarise([*records, record("ref", "B", "2", None)], "ref"))
    assert all(s.ratio == 1 for s in scores if s.method == "ref")


def test_densities_are_kept_apart_and_sorted() -> None:
    records = [record(m, "A", "1", e * d, d) for d in (0.1, 0.01) for m, e in (("ref", 1), ("new", d))]
    scores = summarise(records, "ref")
    assert [s.case for s in scores] == [0.01] * 4 + [0.1] * 4
    assert score(scores, "new", None, 0.01).ratio == pytest.approx(0.01)
    assert score(scores, "new", None, 0.1).ratio == pytest.approx(0.1)


def test_patterns_are_cases_of_their_own_behind_the_densities() -> None:
    cases: list[Case] = ["single", 0.1, "lidar"]
    errors = {"single": 4.0, 0.1: 1.0, "lidar": 2.0}
    records = [record(m, "A", "1", e * errors[case], case) for case in cases for m, e in (("ref", 1), ("new", 0.5))]
    scores = summarise(records, "ref")
    assert [s.case for s in scores] == [0.1] * 4 + ["lidar"] * 4 + ["single"] * 4
    assert [score(scores, "ref", "A", case).epe for case in cases] == [4, 1, 2]
    assert [score(scores, "new", None, case).drawn for case in cases] == [1, 0, 1]
    assert all(score(scores, "new", None, case).ratio == 0.5 for case in cases)


def test_a_data_set_without_samples_in_a_case_is_not_part_of_it() -> None:
    records = [record(m, d, "1", e) for m, e in (("ref", 1.0), ("new", 0.5)) for d in "AB"]
    records += [record("ref", "A", "1", 1.0, 0.5), record("new", "A", "1", 0.25, 0.5)]
    scores = summarise(records, "ref")
    assert score(scores, "new", None, 0.5).ratio == 0.25
    assert [s.dataset for s in scores if s.case == 0.5] == ["A", None, "A", None]
    only_reference = [*records, record("ref", "B", "1", 1.0, 0.5)]
    assert score(summarise(only_reference, "ref"), "new", None, 0.5).ratio is None


def test_failures_count_and_r_compares_on_the_samples_that_both_have() -> None:
    records = [
        record("ref", "A", "1", 1.0), record("ref", "A", "2", 9.0), record("ref", "A", "3", None),
        record("new", "A", "1", 0.5), record("new", "A", "2", None), record("new", "A", "3", 4.0),
    ]  # fmt: skip
    scores = summarise(records, "ref")
    assert score(scores, "new", "A").ratio == 0.5
    assert score(scores, "new", "A").failures == 1
    assert score(scores, "new", "A").epe == 2.25
    assert all(score(scores, method, dataset).partial for method in ("ref", "new") for dataset in ("A", None))
    one_more = [*records, record("new", "A", "4", 100.0)]
    assert score(summarise(one_more, "ref"), "new", "A").ratio == 0.5


def test_without_a_figure_for_every_data_set_there_is_no_r_over_all() -> None:
    records = [record(m, d, "1", None if (m, d) == ("new", "B") else 1.0) for m in ("ref", "new") for d in "AB"]
    scores = summarise(records, "ref")
    assert score(scores, "new", "B").ratio is None
    assert score(scores, "new", "B").epe is None
    assert score(scores, "new", None).ratio is None
    assert score(scores, "ref", None).ratio == 1


def test_a_reference_without_error_gives_no_ratio() -> None:
    scores = summarise([record("ref", "A", "1", 0.0), record("new", "A", "1", 1.0)], "ref")
    assert score(scores, "new", None).ratio is None


def test_the_last_record_of_a_run_counts() -> None:
    scores = summarise([record("ref", "A", "1", 5.0), record("ref", "A", "1", 2.0)], "ref")
    assert score(scores, "ref", "A").epe == 2
    assert score(scores, "ref", "A").samples == 1


def test_a_reference_that_was_not_measured_is_named() -> None:
    with pytest.raises(InputError, match="reference must be one of the measured methods ref, got 'other'"):
        summarise([record("ref", "A", "1", 5.0)], "other")
    with pytest.raises(InputError, match="none"):
        summarise([], "ref")


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), st.floats(1e-2, 1e2))
def test_the_geometric_mean_lies_between_and_scales(values: list[float], factor: float) -> None:
    mean = geometric_mean(values)
    assert mean is not None
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)
    assert geometric_mean([factor * v for v in values]) == pytest.approx(factor * mean)
    assert geometric_mean([*values, 0.0]) == 0
    assert geometric_mean([*values, None]) is None
