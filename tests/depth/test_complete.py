from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.depth.complete import depth_image, depth_points
from flowinpaint.depth.restrain import restrain
from street_scene import H, P, W, street

SCENE = street()
UV, DEPTH, _ = fi.project(SCENE.scan, P, SCENE.image.shape)


def test_a_scan_becomes_dense_metric_depth() -> None:
    result = fi.complete_depth(SCENE.image, UV, DEPTH)
    assert result.flow.shape == (H, W, 1)
    assert DEPTH.min() <= result.flow.min() <= result.flow.max() <= DEPTH.max()
    error = np.abs(result.flow[..., 0] - SCENE.depth)
    assert np.median(error / SCENE.depth) < 0.02
    hidden = fi.complete_depth(SCENE.image, UV, DEPTH, visible_only=False)
    assert error.mean() < 0.9 * np.abs(hidden.flow[..., 0] - SCENE.depth).mean()


def test_visible_points_keep_their_depth() -> None:
    result = fi.complete_depth(SCENE.image, UV, DEPTH, "harmonic")
    visible = fi.visible_points(UV, DEPTH)
    given = depth_image(UV[visible], DEPTH[visible], SCENE.image.shape)
    known = np.isfinite(given)
    assert np.array_equal(result.flow[known], given[known])
    with pytest.warns(UserWarning, match="known values are outside 3 to 12"):
        bounded = fi.complete_depth(SCENE.image, UV, DEPTH, "harmonic", bounds=(3, 12))
    assert bounded.flow[~known].max() <= 12


def test_inverse_depth_makes_a_plane_exact() -> None:
    v, u = np.mgrid[:40, :60].astype(float)
    plane = 1 / (0.1 + 0.002 * v)
    known = np.zeros((40, 60), bool)
    known[[0, -1]] = known[:, [0, -1]] = True
    result = fi.complete_depth(
        np.full((40, 60), 90, np.uint8), np.column_stack([u[known], v[known]]), plane[known], "harmonic"
    )
    np.testing.assert_allclose(result.flow[..., 0], plane, rtol=1e-3)


def test_of_several_points_in_a_pixel_the_nearest_counts() -> None:
    field = depth_image([(1.2, 1.0), (0.9, 0.8), (2.0, 0.0)], [5.0, 3.0, 7.0], (2, 3))
    assert field.shape == (2, 3, 1)
    assert field[1, 1, 0] == 3
    uv, depth = depth_points(field)
    assert uv.tolist() == [[2, 0], [1, 1]]
    assert depth.tolist() == [7, 3]
    assert depth_points(field, field[..., 0] > 5)[1].tolist() == [7]


def test_images_and_points_as_tensors() -> None:
    image, uv = torch.from_numpy(SCENE.image).permute(2, 0, 1), torch.from_numpy(UV)
    result = fi.complete_depth(image, uv, torch.from_numpy(DEPTH), "harmonic")
    assert np.array_equal(result.flow, fi.complete_depth(SCENE.image, UV, DEPTH, "harmonic").flow)


def test_confidence_and_noise_of_points() -> None:
    wrong = np.arange(len(DEPTH)) % 9 == 0
    depth, surely = np.where(wrong, 3 * DEPTH, DEPTH), np.where(wrong, 0.0, 1.0)
    plain, told = (
        fi.complete_depth(SCENE.image, UV, depth, "harmonic", confidence=c, visible_only=False) for c in (None, surely)
    )
    exact = fi.complete_depth(SCENE.image, UV[~wrong], DEPTH[~wrong], "harmonic", visible_only=False)
    off = [np.abs(result.flow - exact.flow).mean() for result in (plain, told)]
    assert off[1] < 0.3 * off[0]
    assert fi.complete_depth(SCENE.image, UV, DEPTH, "harmonic", noise=0.05).info["noise"] is not None
    with pytest.raises(fi.InputError, match="confidence must be a number or have shape"):
        fi.complete_depth(SCENE.image, UV, DEPTH, "harmonic", confidence=[0.5, 1.0])


def test_a_result_is_saved_in_a_unit(tmp_path: Path) -> None:
    result = fi.complete_depth(SCENE.image, UV, DEPTH, "harmonic")
    with pytest.raises(fi.InputError, match=r"new/depth\.png: a 16-bit PNG of one channel needs a unit"):
        result.save(tmp_path / "new/depth.png")
    result.save(tmp_path / "new/depth.png", unit="mm")
    np.testing.assert_allclose(fi.read_flow(tmp_path / "new/depth.png", "mm")[0], result.flow, atol=6e-4)


def test_few_points_and_certain_results_are_not_restrained() -> None:
    result = fi.complete_depth(SCENE.image, UV[::60], DEPTH[::60])
    assert restrain(result) is result
    assert result.arrays is not None
    exact = replace(result, arrays=replace(result.arrays, expected_error=None))
    assert restrain(exact) is exact


def test_wrong_arguments_are_named() -> None:
    image = SCENE.image
    with pytest.raises(fi.InputError, match=r"uv must be inside the image of 160x96 pixels, got 1 points outside, the"):
        fi.complete_depth(image, [(5, 5), (160, 3)], [1.0, 2.0])
    with pytest.raises(fi.InputError, match="uv must have at least one point"):
        fi.complete_depth(image, np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(fi.InputError, match="image must "):
        fi.complete_depth("image.png", UV, DEPTH)
    with pytest.raises(fi.InputError, match=r"depth must be a floating array .*, got uint16"):
        depth_points(np.ones((3, 3), np.uint16))
    with pytest.raises(fi.InputError, match=r"valid must be bool \(3, 3\)"):
        depth_points(np.ones((3, 3)), np.ones((2, 3), bool))
