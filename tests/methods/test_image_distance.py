"""The three distances between pixels."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.errors import InputError
from flowinpaint.methods.laplace_beltrami import image_distance

KINDS = pytest.mark.parametrize("kind", [1, 2, 3])


def between(colour_squared: float, length_squared: float, lam: float, kind: int) -> float:
    return float(image_distance(torch.tensor(colour_squared, dtype=torch.float64), length_squared, lam, kind))


@pytest.mark.parametrize(
    ("kind", "expected"), [(1, math.sqrt(0.75 * 9 + 0.25 * 4)), (2, 0.75 * 3 + 0.25 * 2), (3, 0.75 * 9 + 0.25 * 4)]
)
def test_the_formulas(kind: int, expected: float) -> None:
    assert between(9.0, 4.0, 0.25, kind) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("kind", "expected"), [(1, 3.0), (2, 3.0), (3, 9.0)])
def test_with_all_weight_on_the_length_colours_do_not_count(kind: int, expected: float) -> None:
    assert between(1234.5, 9.0, 1.0, kind) == pytest.approx(expected, rel=1e-12)


@KINDS
@given(colours=st.tuples(st.floats(0, 65025), st.floats(0, 65025)), length=st.floats(1, 100), lam=st.floats(1e-12, 1))
def test_positive_and_larger_for_colours_further_apart(
    kind: int, colours: tuple[float, float], length: float, lam: float
) -> None:
    near, far = (between(colour, length, lam, kind) for colour in sorted(colours))
    assert 0 < near <= far < math.inf


@KINDS
def test_a_tensor_of_lengths_is_taken_elementwise(kind: int) -> None:
    colour, length = torch.rand(4, 5, dtype=torch.float64), torch.arange(1.0, 6.0, dtype=torch.float64)
    d = image_distance(colour, length, 0.1, kind)
    assert d.shape == (4, 5)
    assert float(d[2, 3]) == pytest.approx(between(float(colour[2, 3]), 4.0, 0.1, kind), rel=1e-12)


@pytest.mark.parametrize("lam", [0.0, -1.0, 1.5, math.nan, math.inf])
def test_a_bad_weight_is_named(lam: float) -> None:
    with pytest.raises(InputError, match="lam must be from 1e-12 to 1, got"):
        between(1.0, 1.0, lam, 3)


@pytest.mark.parametrize("kind", [0, 4, 1.5, math.nan])
def test_an_unknown_distance_is_named(kind: int) -> None:
    with pytest.raises(InputError, match="distance must be 1, 2 or 3, got"):
        between(1.0, 1.0, 0.1, kind)
