from dataclasses import replace

import pytest
from results_page.evaluations import Results, merge
from results_page.inputs import PEERS, error_table, judgement_table, relative_errors, relative_table
from results_page.page import command_text, page_text, readme_block

from finished_evaluations import REFERENCE, evaluation, grid_of_records, made_up
from flowinpaint.errors import InputError
from flowinpaint.evaluation.records import Record

EDGES, RIC = PEERS
ROBUST = "net.safetensors+robust"


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "--:" not in line]


def of_input(record: Record, wrong: float = 0.1, auc: float | None = None) -> Record:
    assert record.measured is not None
    return replace(record, measured=replace(record.measured, wrong=wrong, inlier_auc=auc))


def records_of(errors: dict[str, dict[str, float]], case: str = "sift") -> list[Record]:
    """Records of one frame with these EPE by data set and method."""
    return [
        of_input(made_up(method, case, dataset, "one", epe))  # type: ignore[arg-type]
        for dataset, own in errors.items()
        for method, epe in own.items()
    ]


@pytest.fixture
def results() -> Results:
    """EdgeAware is the better peer on A, RIC on B; one method failed with `noise` on B."""
    sift = {
        "A": {REFERENCE: 6.0, EDGES: 2.0, RIC: 4.0, ROBUST: 1.0},
        "B": {REFERENCE: 1.0, EDGES: 3.0, RIC: 0.5, ROBUST: 1.0},
    }
    noise = {"A": {REFERENCE: 1.0, EDGES: 1.0, RIC: 4.0, ROBUST: 0.5}, "B": {REFERENCE: 2.0, EDGES: 1.0, RIC: 4.0}}
    records = [*records_of(sift), *records_of(noise, "noise"), made_up(ROBUST, "noise", "B", "one", None)]
    return merge([evaluation(records)])


def test_the_better_peer_of_each_data_set_counts(results: Results) -> None:
    errors = relative_errors(results)
    assert errors[ROBUST, "sift"] == pytest.approx((1 / 2 * 1 / 0.5) ** 0.5)
    assert errors[REFERENCE, "sift"] == pytest.approx((6 / 2 * 1 / 0.5) ** 0.5)
    assert errors[EDGES, "sift"] == pytest.approx((1 * 3 / 0.5) ** 0.5)
    assert errors[EDGES, "noise"] == 1
    assert (ROBUST, "noise") not in errors
    assert cells(relative_table(results, errors)) == [
        ["method", "sift", "noise"],
        [ROBUST, "**1.000**", "–"],
        [EDGES, "2.449", "**1.000**"],
        [REFERENCE, "2.449", "1.414"],
        [RIC, "1.414", "4.000"],
    ]


def test_peers_are_compared_on_the_frames_where_they_succeeded() -> None:
    records = records_of({"A": {EDGES: 1.0, ROBUST: 2.0, REFERENCE: 1.0}})
    records += [made_up(EDGES, "sift", "A", "two", None), made_up(RIC, "sift", "A", "one", None)]
    records += [made_up(method, "sift", "A", "two", 9.0) for method in (RIC, ROBUST, REFERENCE)]
    assert relative_errors(merge([evaluation(records)]))[ROBUST, "sift"] == 2  # 2/1 on one frame, 9/9 on the other


def test_errors_of_a_data_set_are_below_what_was_given(results: Results) -> None:
    errors = relative_errors(results)
    assert cells(error_table(results, errors, "B")) == [
        ["method", "sift", "noise"],
        ["*given (%)*", "12", "12"],
        ["*wrong (%)*", "10", "10"],
        ["*frames*", "1", "1"],
        [ROBUST, "1.000", "–"],
        [EDGES, "3.000", "**1.000**"],
        [REFERENCE, "1.000", "2.000"],
        [RIC, "**0.500**", "4.000"],
    ]
    more = [*results.records, *records_of({"C": {REFERENCE: 1.0}}, "lk")]
    alone = cells(error_table(merge([evaluation(more)]), {}, "C"))
    assert alone == [
        ["method", "sift", "lk", "noise"],
        ["*given (%)*", "–", "12", "–"],
        ["*wrong (%)*", "–", "10", "–"],
        ["*frames*", "0", "1", "0"],
        [REFERENCE, "–", "1.000", "–"],
    ]


def test_without_the_peers_there_are_only_errors() -> None:
    results = merge([evaluation(records_of({"A": {REFERENCE: 1.0, "eed": 2.0}}))])
    assert relative_errors(results) == {}
    assert relative_table(results, {}) == ""
    assert "eed" in error_table(results, {}, "A")
    text = page_text(results, None, None, None)
    assert "relative EPE" not in text
    assert "**A**: EPE (px)" in text


def test_methods_that_judge_have_an_auc(results: Results) -> None:
    assert judgement_table(results) == ""
    records = [of_input(r, auc=0.9) if r.key.method == ROBUST and r.key.case == "sift" else r for r in results.records]
    judged = merge([evaluation(records)])
    assert cells(judgement_table(judged)) == [["method", "sift", "noise"], [ROBUST, "0.900", "–"]]
    assert "(AUC)" in page_text(judged, None, None, None)


def test_the_page_has_inputs_beside_the_clean_cases(results: Results) -> None:
    clean = grid_of_records({REFERENCE: 1.0, EDGES: 2.0}, [0.05, "lidar"], ["A", "B"])
    both = merge([evaluation(clean), evaluation(results.records, "two")])
    assert (both.cases, both.inputs) == ([0.05, "lidar"], ["sift", "noise"])
    text = page_text(both, None, None, None)
    order = [text.index(f"## {title}") for title in ("At random", "Patterns", "Imperfect inputs", "Comparison with")]
    assert order == sorted(order)
    section = text[order[2] : order[3]]
    assert "**All data sets**: relative EPE" in section
    assert f"| {ROBUST} | – | – | **1.000** | – |" in section
    assert ROBUST not in text[order[0] : order[2]]  # not measured on clean vectors
    assert "sift" not in text[order[0] : order[2]]
    assert f"- {ROBUST} failed at noise (1 of 2 frames)." in text
    assert "Imperfect inputs" not in page_text(merge([evaluation(clean)]), None, None, None)
    block = readme_block(both, "docs/page.md")
    assert "| method | 5 % | lidar | sift | noise |" in block
    assert "| opencv-edgeaware | 1.000 | 1.000 |" in block
    assert "](docs/page.md)" in block


def test_evaluations_of_inputs_alone_make_a_page_and_without_peers_no_table_for_the_readme(results: Results) -> None:
    assert "## Imperfect inputs" in page_text(results, None, None, None)
    assert command_text(results.evaluations[0]).endswith("--inputs sift,noise --device cpu`")
    alone = merge([evaluation(grid_of_records({REFERENCE: 1.0}, [0.05]))])
    with pytest.raises(InputError, match="evaluations must have opencv-edgeaware or opencv-ric for the table"):
        readme_block(alone, "page.md")
