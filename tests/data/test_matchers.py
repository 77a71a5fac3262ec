from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flowinpaint.data.matchers import MATCHERS, Field, _field, dis, lucas_kanade, orb, sift
from flowinpaint.io.flow import in_every_channel
from flowinpaint.masks.cases import Case
from image_pair import SHIFT, image_pair


@pytest.mark.parametrize("name", MATCHERS)
def test_a_known_shift_is_recovered(name: Case) -> None:
    field = MATCHERS[name](*image_pair())
    known = np.isfinite(field).all(2)
    assert field.dtype == np.float32
    assert field.shape == (96, 128, 2)
    assert np.array_equal(known, np.isfinite(field).any(2))
    assert known.sum() >= 50
    error = np.linalg.norm(field[known] - SHIFT, axis=1)
    assert np.median(error) < 0.5
    assert np.mean(error < 2) > 0.95  # ORB's coarse levels have coarse positions


def test_dis_is_dense_except_where_the_texture_leaves_the_picture() -> None:
    known = in_every_channel(np.isfinite(MATCHERS["dis"](*image_pair())))
    assert known[10:-10, 10:-10].mean() > 0.95
    assert not known[:2].any()  # moves up and out


@pytest.mark.parametrize("name", ["sift", "orb", "lk"])
def test_images_without_texture_have_no_vectors(name: Case) -> None:
    flat, (textured, _) = np.full((96, 128), 90, np.uint8), image_pair()
    assert np.isnan(MATCHERS[name](flat, flat)).all()
    assert np.isnan(MATCHERS[name](textured, flat)).all()


def test_a_vector_is_at_the_pixel_nearest_to_its_point_inside_the_picture() -> None:
    start = np.array([[1.4, 2.6], [-0.4, 0.0], [-0.6, 1.0], [9.6, 3.0], [3.0, 4.4]])
    field = _field(np.zeros((5, 10), np.uint8), start, start + np.array([1.5, -2.0]))
    rows, columns = np.nonzero(np.isfinite(field).all(2))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 0), (3, 1), (4, 3)]
    assert np.allclose(field[rows, columns], [1.5, -2.0])


def test_looser_settings_give_more_vectors() -> None:
    pair = image_pair()
    noisy = pair[0], np.clip(pair[1] + np.random.default_rng(0).normal(0, 12, pair[1].shape), 0, 255).astype(np.uint8)
    settings: list[tuple[Callable[..., Field], dict[str, Any], dict[str, Any]]] = [
        (sift, {"ratio": 0.7}, {"ratio": 1.0}),
        (sift, {"contrast": 0.05}, {"contrast": 0.003}),
        (orb, {"ratio": 0.7}, {"ratio": 1.0}),
        (lucas_kanade, {"limit": 0.1}, {"limit": np.inf}),
        (lucas_kanade, {"quality": 0.1}, {"quality": 0.001}),
        (lucas_kanade, {"distance": 10}, {"distance": 3}),
        (dis, {"limit": 0.2}, {"limit": 5.0}),
        (dis, {"fast": True, "limit": 0.2}, {"fast": True, "limit": 5.0}),
    ]
    for matcher, strict, loose in settings:
        few, many = (np.isfinite(matcher(*noisy, **options)[..., 0]).sum() for options in (strict, loose))
        assert 0 < few < many, (matcher, loose)


def test_the_preset_and_the_window_are_used() -> None:
    pair = image_pair()
    for matcher, options in ((dis, {"fast": True}), (lucas_kanade, {"window": 9}), (lucas_kanade, {"levels": 0})):
        assert not np.array_equal(matcher(*pair), matcher(*pair, **options), equal_nan=True)
