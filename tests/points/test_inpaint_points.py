"""`inpaint_points`: positions between pixels, shared pixels, skipped points, and bad input."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.points import subpixel
from flowinpaint.points.subpixel import PointSet, at_pixel_centres, bilinear, local_slopes, merge

Array = npt.NDArray[Any]
H, W = 40, 56
SLOPE = np.array([[0.06, -0.02], [0.03, 0.05]])
"""Derivatives of u and v by x and y: a camera that moves forward and turns."""


def affine(points: Array) -> Array:
    return np.asarray(points @ SLOPE.T + [3.0, -1.0])


def random_points(count: int = 200, seed: int = 0, H: int = H, W: int = W) -> Array:
    return np.random.default_rng(seed).uniform((-0.5, -0.5), (W - 0.501, H - 0.501), (count, 2))


def image(H: int = H, W: int = W) -> Array:
    return np.random.default_rng(1).integers(0, 256, (H, W, 3)).astype(np.uint8)


def pixel_centres() -> Array:
    y, x = np.mgrid[:H, :W]
    return np.stack([x, y], -1).astype(float)


def moved(points: Array, values: Array) -> Array:
    return at_pixel_centres(points, values, local_slopes(PointSet(points), values))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([3, 8, 40]),
    st.lists(st.floats(-2, 2), min_size=4, max_size=4),
    st.floats(-1e4, 1e4),
)
def test_affine_fields_are_exact_at_pixel_centres(seed: int, count: int, slope: list[float], offset: float) -> None:
    points = random_points(count, seed)
    matrix = np.reshape(slope, (2, 2))
    wanted = np.floor(points + 0.5) @ matrix + offset
    assert np.allclose(moved(points, points @ matrix + offset), wanted, atol=1e-4 * (1 + np.abs(matrix).max()))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 60), st.floats(-1e6, 1e6), st.booleans())
def test_constant_values_stay_bit_identical(seed: int, count: int, value: float, repeated: bool) -> None:
    points = random_points(count, seed)
    if repeated:
        points = points[np.zeros(count, int)]
    values = np.full((count, 2), value)
    assert np.array_equal(moved(points, values), values)


def test_many_points_are_fitted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    points = random_points(100)
    values = affine(points) + np.random.default_rng(0).normal(0, 0.01, (100, 2))
    values[7] += 20
    whole = moved(points, values)
    monkeypatch.setattr(subpixel, "_CHUNK", 33)
    assert np.abs(moved(points, values) - whole).max() < 0.02


def test_rounding_would_cost_what_moving_the_values_saves() -> None:
    """In a zooming field the error of rounding is the slope times the distance, here 2 % of a px and more."""
    points, picture = random_points(400), image()
    x, y = np.floor(points + 0.5).astype(int).T
    flow = np.full((H, W, 2), np.nan, np.float32)
    flow[y, x] = affine(points)
    result = fi.inpaint_points(picture, points, affine(points), "harmonic", robust=False)
    rounded = fi.inpaint(picture, flow, method="harmonic").flow
    truth = affine(pixel_centres())
    at = np.zeros((H, W), np.bool_)
    at[y, x] = True
    assert fi.epe(rounded[at][None], truth[at][None]) > 0.02
    assert fi.epe(result.flow[at][None], truth[at][None]) < 1e-5
    assert fi.epe(result.flow, truth) < 0.7 * fi.epe(rounded, truth)


def test_points_at_pixel_centres_give_the_result_of_inpaint() -> None:
    x, y = np.unique(random_points(60).round().astype(int), axis=0).T
    values = np.random.default_rng(0).normal(size=(len(x), 2)).astype(np.float32)
    flow = np.full((H, W, 2), np.nan, np.float32)
    flow[y, x] = values
    result = fi.inpaint_points(image(), np.stack([x, y], -1), values, "harmonic", robust=False)
    assert np.array_equal(result.flow, fi.inpaint(image(), flow, method="harmonic").flow)
    assert np.array_equal(result.flow[y, x], values)
    points = result.points
    assert points is not None
    assert points.used.all()
    assert points.inliers is None
    assert np.array_equal(points.fitted, values)


def test_slopes_are_those_of_the_own_side_of_a_motion_edge() -> None:
    points = random_points(400)
    right = points[:, 0] > W / 2
    values = affine(points) + np.where(right, 30.0, 0.0)[:, None]
    wanted = affine(np.floor(points + 0.5)) + np.where(right, 30.0, 0.0)[:, None]
    assert np.abs(moved(points, values) - wanted).max() < 0.05


def test_noise_of_close_points_is_no_slope() -> None:
    rng = np.random.default_rng(0)
    points = np.repeat(random_points(100), 6, axis=0) + rng.uniform(-0.05, 0.05, (600, 2))
    values = rng.normal(0, 0.3, (600, 2))
    assert np.abs(moved(points, values) - values).max() < 0.5
    assert np.abs(moved(points, values) - values).mean() < 0.03


def test_an_outlier_does_not_spoil_its_pixel() -> None:
    points = random_points(300)
    points[:3] = (10.2, 12.1), (9.9, 11.8), (10.4, 12.4)  # share a pixel
    values = affine(points)
    values[1] += 40
    result = fi.inpaint_points(image(), points, values, "harmonic")
    found = result.points
    assert found is not None
    assert found.inliers is not None
    assert np.abs(result.flow[12, 10] - affine(np.array([[10, 12]]))).max() < 0.3
    assert found.inliers[1] < 0.1
    assert min(found.inliers[0], found.inliers[2]) > 0.5
    assert np.abs(found.fitted - affine(points)).max() < 0.5


def test_points_that_share_a_pixel_are_merged_by_precision() -> None:
    pixel, values = np.array([5, 5, 9, 5]), np.array([[1.0], [4.0], [7.0], [1.0]])
    plain = merge(pixel, values, None, None, None)
    assert np.array_equal(plain.pixel, [5, 9])
    assert np.array_equal(plain.point, [0, 0, 1, 0])
    assert np.allclose(plain.values, [[2], [7]])
    hinted = merge(pixel, values, np.array([1.0, 1, 2, 0.5]), np.array([1.0, 0, 0.3, 0.25]), None)
    assert np.allclose(hinted.values, [[1], [7]])
    assert hinted.noise is not None
    assert hinted.confidence is not None
    assert np.allclose(hinted.noise, [np.hypot(1, 0.5) / 2, 2])
    assert np.allclose(hinted.confidence, [0.625, 0.3])
    nothing = merge(pixel, values, None, np.zeros(4), None)
    assert np.allclose(nothing.values, [[2], [7]])
    assert nothing.confidence is not None
    assert (nothing.confidence == 0).all()


def test_skipped_points_are_counted_and_reported() -> None:
    points, values = random_points(30), np.ones((30, 2))
    noise, confidence = np.full(30, 0.1), np.full(30, 0.9)
    points[0] = -0.51, 3
    points[1] = W - 0.5, 3
    points[2, 0] = np.nan
    values[3, 1], values[4, 0] = np.inf, 1.1e9
    noise[5], confidence[6] = np.nan, np.inf
    with pytest.warns(UserWarning, match=r"skipped 7 points: 2 outside the image and 5 that are not finite\.$"):
        result = fi.inpaint_points(
            image(), points, values, "harmonic", robust=False, noise=noise, confidence=confidence
        )
    found = result.points
    assert found is not None
    assert found.inliers is not None
    assert np.array_equal(found.used, np.arange(30) >= 7)
    assert np.isnan(found.fitted[:7]).all()
    assert np.isnan(found.inliers[:7]).all()
    assert np.allclose(found.fitted[7:], 1)
    assert np.allclose(found.inliers[7:], 0.9)
    with pytest.warns(UserWarning, match=r"skipped 1 point: 1 that is not finite\.$"):
        fi.inpaint_points(image(), points[2:5:2], [1, 2], "nearest", robust=False)


def test_rows_and_columns_instead_of_x_and_y_are_noticed() -> None:
    with pytest.warns(UserWarning, match=r"pass points\[:, ::-1\]"):
        fi.inpaint_points(image(20, 90), [[10, 80], [5, 85], [3, 10]], np.ones(3), "nearest", robust=False)


def test_end_points_instead_of_displacements_are_noticed() -> None:
    points = random_points(50)
    with pytest.warns(UserWarning, match="pass end - start"):
        fi.inpaint_points(image(), points, points + 2, "nearest", robust=False)


def test_lists_tensors_and_opencv_shapes_are_accepted() -> None:
    points, values = random_points(20), np.random.default_rng(0).normal(size=20)
    expected = fi.inpaint_points(image(), points, values, "nearest", robust=False).flow
    assert expected.shape == (H, W)
    for p, v in (
        (points.tolist(), values.tolist()),
        (torch.tensor(points), values),
        (points[:, None], values[:, None, None]),
        (np.ma.masked_array(points), np.ma.masked_array(values)),
    ):
        found = fi.inpaint_points(image(), p, v, "nearest", robust=False)
        assert np.array_equal(found.flow.reshape(H, W), expected)
        assert found.points is not None
        assert found.points.fitted.shape == np.shape(v)[:1] + np.shape(v)[2:]
    tensors = fi.inpaint_points(image(), torch.tensor(points), torch.tensor(values), "nearest", robust=False)
    assert isinstance(tensors.flow, torch.Tensor)
    assert np.array_equal(tensors.flow.numpy(), expected)
    assert tensors.points is not None
    assert isinstance(tensors.points.fitted, torch.Tensor)
    without = fi.inpaint_points(None, points, values, "nearest", robust=False, size=(H, W))
    assert np.array_equal(without.flow, expected)


def test_depth_moves_along_the_slope_of_its_inverse() -> None:
    """1/depth of a plane is affine in the image."""
    points = random_points(300)
    inverse = 0.05 + 0.004 * points[:, 1]
    result = fi.inpaint_points(image(), points, 1 / inverse, "harmonic", robust=False, space="inverse", bounds=(0, 80))
    x, y = np.floor(points + 0.5).astype(int).T
    assert np.allclose(1 / result.flow[y, x], 0.05 + 0.004 * y, rtol=1e-5)


def test_static_points_are_not_taken_for_unknown_ones() -> None:
    values = np.zeros((40, 2))
    result = fi.inpaint_points(image(), random_points(40), values, "nearest", robust=False, max_gap=2)
    assert np.nanmax(np.abs(result.flow)) == 0
    assert np.isnan(result.flow).any()


def test_one_point_fills_everything() -> None:
    result = fi.inpaint_points(image(), [[3.4, 5.2]], [[1.5, 2.5]])
    assert np.array_equal(result.flow, np.broadcast_to(np.array([1.5, 2.5], np.float32), (H, W, 2)))


def test_a_value_between_pixels_is_bilinear() -> None:
    field = affine(pixel_centres()).astype(np.float32)
    points = random_points()
    inside = (points >= 0).all(1) & (points[:, 0] <= W - 1) & (points[:, 1] <= H - 1)
    assert np.allclose(bilinear(field, points)[inside], affine(points)[inside], atol=1e-5)
    field[:, 20:] = np.nan
    assert np.array_equal(np.isnan(bilinear(field, points)).all(1), points[:, 0] >= 20)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"points": np.ones((2, 9))}, r"points must have shape \(N, 2\).*pass points\.T"),
    "matches": ({"points": np.ones((9, 4))}, r"points\[:, 2:\] - points\[:, :2\]"),
    "one point": ({"points": [1, 2]}, r"pass \[points\]"),
    "field as points": ({"points": np.ones((H, W, 2))}, r"a field \(H, W, C\) is for inpaint"),
    "field as values": ({"values": np.ones((H, W, 2))}, r"values must have shape.*is for inpaint"),
    "fewer values": ({"values": np.ones((8, 2))}, r"one row for each of the 9 points, got \(8, 2\)"),
    "transposed values": ({"values": np.ones((2, 9))}, r"pass values\.T"),
    "none": ({"points": np.ones((0, 2)), "values": np.ones((0, 2))}, "at least one row"),
    "all outside": ({"points": np.full((9, 2), -7)}, "finite one inside the 56x40 pixels.*9 outside and 0 not finite"),
    "text": ({"points": [["a", "b"]] * 9}, "points must be an array of.*numbers"),
    "ragged": ({"points": [[1, 2], [3]]}, "points must be an array of numbers.*ragged"),
    "complex": ({"values": np.ones(9, complex)}, "real numbers.*got complex128"),
    "noise shape": ({"noise": np.ones(8)}, r"noise must be a number or have shape \(9,\)"),
    "negative noise": ({"noise": -np.ones(9)}, "noise must be a finite number of at least 0"),
    "confidence": ({"confidence": 1.5}, "confidence must be a number from 0 to 1"),
    "robust": ({"robust": "yes"}, "robust must be True or False"),
    "method": ({"method": "nearest"}, "pass robust=False, or one of the methods neuroexplicit"),
    "image": ({"image": "frame.png"}, "image must be an array"),
    "no image": ({"image": None}, r"size must be \(H, W\) if image is None"),
    "other size": ({"size": (W, H)}, r"size must be left out or that of the image"),
    "space": ({"space": "inverse", "values": -np.ones(9)}, "above 0 where known for space='inverse'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_an_error_that_says_what_to_do(case: str) -> None:
    arguments, message = BAD[case]
    defaults = {"image": image(), "points": random_points(9), "values": np.ones((9, 2))}
    with pytest.raises(fi.InputError, match=message):
        fi.inpaint_points(**(defaults | arguments))
