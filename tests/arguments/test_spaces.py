"""Spaces and bounds: exact values stay, errors are converted to first order, and results stay within bounds."""

from typing import Any

import numpy as np
import pytest

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene

IMAGE, _ = sample_scene(64, 96, seed=2)
Y, X = np.mgrid[:64, :96]
PLANE = (60 / (1 + 0.2 * Y + 0.02 * X)).astype(np.float32)  # 1/depth is linear in the image
MASK = np.random.default_rng(0).random((64, 96)) < 0.05
DEPTH = np.where(MASK, PLANE, np.nan).astype(np.float32)


@pytest.mark.parametrize("space", ["inverse", "log"])
@pytest.mark.parametrize("method", ["harmonic", "neuroexplicit"])
def test_known_values_stay_exactly_and_planes_gain(space: Any, method: str) -> None:
    result = fi.inpaint(IMAGE, DEPTH, method=method, space=space)
    assert result.flow[MASK].tobytes() == PLANE[MASK].tobytes()
    plain = fi.inpaint(IMAGE, DEPTH, method=method).flow
    assert np.abs(1 / result.flow - 1 / PLANE).mean() < 0.8 * np.abs(1 / plain - 1 / PLANE).mean()


def test_the_inverse_space_is_a_fill_of_the_inverse() -> None:
    inverse = fi.inpaint(IMAGE, 1 / DEPTH)
    result = fi.inpaint(IMAGE, DEPTH, space="inverse")
    np.testing.assert_allclose(result.flow[~MASK], 1 / inverse.flow[~MASK], rtol=1e-5)
    np.testing.assert_allclose(result.expected_error, inverse.expected_error * result.flow**2, rtol=1e-4)
    np.testing.assert_allclose(result.confidence, -np.expm1(-1 / result.expected_error.clip(1e-30)), atol=1e-5)


@pytest.mark.parametrize("space", ["linear", "inverse", "log"])
def test_noise_is_told_in_the_unit_of_the_field(space: Any) -> None:
    rng = np.random.default_rng(1)
    noisy = np.where(rng.random(DEPTH.shape) < 0.3, PLANE + rng.normal(0, 0.5, DEPTH.shape), np.nan).clip(0.5)
    result = fi.inpaint(IMAGE, noisy, method="harmonic", space=space, robust=True)
    assert result.info["noise"] is not None
    assert 0.1 < result.info["noise"] < 1.5
    told = fi.inpaint(IMAGE, noisy, method="harmonic", space=space, noise=0.5)
    assert told.info["noise"] == pytest.approx(0.5, rel=0.5)


def test_bounds_hold_where_nothing_is_given() -> None:
    low, high = 4.0, 20.0
    cases: tuple[dict[str, Any], ...] = ({}, {"space": "inverse"}, {"space": "log", "robust": True})
    for keywords in cases:
        with pytest.warns(UserWarning, match=r"bounds: \d+ of \d+ known values are outside 4 to 20; they are kept"):
            result = fi.inpaint(IMAGE, DEPTH, method="harmonic", bounds=(low, high), **keywords)
        assert low <= result.flow[~MASK].min() <= result.flow[~MASK].max() <= high
        if "robust" not in keywords:
            assert result.flow[MASK].tobytes() == PLANE[MASK].tobytes()
    assert fi.inpaint(IMAGE, DEPTH, bounds=(None, 900)).flow.max() < 900


def test_an_inverse_fill_is_positive_and_finite_without_bounds() -> None:
    steep = np.where(MASK, np.where(X > 48, 0.5, 500.0), np.nan)
    filled = fi.inpaint(IMAGE, steep, method="eed", space="inverse").flow
    assert 0.25 <= filled.min() <= filled.max() <= 1000


@pytest.mark.parametrize(
    ("keywords", "match"),
    [
        ({"space": "reciprocal"}, "space must be one of linear, inverse, log, got 'reciprocal'"),
        ({"space": "log", "flow": -DEPTH}, "flow must be above 0 where known for space='log', got -"),
        ({"bounds": 3}, "bounds must be a pair"),
        ({"bounds": (3, "a")}, "bounds must be a pair"),
        ({"bounds": (3, 3)}, r"bounds must be a pair low < high, got \(3, 3\)"),
        ({"bounds": (np.nan, 3)}, "bounds must be a pair low < high"),
        ({"bounds": (-5, -3), "space": "inverse"}, "bounds must allow values above 0"),
    ],
)
def test_wrong_spaces_and_bounds_are_errors(keywords: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        fi.inpaint(IMAGE, **{"flow": DEPTH, **keywords})  # type: ignore[arg-type]


def test_bounds_without_any_known_value_are_an_error_and_errors_stay_within_the_range() -> None:
    with pytest.raises(ValueError, match=r"bounds must include known values, which are .* got 5000 to 6000"):
        fi.inpaint(IMAGE, DEPTH, bounds=(5000, 6000))
    result = fi.inpaint(IMAGE, DEPTH, space="inverse")
    assert result.expected_error.max() <= np.ptp(result.flow)


@pytest.mark.parametrize("space", ["linear", "inverse", "log"])
def test_a_flat_wall_has_a_finite_expected_error_in_every_space(space: Any) -> None:
    wall = np.where(np.isnan(DEPTH), DEPTH, np.float32(4))
    result = fi.inpaint(IMAGE, wall, device="cpu", space=space)
    known = np.isfinite(wall)
    assert np.isfinite(result.expected_error).all()
    np.testing.assert_array_equal(result.expected_error == 0, known)
    assert 0 < np.median(result.expected_error[~known]) < 4
    assert result.confidence[known].min() == 1
    np.testing.assert_array_equal(result.trusted(8.0), result.flow)
