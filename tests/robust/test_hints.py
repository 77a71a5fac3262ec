"""The arguments `robust`, `noise`, `confidence` and `second`, and their checks."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.checks import Limit, check_point_values
from flowinpaint.errors import InputError
from flowinpaint.methods.method import Method
from flowinpaint.methods.registry import all_methods
from flowinpaint.robust.hints import check_hints, check_takes_weights
from helpers import random_field

IMAGE, FLOW, MASK = random_field(9, 12)
BELOW_ZERO = st.floats(max_value=0, exclude_max=True, allow_nan=False)
NOT_FINITE = st.sampled_from([np.nan, np.inf, -np.inf])
NO_NUMBER = st.one_of(st.booleans(), st.text(max_size=3), st.lists(st.floats(), max_size=2), st.just(1j))


def refused(name: str, value: object, known: Any = MASK, limit: Limit = Limit.WEIGHT) -> str:
    """The message about a value."""
    with pytest.raises(InputError, match=rf"^{name} must be .*, got ") as error:
        check_point_values(name, value, known, limit)
    return str(error.value)


class TestPointValues:
    def test_none_stays_none(self) -> None:
        assert check_point_values("noise", None, MASK, Limit.WEIGHT) is None

    @given(value=st.one_of(st.floats(0, 1e30), st.integers(0, 10**6), st.just(np.float32(0.5)), st.just(np.int16(3))))
    def test_a_number_counts_at_every_known_pixel(self, value: Any) -> None:
        found = check_point_values("noise", value, MASK, Limit.WEIGHT)
        assert found is not None
        assert found.dtype == np.float32
        assert np.array_equal(found, np.where(MASK, np.float32(value), 0))

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64, np.longdouble, ">f4"])
    def test_an_array_of_any_real_type_is_read_where_known(self, dtype: Any) -> None:
        values = (np.random.default_rng(0).random(MASK.shape) * 100).astype(dtype)
        found = check_point_values("noise", values, MASK, Limit.WEIGHT)
        assert found is not None
        assert found.dtype == np.float32
        assert np.array_equal(found, np.where(MASK, values, 0).astype(np.float32))

    def test_where_nothing_is_known_any_value_may_stand(self) -> None:
        values = np.where(MASK, 0.5, np.resize([np.nan, np.inf, -7], MASK.shape))
        for limit in (Limit.WEIGHT, Limit.CHANCE):
            found = check_point_values("noise", values, MASK, limit)
            assert found is not None
            assert np.array_equal(found, np.where(MASK, np.float32(0.5), 0))

    @given(value=st.one_of(BELOW_ZERO, NOT_FINITE, NO_NUMBER))
    def test_a_bad_number_is_refused(self, value: object) -> None:
        refused("noise", value)
        refused("confidence", value, limit=Limit.CHANCE)

    @given(value=st.one_of(BELOW_ZERO, NOT_FINITE), place=st.integers(0, int(MASK.sum()) - 1))
    @settings(max_examples=30)
    def test_a_bad_value_at_one_known_pixel_is_refused(self, value: float, place: int) -> None:
        values = np.full(MASK.shape, 0.5)
        values[tuple(np.argwhere(MASK)[place])] = value
        assert str(value) in refused("noise", values)
        refused("confidence", values, limit=Limit.CHANCE)

    @given(value=st.floats(1, exclude_min=True, allow_infinity=False))
    def test_a_probability_above_one_is_refused(self, value: float) -> None:
        refused("confidence", value, limit=Limit.CHANCE)
        refused("confidence", np.full(MASK.shape, value), limit=Limit.CHANCE)

    @pytest.mark.parametrize(
        "values",
        [
            np.zeros((9, 11)), np.zeros((9, 12, 1)), np.zeros(12), np.array(0.5), np.zeros((9, 12), np.bool_),
            np.zeros((9, 12), complex), np.zeros((9, 12), object), np.full((9, 12), "a"),
        ],
        ids=["size", "channel", "row", "scalar", "bool", "complex", "object", "text"],
    )  # fmt: skip
    def test_an_array_of_another_shape_or_type_is_refused(self, values: Any) -> None:
        assert "of shape (9, 12)" in refused("noise", values)

    @pytest.mark.parametrize("value", [1e39, np.full(MASK.shape, 1e300)], ids=["number", "array"])
    def test_a_value_beyond_float32_is_refused(self, value: Any) -> None:
        refused("noise", value)


class TestHints:
    @pytest.mark.parametrize(
        ("robust", "second", "estimate"), [(True, None, True), (False, None, False), (False, IMAGE, True)]
    )
    def test_vectors_are_judged_with_robust_or_a_second_image(self, robust: bool, second: Any, estimate: bool) -> None:
        assert check_hints(robust, 1.0, None, second, FLOW, MASK).estimate is estimate

    def test_their_form(self) -> None:
        hints = check_hints(np.True_, 0.5, np.full(MASK.shape, 0.25), IMAGE[..., :1], FLOW, MASK)
        assert hints.noise is not None
        assert hints.confidence is not None
        assert hints.second is not None
        known = torch.from_numpy(MASK)[None, None]
        assert torch.equal(hints.noise, 0.5 * known)
        assert torch.equal(hints.confidence, 0.25 * known)
        assert hints.second.shape == (1, 3, 9, 12)
        assert float(hints.second.max()) <= 1
        assert check_hints(True, None, None, None, FLOW, MASK)[:3] == (None, None, None)

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
    def test_the_second_image_may_have_any_type_of_the_first(self, dtype: Any) -> None:
        scale = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1
        image = (IMAGE / 255 * scale).astype(dtype)
        found = check_hints(False, None, None, image, FLOW, MASK).second
        assert found is not None
        np.testing.assert_allclose(found[0].permute(1, 2, 0).numpy(), IMAGE / 255, atol=1 / 255)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "robust as text": ({"robust": "yes"}, "robust must be True or False, got 'yes'"),
    "robust as number": ({"robust": 1}, "robust must be True or False, got 1"),
    "robust empty": ({"robust": ""}, "robust must be True or False, got ''"),
    "robust as array": ({"robust": np.array([True, False])}, "robust must be True or False, got array"),
    "noise negative": ({"noise": -0.5}, "noise must be a finite number of at least 0"),
    "noise NaN": ({"noise": np.nan}, "noise must be a finite number of at least 0"),
    "noise bool": ({"noise": True}, "noise must be a finite number of at least 0, .* got True"),
    "noise bool array": ({"noise": MASK}, r"noise must be an array of numbers of shape \(9, 12\), got bool"),
    "noise per component": ({"noise": FLOW}, r"noise must be an array .*, got float32 \(9, 12, 2\)"),
    "confidence above 1": ({"confidence": 2.0}, "confidence must be a number from 0 to 1.*got 2.0"),
    "confidence in 0..255": ({"confidence": np.full(MASK.shape, 255)}, "confidence must be .* at each known.*got 255"),
    "confidence 0": ({"confidence": 0}, "confidence must be above 0 for at least one known vector, got 0 everywhere"),
    "confidence 0 where known": ({"confidence": ~MASK * 1.0}, "confidence must be above 0 for at least one known"),
    "second as text": ({"second": "b.png"}, r"second must be an array \(H, W, 3\) or \(H, W\), got str"),
    "second of another size": ({"second": IMAGE[1:]}, r"second must have the size of the flow, \(9, 12\), got \(8, 12"),
    "second in 0..255": ({"second": IMAGE.astype(float)}, r"second must have values in \[0, 1\] if float"),
    "second NaN": ({"second": IMAGE * np.nan}, "second must have values in .*got NaN"),
    "seed as text": ({"robust": True, "seed": "a"}, "seed must be "),
    "seed None": ({"robust": True, "seed": None}, "seed must be "),
    "seed negative": ({"robust": True, "seed": -1}, "seed must be "),
    "seed too large": ({"robust": True, "seed": 2**64}, "seed must be "),
    "parameter": ({"robust": True, "lam": 1.0}, "lam must be a parameter of 'harmonic'"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_arguments_are_named(case: str) -> None:
    keywords, message = BAD[case]
    with pytest.raises(InputError, match=f"^{message}"):
        fi.inpaint(IMAGE, FLOW, MASK, "harmonic", "cpu", **keywords)


def test_a_second_image_needs_two_channels() -> None:
    with pytest.raises(InputError, match=r"^second needs a flow of 2 channels, displacements in px, got 1"):
        fi.inpaint(IMAGE, FLOW[..., :1], MASK, "harmonic", second=IMAGE)


@pytest.mark.parametrize("keywords", [{"robust": True}, {"noise": 1.0}, {"confidence": 0.5}, {"second": IMAGE}])
def test_other_methods_name_those_that_accept_the_arguments(keywords: dict[str, Any]) -> None:
    accepted = [m.name for m in all_methods() if m.takes_weights]
    with pytest.raises(
        InputError, match=r"^method must support robust, .* as .*neuroexplicit.* do, got nearest$"
    ) as error:
        fi.inpaint(IMAGE, FLOW, MASK, "nearest", **keywords)
    assert {"neuroexplicit", "neuroexplicit-paper", "eed", "laplace-beltrami", "harmonic"} <= set(accepted)
    assert all(name in str(error.value) for name in accepted)


@pytest.mark.parametrize("method", all_methods(), ids=lambda m: str(m.name))
def test_only_methods_that_take_weights_are_accepted(method: Method) -> None:
    if method.takes_weights:
        check_takes_weights(method)
    else:
        with pytest.raises(InputError, match=f" do, got {method.name}$"):
            check_takes_weights(method)
