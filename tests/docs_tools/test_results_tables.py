import re

import pytest
from results_page.evaluations import Results, merge
from results_page.tables import (
    best_in_bold,
    case_groups,
    dataset_table,
    ordered_methods,
    paper_ratio,
    paper_table,
    score_table,
)

from finished_evaluations import REFERENCE, evaluation, grid_of_records, made_up
from flowinpaint.evaluation.paper_figures import PAPER_TABLES
from flowinpaint.masks.cases import Case
from flowinpaint.text_tables import markdown_table


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table, its rule left out."""
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) for line in table.splitlines()]
    assert len({line.count("|") for line in table.splitlines()}) == 1
    return [rows[0], *rows[2:]]


@pytest.fixture
def results() -> Results:
    errors = {"nearest": 2.0, REFERENCE: 1.0, "mine/net.safetensors": 0.5}
    return merge([evaluation(grid_of_records(errors, [0.01, 0.05, 0.1, "lidar"]))])


def test_cases_are_grouped_in_tables_that_fit() -> None:
    cases: list[Case] = [0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 0.5, "lidar", "single"]
    assert case_groups(cases) == {
        "At random, as in the paper": [[0.01, 0.05, 0.1]],
        "Patterns": [["lidar", "single"]],
        "Other densities": [[0.001, 0.003, 0.03], [0.3, 0.5]],
    }
    assert case_groups(["grid"]) == {"Patterns": [["grid"]]}


def test_scores_are_by_case_with_the_best_in_bold(results: Results) -> None:
    table = cells(score_table(results, [0.05, "lidar"], "KITTI2015"))
    assert table == [
        ["method", "R 5 %", "EPE", "Fl", "R lidar", "EPE", "Fl"],
        ["net.safetensors", "**0.500**", "**0.750**", "**7.50**", "**0.500**", "**0.750**", "**7.50**"],
        [REFERENCE, "1.000", "1.500", "15.00", "1.000", "1.500", "15.00"],
        ["nearest", "2.000", "3.000", "30.00", "2.000", "3.000", "30.00"],
    ]
    assert cells(score_table(results, [0.05, "lidar"], None)) == table  # both data sets are alike


def test_methods_without_a_figure_have_dashes_and_come_last() -> None:
    records = grid_of_records({"nearest": 2.0, REFERENCE: 1.0}, [0.01, 0.05])
    records += [made_up("eed", 0.05, "MPI-Sintel", "one", 0.1), made_up("amle", "grid", "MPI-Sintel", "one", 0.1)]
    results = merge([evaluation(records)])
    assert ordered_methods(results, [0.01, 0.05]) == [REFERENCE, "nearest", "eed"]  # no R over all data sets
    table = cells(score_table(results, [0.01, 0.05], "MPI-Sintel"))
    assert table[3][:4] == ["eed", "–", "–", "–"]
    assert table[3][4:] == ["**0.100**", "**0.100**", "**1.00**"]


def test_methods_are_in_the_order_of_the_mean_r_they_have() -> None:
    records = grid_of_records({REFERENCE: 1.0, "eed": 1.2}, [0.01, 0.05]) + grid_of_records({"amle": 1.1}, [0.05])
    assert ordered_methods(merge([evaluation(records)]), [0.01, 0.05]) == [REFERENCE, "amle", "eed"]


def test_the_papers_figures_stand_beside_the_measured_ones(results: Results) -> None:
    table = cells(paper_table(results, PAPER_TABLES[0], "MPI-Sintel"))
    assert table[0] == [
        "method", "1 % here", "1 % paper", "5 % here", "5 % paper", "10 % here", "10 % paper"
    ]  # fmt: skip
    rows = {row[0]: row[1:] for row in table[1:]}
    assert rows["net.safetensors"] == ["0.750 (0.50)", "–"] * 3
    assert rows["laplace-beltrami (LB)"][:4] == ["1.500 (1.00)", "0.86 (1.00)", "1.500 (1.00)", "0.43 (1.00)"]
    assert rows["neuroexplicit-paper (Ours)"][:4] == ["–", "0.72 (0.84)", "–", "0.40 (0.93)"]
    assert rows["PD"][1::2] == ["2.39 (2.78)", "0.55 (1.28)", "0.40 (1.29)"]
    outliers = {row[0]: row[1:] for row in cells(paper_table(results, PAPER_TABLES[3], "KITTI2015"))[1:]}
    assert outliers["laplace-beltrami (LB)"] == ["15.00", "0.94", "15.00", "0.26", "15.00", "0.11"]
    assert "PD" not in outliers  # which the paper has not measured there


def test_the_papers_figures_stand_alone_where_nothing_was_measured(results: Results) -> None:
    table = cells(paper_table(results, PAPER_TABLES[1], None))
    assert table[0] == ["method", "1 % paper", "5 % paper", "10 % paper"]
    assert table[1] == ["neuroexplicit-paper (Ours)", "1.01 (0.50)", "0.55 (0.55)", "0.39 (0.52)"]
    assert len(table) == 8


def test_data_sets_tell_frames_and_where_masks_are_from() -> None:
    records = grid_of_records({REFERENCE: 1.0}, [0.05, "lidar"])
    records += [made_up(REFERENCE, 0.3, "KITTI2015", "one", 1.0, mask="random")]
    records += [made_up(REFERENCE, 0.1, "KITTI2015", "one", 1.0, mask="random")]
    records += [made_up(REFERENCE, 0.1, "KITTI2015", "two", 1.0)]
    assert cells(dataset_table(merge([evaluation(records)]))) == [
        ["data set", "frames", "masks from files", "masks drawn"],
        ["MPI-Sintel", "2", "5 %", "lidar (12 %)"],
        ["KITTI2015", "2", "5 %, 10 %", "10 %, 30 % on 1, lidar (12 %)"],
    ]


def test_what_reads_as_the_smallest_is_bold() -> None:
    assert best_in_bold([1.0, None, 0.5, 0.5004], 3) == ["1.000", "–", "**0.500**", "**0.500**"]
    assert best_in_bold([1.0, 1.0], 2) == ["1.00", "1.00"]
    assert best_in_bold([None, None], 2) == ["–", "–"]
    assert best_in_bold([10.0, 9.0], 1) == ["10.0", "**9.0**"]
    assert best_in_bold([], 1) == []


def test_words_are_left_and_numbers_right() -> None:
    assert (
        markdown_table(["a", "b", "c"], [["x", "1", "y"]], words=(0, 2))
        == "| a | b | c |\n|---|--:|---|\n| x | 1 | y |"
    )


def test_the_papers_ratios_are_to_its_laplace_beltrami() -> None:
    assert paper_ratio(PAPER_TABLES[0], "neuroexplicit-paper", 0.05) == pytest.approx(0.40 / 0.43)
    for table in PAPER_TABLES:
        assert paper_ratio(table, REFERENCE, 0.05) == 1
        assert paper_ratio(table, "harmonic", 0.05) is None
