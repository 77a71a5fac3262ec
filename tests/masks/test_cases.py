"""The patterns of an evaluation, and the names and order of its cases."""

import numpy as np
import pytest
from scipy import ndimage

from flowinpaint.errors import InputError
from flowinpaint.masks.cases import (
    INPUTS,
    PATTERNS,
    Case,
    Pattern,
    case_label,
    case_order,
    case_text,
    check_inputs,
    check_patterns,
    drawn_mask,
    is_input,
    mask_case,
    nominal_share,
)

SIZE = (436, 1024)
ALL = np.ones(SIZE, np.bool_)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_only_valid_pixels_are_given_and_always_one(pattern: Pattern) -> None:
    valid = np.random.default_rng(0).random((40, 60)) < 0.3
    drawn = drawn_mask(pattern, (40, 60), 7, valid)
    assert drawn.any()
    assert not (drawn & ~valid).any()
    assert np.array_equal(drawn, drawn_mask(pattern, (40, 60), 7, valid))
    for place in ((0, 0), (39, 59), (5, 30)):
        one = np.zeros((40, 60), np.bool_)
        one[place] = True
        assert np.array_equal(drawn_mask(pattern, (40, 60), 7, one), one)
    assert drawn_mask(pattern, (1, 1), 7, np.ones((1, 1), np.bool_)).all()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_seed_decides_all_but_the_grid(pattern: Pattern) -> None:
    first, second = (drawn_mask(pattern, SIZE, seed, ALL) for seed in (1, 2))
    assert np.array_equal(first, second) == (pattern == "grid")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_nominal_share_is_about_that_of_a_frame(pattern: Pattern) -> None:
    shares = [drawn_mask(pattern, SIZE, seed, ALL).mean() for seed in range(5)]
    assert np.mean(shares) == pytest.approx(nominal_share(pattern), rel=0.25)


def test_lidar_has_64_lines_and_an_empty_sky() -> None:
    mask = drawn_mask("lidar", SIZE, 3, ALL)
    assert not mask[: int(0.35 * 436)].any()
    # Around the middle column lines are nearly level: rows with a point belong to one each.
    _, lines = ndimage.label(mask[:, 462:562].any(1))
    assert 45 < lines <= 65


def test_holes_are_three_and_large_in_a_tenth() -> None:
    known = [drawn_mask("holes", SIZE, seed, ALL) for seed in range(6)]
    for mask in known:
        empty = ndimage.uniform_filter(mask.astype(float), 41) < 1e-3  # 41 x 41 px of 10 % are never empty by chance
        _, count = ndimage.label(empty)
        assert 1 <= count <= 3
        assert mask[~ndimage.binary_dilation(empty, iterations=150)].mean() == pytest.approx(0.1, abs=0.01)
    assert np.mean(known) < 0.095


def test_a_grid_has_a_point_in_each_16_pixels_and_single_is_one() -> None:
    rows, columns = np.nonzero(drawn_mask("grid", SIZE, 3, ALL))
    assert set(np.diff(np.unique(rows))) == {16}
    assert set(np.diff(np.unique(columns))) == {16}
    assert drawn_mask("single", SIZE, 3, ALL).sum() == 1


def test_cases_have_a_text_a_label_an_order_and_a_share() -> None:
    cases: list[Case] = ["single", 0.1, "noise", "lidar", 0.005, "sift", 0.01]
    assert sorted(cases, key=case_order) == [0.005, 0.01, 0.1, "lidar", "single", "sift", "noise"]
    assert [case_text(case) for case in cases] == ["single", "10 %", "noise", "lidar", "0.5 %", "sift", "1 %"]
    assert [case_label(d) for d in (0.01, 0.05, 0.1, 0.005, 1.0, 0.07, 0.0333)] == [
        "01", "05", "10", "0.5", "100", "07", "3.33"
    ]  # fmt: skip
    assert case_label("holes") == "holes"
    assert nominal_share(0.3) == 0.3
    assert nominal_share("grid") == 1 / 256


def test_patterns_are_checked_and_put_in_order() -> None:
    assert check_patterns(["single", "lidar", "single"]) == ["lidar", "single"]
    with pytest.raises(InputError, match="--patterns must be among lidar, holes, grid, single, got 'rain'"):
        check_patterns(["lidar", "rain"], "--patterns")


def test_inputs_are_checked_and_put_in_order() -> None:
    assert check_inputs(["noise", "sift", "noise"]) == ["sift", "noise"]
    with pytest.raises(InputError, match=r"--inputs must be among sift, orb, lk, dis, noise, .*, got 'rain'"):
        check_inputs(["sift", "rain"], "--inputs")
    assert not INPUTS.keys() & PATTERNS.keys()
    assert [is_input(case) for case in ("sift", "noise", "given", "lidar", 0.05)] == [True, True, True, False, False]


def test_corrupted_inputs_use_the_mask_of_a_density() -> None:
    assert [mask_case(case) for case in ("noise", "outliers", "gross")] == [0.05, 0.05, 0.01]
    assert [mask_case(case) for case in ("sift", "given", "lidar", 0.3)] == ["sift", "given", "lidar", 0.3]
    assert nominal_share("gross") == 0.01
