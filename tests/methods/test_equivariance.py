"""Results scale and shift with the field: with the rounding of float32, and exactly for powers of two."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.neuroexplicit.kernels.dtm_cpu import fastest_dtype

Array = npt.NDArray[Any]
BOUND = 3e-4
"""Largest difference, relative to the largest value of the result; docs/reliability.md has those measured."""
SHIFTING = ["neuroexplicit", "harmonic", "nearest", "eed"]
SCALING = [*SHIFTING, "neuroexplicit-paper", "laplace-beltrami"]


def scene(seed: int) -> tuple[Array, Array, Array]:
    """A random image, a random field of 1 to 3 channels on an offset, and a mask with 1 to 40 known vectors."""
    rng = np.random.default_rng(seed)
    H, W, C = (int(n) for n in rng.integers((5, 5, 1), (40, 40, 4)))
    image = rng.integers(0, 256, (H, W, 3), dtype=np.uint8)
    flow = (rng.normal(size=(H, W, C)) + rng.choice([0, 3, 20]) * rng.normal(size=C)).astype(np.float32)
    mask = np.zeros(H * W, bool)
    mask[rng.choice(H * W, min(H * W // 2, int(rng.integers(1, 41))), replace=False)] = True
    return image, flow, mask.reshape(H, W)


def moved_apart(method: str, seed: int, factor: float, shift: float) -> float:
    """The difference between transforming the field and transforming the result, relative to the largest value."""
    image, flow, mask = scene(seed)
    tight: dict[str, Any] = {"tolerance": 1e-9} if method in ("eed", "laplace-beltrami") else {}
    plain = fi.inpaint(image, flow, mask, method, "cpu", **tight).flow
    moved = fi.inpaint(image, np.float32(factor) * flow + np.float32(shift), mask, method, "cpu", **tight).flow
    return float(np.abs(moved - (factor * plain.astype(np.float64) + shift)).max() / np.abs(moved).max())


@given(
    seed=st.integers(0, 2**32 - 1),
    method=st.sampled_from(SHIFTING),
    factor=st.floats(0.01, 100),
    shift=st.floats(-100, 100),
)
@settings(max_examples=20)
def test_results_scale_and_shift_with_the_field(seed: int, method: str, factor: float, shift: float) -> None:
    assert moved_apart(method, seed, factor, shift) < BOUND


@pytest.mark.skipif(fastest_dtype() == torch.float32, reason="no bfloat16")
@pytest.mark.parametrize(("seed", "factor", "shift"), [(1, 3.7, 0.0), (2, 1.0, 10.0)])
def test_bfloat16_does_not_amplify_rounding_in_small_images(seed: int, factor: float, shift: float) -> None:
    assert moved_apart("neuroexplicit", seed, factor, shift) < BOUND


@given(seed=st.integers(0, 2**32 - 1), method=st.sampled_from(SCALING), exponent=st.integers(-40, 20))
@settings(max_examples=20)
def test_scaling_by_a_power_of_two_is_exact(seed: int, method: str, exponent: int) -> None:
    image, flow, mask = scene(seed)
    factor = np.float32(2.0**exponent)
    plain, scaled = (fi.inpaint(image, f, mask, method, "cpu") for f in (flow, factor * flow))
    np.testing.assert_array_equal(scaled.flow, factor * plain.flow)
    if plain.expected_error is not None and np.ptp(flow[mask], axis=0).max() > 0:
        np.testing.assert_array_equal(scaled.expected_error, factor * plain.expected_error)


def test_a_large_offset_costs_no_digits_of_the_variation() -> None:
    image, flow, mask = scene(5)
    flow = np.round(flow * 64) / np.float32(64)
    near, far = (fi.inpaint(image, flow + np.float32(x), mask, device="cpu").flow for x in (0, 8192))
    spacing = np.spacing(np.float32(8192))
    assert np.abs(far - np.float32(8192) - near).max() < 2 * spacing
