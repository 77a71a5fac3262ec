import re
from dataclasses import replace

import pytest

from finished_evaluations import made_up
from flowinpaint.reproduction.experiment import DENSITIES, FULL, OURS
from flowinpaint.reproduction.ranking import names_at
from flowinpaint.reproduction.runs import ColumnRecord, means_of
from flowinpaint.reproduction.tables import (
    compare_with_paper,
    difference,
    table_block,
)


def results(errors: dict[str, float | None], dataset: str = "MPI-Sintel", scale: float = 1.0) -> list[ColumnRecord]:
    """Columns with these EPE at 5 %, twice that at 1 % and half of it at 10 %, and Fl of ten times that."""
    found = []
    for column, epe in errors.items():
        for density, factor in zip(DENSITIES, (2.0, 1.0, 0.5), strict=True):
            value = None if epe is None else scale * factor * epe
            record = made_up(column, density, dataset, "one", value)
            found.append((column, record))
    return found


def cells(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [re.split(r"\s*\|\s*", line.strip("| ")) for line in (lines[0], *lines[2:])]


def test_the_papers_figures_stand_below_ours_and_the_best_is_bold() -> None:
    block = table_block(means_of(results({"eed": 0.6, "ours": 0.5, "neuroexplicit": 0.5})), "MPI-Sintel", "epe")
    assert cells(block.markdown) == [
        ["given", "EED", "Ours", "neuroexplicit"],
        ["1 %", "1.200", "**1.000**", "**1.000**"],
        ["*paper*", "*0.94*", "*0.72*", "*–*"],
        ["5 %", "0.600", "**0.500**", "**0.500**"],
        ["*paper*", "*0.52*", "*0.40*", "*–*"],
        ["10 %", "0.300", "**0.250**", "**0.250**"],
        ["*paper*", "*0.43*", "*0.28*", "*–*"],
    ]
    assert block.own == 1
    assert block.title == "MPI-Sintel, EPE (px)"


def test_fl_stands_beside_the_papers_fl() -> None:
    block = table_block(means_of(results({"ours": 0.1}, "KITTI2015")), "KITTI2015", "fl")
    assert cells(block.markdown)[1:3] == [["1 %", "**2.000**"], ["*paper*", "*0.87*"]]


def test_a_data_set_that_the_paper_has_not_has_no_rows_of_it() -> None:
    block = table_block(means_of(results({"ours": 0.1}, "Middlebury")), "Middlebury", "epe")
    assert [row.label for row in block.rows] == ["1 %", "5 %", "10 %"]
    assert "not in the paper" in block.title


def test_generated_scenes_stand_beside_the_papers_training_domain() -> None:
    block = table_block(means_of(results({"ours": 0.1}, "generated")), "generated", "epe")
    assert block.rows[1].cells == ("1.01",)
    assert "FlyingThings3D" in block.title


def test_a_method_that_failed_has_a_dash_and_stands_nowhere() -> None:
    means = means_of(results({"eed": None, "ours": 0.5}))
    assert table_block(means, "MPI-Sintel", "epe").rows[0].cells == ("–", "1.000")
    found = compare_with_paper(means, OURS)["MPI-Sintel", 0.01]
    assert "EED" not in found.here
    assert found.compared == 0


def test_the_order_is_compared_with_the_papers_by_data_set_and_density() -> None:
    # In the paper all are behind Ours on Sintel; FlowNetS is between EED and LB at 1 %.
    errors = {"eed": 0.6, "laplace-beltrami": 0.4, "ours": 0.5, "flownets": 0.9, "pd": None, "neuroexplicit": 0.1}
    found = compare_with_paper(means_of(results(errors) + results(errors, "Middlebury")), OURS)
    assert list(found) == [(dataset, density) for dataset in ("MPI-Sintel", "Middlebury") for density in DENSITIES]
    sintel = found["MPI-Sintel", 0.01]
    assert names_at(sintel.here) == ["neuroexplicit, LB", "–", "EED, FlowNetS"]
    assert names_at(sintel.paper, "behind") == ["FlowNetS, LB, EED, PD"]
    assert sintel.differing == {"LB": "behind"}
    assert sintel.verdict == "no (2 of 3): LB is behind in the paper"
    assert found["Middlebury", 0.01].verdict == "nothing to compare"
    best = means_of(results(errors | {"ours": 0.2, "neuroexplicit": 0.3}))
    assert compare_with_paper(best, OURS)["MPI-Sintel", 0.05].verdict == "yes (3 of 3)"


def test_ablations_are_differences_to_full() -> None:
    means = means_of(results({"full": 0.5, "minus-mu": 0.75, "plus-beta": 0.4, "decoder-2": 0.5}))
    assert difference(means, "minus-mu", "MPI-Sintel", 0.05) == pytest.approx(0.25)
    assert difference(means, "full", "MPI-Sintel", 0.05) is None
    assert difference(means, "plus-w", "MPI-Sintel", 0.05) is None
    block = table_block(means, "MPI-Sintel")
    assert cells(block.markdown)[:3] == [
        ["given", "Full", "-μ", "+β", "decoder 2"],
        ["1 %", "1.000", "+0.500", "-0.200", "+0.000"],
        ["*paper*", "*0.72*", "*+0.17*", "*-0.02*", "*–*"],
    ]
    assert block.own == 0


def test_the_order_of_ablations_is_compared_with_the_papers() -> None:
    means = means_of(results({"full": 0.5, "minus-mu": 0.4, "plus-beta": 0.4, "plus-w": 0.6, "first-guess": 0.1}))
    found = compare_with_paper(means, FULL)
    assert found["MPI-Sintel", 0.01].differing == {"-μ": "behind"}
    assert found["MPI-Sintel", 0.01].verdict == "no (2 of 3): -μ is behind in the paper"
    assert found["MPI-Sintel", 0.1].compared == 2  # there the paper has +W level with Full
    assert found["MPI-Sintel", 0.05].differing == {"-μ": "behind", "+W": "ahead"}


def test_frames_that_a_method_failed_on_are_left_out_of_its_mean_alone() -> None:
    one = results({"ours": 1.0, "eed": 1.0})
    two = [
        (name, replace(record, key=replace(record.key, sample="two")))
        for name, record in results({"ours": 3.0, "eed": None})
    ]
    means = means_of([*one, *two])
    assert means.value("ours", "MPI-Sintel", 0.05) == 2.0
    assert means.value("eed", "MPI-Sintel", 0.05) == 1.0
    mean = means["eed", "MPI-Sintel", 0.05]
    assert (mean.failures, mean.frames, mean.error) == (1, 2, "it broke")


def test_differences_are_those_of_the_printed_figures() -> None:
    # Full is printed as 0.500 at 5 %; 0.5006 as 0.501, and so behind it, and 0.4996 as 0.500, and so level.
    means = means_of(results({"full": 0.5002, "minus-mu": 0.5006, "minus-v": 0.4996}))
    assert table_block(means, "MPI-Sintel").rows[2].cells == ("0.500", "+0.001", "+0.000")
    found = compare_with_paper(means, FULL)["MPI-Sintel", 0.05].here
    assert found == {"-v": "level", "-μ": "behind"}
