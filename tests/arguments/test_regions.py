"""Regions: where to fill, how far from the vectors, and where the image may be used."""

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

import flowinpaint as fi
from flowinpaint.arguments.regions import image_without
from flowinpaint.data.demo_scene import sample_scene

IMAGE, TRUTH = sample_scene(64, 96, seed=4)
MASK = np.random.default_rng(0).random((64, 96)) < 0.01
FLOW = np.where(MASK[..., None], TRUTH, np.nan)
WHERE = np.zeros((64, 96), bool)
WHERE[10:50, 20:60] = True


def test_only_the_region_is_filled() -> None:
    full, part = fi.inpaint(IMAGE, FLOW), fi.inpaint(IMAGE, FLOW, fill_where=WHERE)
    filled = WHERE | MASK
    np.testing.assert_array_equal(part.flow[filled], full.flow[filled])
    np.testing.assert_array_equal(part.expected_error[filled], full.expected_error[filled])
    for x in (part.flow[..., 0], part.expected_error, part.confidence):
        assert np.isnan(x[~filled]).all()


@pytest.mark.parametrize("gap", [1, 4.5, 1000])
def test_pixels_far_from_every_vector_stay_unknown(gap: float) -> None:
    result = fi.inpaint(IMAGE, FLOW, max_gap=gap)
    np.testing.assert_array_equal(np.isfinite(result.flow[..., 0]), distance_transform_edt(~MASK) <= gap)


def test_a_wrong_vector_is_no_reason_to_fill() -> None:
    mask = np.random.default_rng(3).random((64, 96)) < 0.2
    mask[:, 40:] = False
    mask[32, 80] = True
    flow = np.where(mask[..., None], TRUTH, np.nan)
    confidence = np.ones((64, 96))
    confidence[32, 80] = 0.2
    result = fi.inpaint(IMAGE, flow, method="harmonic", confidence=confidence, max_gap=8)
    assert np.isnan(result.flow[25:40, 70:]).all()
    assert np.isfinite(result.flow[:, :40]).all()


def test_what_the_image_shows_outside_its_region_has_no_influence() -> None:
    spoilt = np.where(WHERE[..., None], np.random.default_rng(0).integers(0, 256, IMAGE.shape), IMAGE).astype(np.uint8)
    clean, other = (fi.inpaint(x, FLOW, image_where=~WHERE) for x in (IMAGE, spoilt))
    np.testing.assert_array_equal(clean.flow, other.flow)
    assert other.arrays is not None
    np.testing.assert_array_equal(other.arrays.image, spoilt)
    assert fi.epe(other.flow, TRUTH) < fi.epe(fi.inpaint(spoilt, FLOW).flow, TRUTH)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_the_hidden_part_of_an_image_continues_its_surroundings(dtype: type) -> None:
    ramp: Any = np.broadcast_to(np.linspace(0, 200, 96).astype(dtype)[:, None], (64, 96, 1))
    filled = image_without(np.where(WHERE[..., None], dtype(7), ramp).astype(dtype), ~WHERE)
    assert filled.dtype == dtype
    assert np.abs(filled.astype(float) - ramp).max() < 12  # linear but for rounding and the ends of the strip


def test_no_image_is_needed_by_methods_that_ignore_it() -> None:
    for method in ("harmonic", "nearest"):
        with_image, without = fi.inpaint(IMAGE, FLOW, method=method), fi.inpaint(None, FLOW, method=method)
        np.testing.assert_array_equal(with_image.flow, without.flow)
    with pytest.raises(
        ValueError,
        match="image must not be None for neuroexplicit; pass an image, or one of the methods harmonic, nearest",
    ):
        fi.inpaint(None, FLOW)
    assert fi.inpaint(None, FLOW, method="harmonic", robust=True).inliers is not None


@pytest.mark.parametrize("name", ["fill_where", "image_where"])
def test_wrong_regions_are_errors(name: str) -> None:
    for region in (WHERE.astype(np.uint8), WHERE[1:], WHERE[..., None, None]):
        with pytest.raises(ValueError, match=rf"{name} must be bool of shape \(64, 96\), got "):
            fi.inpaint(IMAGE, FLOW, **{name: region})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"{name} must be True at some pixel, got False everywhere"):
        fi.inpaint(IMAGE, FLOW, **{name: WHERE & ~WHERE})  # type: ignore[arg-type]


def test_an_inverted_image_region_is_warned_of() -> None:
    mask = np.random.default_rng(0).random((64, 96)) < 0.5
    mask[WHERE] = False
    with pytest.warns(UserWarning, match="image_where is False at most of the known vectors"):
        fi.inpaint(IMAGE, TRUTH, mask, method="harmonic", image_where=WHERE)


@pytest.mark.parametrize("gap", [0, -1, np.nan, "5", True])
def test_wrong_gaps_are_errors(gap: object) -> None:
    with pytest.raises(ValueError, match="max_gap must be a distance in px above 0, got"):
        fi.inpaint(IMAGE, FLOW, max_gap=gap)  # type: ignore[arg-type]
