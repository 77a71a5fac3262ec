import numpy as np
import pytest

from flowinpaint.data.matchers import MATCHERS, _field
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
