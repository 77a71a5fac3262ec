import numpy as np
import pytest

import flowinpaint as fi
from flowinpaint.depth.visibility import typical_spacing
from street_scene import P, street


def test_points_behind_a_box_are_removed_and_others_stay() -> None:
    scene = street()
    uv, depth, _ = fi.project(scene.scan, P, scene.image.shape)
    cells = np.rint(uv).astype(int)
    true = scene.depth[cells[:, 1], cells[:, 0]]
    behind, right = depth > 1.15 * true, np.abs(depth - true) < 0.1 * true
    assert behind.sum() > 20
    visible = fi.visible_points(uv, depth)
    assert (~visible[behind]).mean() > 0.7
    assert visible[right].mean() > 0.98


def test_a_plane_hides_nothing_however_steep() -> None:
    """The ground, a wall that recedes, and a ceiling: 1 / depth is linear in the image."""
    columns, rows = np.meshgrid(np.arange(0, 200, 2.0), np.arange(0, 120, 5.0))
    uv = np.column_stack([columns.ravel(), rows.ravel()])
    for slope in ((0, 1e-3), (0, -1e-3), (2e-4, 5e-4)):
        inverse = 0.2 + (uv - (100, 60)) @ slope
        assert fi.visible_points(uv, 1 / inverse).all()


def test_background_right_next_to_an_object_stays() -> None:
    columns, rows = np.meshgrid(np.arange(0, 100, 2.0), np.arange(0, 60, 5.0))
    uv = np.column_stack([columns.ravel(), rows.ravel()])
    assert fi.visible_points(uv, np.where(uv[:, 0] < 50, 5.0, 20.0)).all()


def test_unit_and_order_do_not_matter() -> None:
    scene = street()
    uv, depth, _ = fi.project(scene.scan, P, scene.image.shape)
    visible = fi.visible_points(uv, depth)
    order = np.random.default_rng(0).permutation(len(uv))
    assert np.array_equal(fi.visible_points(uv[order], 1000 * depth[order].astype(float)), visible[order])


def test_a_window_can_be_set_and_few_or_scattered_points_all_stay() -> None:
    uv = np.random.default_rng(0).uniform(0, 500, (80, 2))
    depth = np.random.default_rng(1).uniform(1, 9, 80)
    assert fi.visible_points(uv, depth).all()
    assert not fi.visible_points(uv, depth, window=(90, 90)).all()
    assert fi.visible_points(uv[:3], depth[:3]).all()
    assert fi.visible_points(np.zeros((0, 2)), np.zeros(0)).shape == (0,)


def test_the_spacing_of_a_grid_is_found() -> None:
    columns, rows = np.meshgrid(np.arange(0, 120, 2.0), np.arange(0, 120, 8.0))
    assert typical_spacing(np.column_stack([columns.ravel(), rows.ravel()])) == pytest.approx(4, rel=0.2)


def test_wrong_arguments_are_named() -> None:
    uv, depth = np.ones((9, 2)), np.ones(9)
    for places, distances, sentence in (
        (np.ones((9, 3)), depth, r"uv must be numbers of shape \(M, 2\), got float64 \(9, 3\)"),
        (uv, depth[1:], r"depth must be numbers of shape \(9,\), got float64 \(8,\)"),
        (uv * np.nan, depth, "uv must be finite"),
        (uv, -depth, r"depth must be finite and above 0, got -1\.0"),
    ):
        with pytest.raises(fi.InputError, match=sentence):
            fi.visible_points(places, distances)
    with pytest.raises(fi.InputError, match="window must be"):
        fi.visible_points(uv, depth, window=(0, 3))
