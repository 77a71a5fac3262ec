"""Sparsification: properties that hold for every error and every order."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.errors import InputError
from flowinpaint.evaluation.uncertainty import (
    distance_to_known,
    sparsification,
)

seeds = st.integers(0, 2**32 - 1)


def maps(seed: int, shape: tuple[int, int] = (30, 40)) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Errors, uncertainties that say a little about them, and the valid pixels."""
    rng = np.random.default_rng(seed)
    error = rng.exponential(size=shape)
    return error, error + rng.exponential(size=shape), rng.random(shape) < 0.7


def slow_curve(error: npt.NDArray[Any], uncertainty: npt.NDArray[Any], steps: int) -> list[float]:
    """The definition, for uncertainties that all differ."""
    left = error.ravel()[np.argsort(-uncertainty.ravel())]
    return [left[len(left) * i // steps :].mean() / left.mean() for i in range(steps)]


@given(seeds)
def test_curves_are_means_of_what_remains(seed: int) -> None:
    error, uncertainty, valid = maps(seed)
    found = sparsification(error, uncertainty, valid, steps=20)
    assert found.removed.tolist() == [i / 20 for i in range(20)]
    assert found.curve == pytest.approx(slow_curve(error[valid], uncertainty[valid], 20))
    assert found.oracle == pytest.approx(slow_curve(error[valid], error[valid], 20))
    assert found.curve[0] == found.oracle[0] == 1


@given(seeds)
def test_no_order_is_better_than_the_oracle_which_has_no_area(seed: int) -> None:
    error, uncertainty, valid = maps(seed)
    found = sparsification(error, uncertainty, valid)
    assert (found.curve >= found.oracle - 1e-12).all()
    assert found.ause > 0
    assert sparsification(error, error, valid).ause == 0
    assert sparsification(error, -error, valid).ause > found.ause


@given(seeds)
def test_only_the_order_counts(seed: int) -> None:
    error, uncertainty, valid = maps(seed)
    found = sparsification(error, uncertainty, valid)
    for same in (np.log(uncertainty), 3 * uncertainty - 7, np.argsort(np.argsort(uncertainty.ravel())).reshape(30, 40)):
        other = sparsification(error, same, valid)
        assert np.array_equal(other.curve, found.curve)
        assert other.ause == found.ause
    assert np.allclose(sparsification(5 * error, uncertainty, valid).curve, found.curve)


def test_a_random_order_is_about_flat_and_a_constant_one_is() -> None:
    error, _, _ = maps(0, (200, 300))
    noise = np.random.default_rng(1).random(error.shape)
    random = sparsification(error, noise)
    assert np.abs(random.curve[:90] - 1).max() < 0.05  # 6,000 pixels remain: a deviation of 0.013
    flat = sparsification(error, np.full_like(error, 3.0))
    assert flat.curve == pytest.approx(np.ones(100))
    # Without its largest share x, an exponential distribution of mean 1 has the mean 1 + x log x / (1 - x).
    x = flat.removed[1:]
    assert flat.oracle[1:] == pytest.approx(1 + x * np.log(x) / (1 - x), abs=0.02)
    assert flat.ause == pytest.approx(random.ause, abs=0.02)


@given(seeds, st.integers(1, 6))
def test_ties_do_not_depend_on_the_places_of_the_pixels(seed: int, levels: int) -> None:
    error, uncertainty, _ = maps(seed)
    coarse = np.floor(uncertainty * levels)
    found = sparsification(error, coarse)
    order = np.random.default_rng(seed).permutation(error.size)
    moved = sparsification(error.ravel()[order].reshape(30, 40), coarse.ravel()[order].reshape(30, 40))
    assert moved.curve == pytest.approx(found.curve, rel=1e-12)


def test_ties_count_as_the_mean_over_random_orders() -> None:
    error, uncertainty, _ = maps(0)
    coarse = np.floor(2 * uncertainty)
    noise = np.random.default_rng(0).random((400, *error.shape))
    broken = [sparsification(error, coarse + 0.5 * part).curve for part in noise]
    assert np.mean(broken, axis=0) == pytest.approx(sparsification(error, coarse).curve, abs=0.02)


def test_what_is_not_valid_does_not_count() -> None:
    error, uncertainty, valid = maps(3)
    found = sparsification(error, uncertainty, valid)
    spoilt = np.where(valid, error, np.nan)
    assert np.array_equal(sparsification(spoilt, np.where(valid, uncertainty, np.nan), valid).curve, found.curve)
    assert np.array_equal(sparsification(spoilt, uncertainty).curve, found.curve)


def test_fields_without_error_and_of_one_pixel_are_flat() -> None:
    found = sparsification(np.zeros((3, 4)), np.arange(12.0).reshape(3, 4))
    assert (found.curve == 1).all()
    assert found.ause == 0
    assert (sparsification(np.ones((1, 1)), np.ones((1, 1))).curve == 1).all()


def test_an_infinite_uncertainty_goes_first() -> None:
    error = np.array([[8.0, 1.0, 1.0, 2.0]])
    found = sparsification(error, np.array([[np.inf, 0.0, 1.0, 2.0]]), steps=4)
    assert found.curve * 3 == pytest.approx([3, 4 / 3, 1, 1])


def test_the_distance_is_to_the_nearest_known_pixel() -> None:
    mask = np.zeros((5, 8), np.bool_)
    mask[2, 1] = mask[0, 7] = True
    places = np.argwhere(mask)
    expected = [[np.hypot(*(places - (y, x)).T).min() for x in range(8)] for y in range(5)]
    assert distance_to_known(mask) == pytest.approx(np.array(expected))
    with pytest.raises(InputError, match="mask must mark at least one known pixel"):
        distance_to_known(np.zeros((2, 2), np.bool_))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"error": np.ones(4)}, r"error and uncertainty must both be \(H, W\), got \(4,\) and \(2, 2\)"),
    ({"uncertainty": np.ones((2, 3))}, r"got \(2, 2\) and \(2, 3\)"),
    ({"valid": np.ones((2, 2))}, r"valid must be bool of shape \(2, 2\), got float64"),
    ({"valid": np.ones((3, 2), np.bool_)}, r"got bool \(3, 2\)"),
    ({"valid": np.zeros((2, 2), np.bool_)}, "valid must mark at least one pixel"),
    ({"error": np.full((2, 2), -1.0)}, "error must be finite and not negative"),
    ({"error": np.full((2, 2), np.inf)}, "error must be finite and not negative"),
    ({"error": np.full((2, 2), np.nan)}, "valid must mark at least one pixel"),
    ({"uncertainty": np.full((2, 2), np.nan)}, "uncertainty must not be NaN"),
    ({"steps": 1}, "steps must be at least 2, got 1"),
]


@pytest.mark.parametrize(("change", "fault"), BAD)
def test_bad_arguments_are_named(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        sparsification(**({"error": np.ones((2, 2)), "uncertainty": np.ones((2, 2))} | change))
