from dataclasses import replace
from pathlib import Path

import pytest
from results_page.evaluations import Results, merge
from results_page.page import (
    ABOUT,
    BEGIN,
    END,
    command_text,
    page_text,
    replace_block,
)

from finished_evaluations import REFERENCE, evaluation, grid_of_records, made_up
from flowinpaint.errors import FileFormatError
from flowinpaint.evaluation.uncertainty import UncertaintyQuality
from flowinpaint.text_tables import wrapped

ERRORS = {REFERENCE: 1.0, "eed": 2.0, "/secret/mine.safetensors": 0.5}


@pytest.fixture
def results() -> Results:
    return merge([evaluation(grid_of_records(ERRORS, [0.01, 0.05, 0.1, 0.3, "lidar"]))])


def test_the_committed_page_names_the_script_that_writes_it() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "results.md"
    assert page.read_text(encoding="utf-8").startswith(f"# Results\n\n{wrapped(ABOUT)}\n\n")


def test_the_page_names_command_data_and_machine_but_no_folder(results: Results) -> None:
    text = page_text(results, None, None, None)
    flat = " ".join(text.split())
    assert (
        "`flowinpaint evaluate --root … --methods laplace-beltrami,eed,mine.safetensors --densities 1,5,10,30 "
        "--patterns lidar --device cpu`, on 4 cores, abacus, 2 threads (Linux, torch 2.0, flowinpaint 1.0)." in flat
    )
    assert "| MPI-Sintel | 2 |" in text
    assert "/secret" not in text
    assert "/home" not in text


def test_the_page_has_a_table_for_each_kind_of_case_and_data_set(results: Results) -> None:
    text = page_text(results, None, None, None)
    for title in (
        "## At random, as in the paper",
        "## Patterns",
        "## Other densities",
        "## Comparison with the paper",
    ):
        assert text.count(f"\n{title}\n") == 1
    for name in ("All data sets", "MPI-Sintel", "KITTI2015"):
        assert text.count(f"\n**{name}**\n") == 3
    assert text.count("| method | R lidar | EPE | Fl |") == 3
    assert "**Sintel (Table 1)**: EPE (px), in brackets R; 2 frames here" in text
    assert "(Table 1)**: EPE (px), in brackets R; not measured here" in text
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert max(map(len, prose)) <= 120


def test_a_data_set_has_no_table_of_cases_it_lacks() -> None:
    records = grid_of_records({REFERENCE: 1.0}, [0.05]) + grid_of_records({REFERENCE: 1.0}, [0.3], ["MPI-Sintel"])
    text = page_text(merge([evaluation(records)]), None, None, None)
    others = text.partition("## Other densities")[2].partition("## Comparison")[0]
    assert "**MPI-Sintel**" in others
    assert "**KITTI2015**" not in others


def test_failures_are_told(results: Results) -> None:
    assert "failed" not in page_text(results, None, None, None)
    records = [*results.records, made_up("amle", 0.05, "MPI-Sintel", "one", None)]
    records += [made_up("amle", "lidar", "MPI-Sintel", "one", 1.0), made_up("amle", "lidar", "MPI-Sintel", "two", None)]
    text = page_text(merge([evaluation(records)]), None, None, None)
    assert "\n- amle failed at 5 % (1 of 1 frames), lidar (1 of 2 frames).\n" in text


def test_pictures_are_shown_where_they_are_drawn(results: Results) -> None:
    text = page_text(results, "plot.png", "zoom.jpg", "sparsification.png")
    assert "](plot.png)" in text
    assert "](zoom.jpg)" in text
    assert "![" not in page_text(results, None, None, None)


def test_the_command_has_what_differs_from_the_defaults() -> None:
    one = evaluation(grid_of_records({REFERENCE: 1.0, "eed": 2.0}, [0.05]))
    more = {"seed": 3, "jobs": 2, "datasets": ["A", "B"], "parameters": {"eed": {"0.05": {"lam": 1e-4}}}}
    assert command_text(replace(one, settings=one.settings | more)) == (
        "`flowinpaint evaluate --root … --datasets A,B --methods laplace-beltrami,eed --densities 5 --seed 3 --jobs 2 "
        "--device cpu` (parameters of eed at 0.05: lam=0.0001)"
    )
    del one.settings["patterns"]  # of versions that had none
    assert "--densities 5 --device cpu`" in command_text(one)


def test_the_block_is_replaced_and_the_rest_stays() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    new = replace_block(Path("README.md"), text, "table")
    assert new == f"before\n{BEGIN}\ntable\n{END}\nafter\n"
    assert replace_block(Path("README.md"), new, "table") == new


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}", f"{BEGIN} {END} {END}"])
def test_a_file_without_one_place_is_named(text: str) -> None:
    with pytest.raises(FileFormatError, match=r"README\.md: must have one line <!-- results:begin"):
        replace_block(Path("README.md"), text, "table")


def test_predicted_errors_have_a_table_with_the_true_ones() -> None:
    told = UncertaintyQuality(0.5, 0.6, 0.9, 0.85, [1.0, 0.5], [1.0, 0.8], [1.0, 0.4])
    records = grid_of_records({REFERENCE: 1.0, "network.safetensors": 0.5}, [0.01, 0.05])
    assert "## Expected errors" not in page_text(merge([evaluation(records)]), None, None, None)
    records = [
        replace(r, measured=replace(r.measured, uncertainty=told)) if r.measured and "network" in r.key.method else r
        for r in records
    ]
    results = merge([evaluation(records)])
    text = page_text(results, None, None, "s.png")
    assert "![Sparsification curves, and the oracle's](s.png)" in text
    # Curves of two points, half a share apart: the areas above the oracle's are 0.1 / 2 / 2 and 0.4 / 2 / 2.
    for case in ("1 %", "5 %"):
        assert f"| network.safetensors | {case} | 0.500 | 0.600 | 90.0 | 85.0 | 0.025 | 0.100 |" in text
