"""The second image of a generated scene."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.data.matchers import lucas_kanade
from flowinpaint.robust.photometric import patch_correlations
from flowinpaint.robust.training.second_image import Float, second_image
from helpers import seeds
from imperfect_fields import to_batch

H, W = 96, 128


def textured(seed: int = 0) -> Float:
    """An image (H, W, 3) in [0, 1] with detail that survives resampling."""
    rng = np.random.default_rng(seed)
    coarse = rng.random((H // 4, W // 4, 3)).astype(np.float32)
    return np.asarray(np.kron(coarse, np.ones((4, 4, 1), np.float32)))


def correlation(a: Float, b: Float) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


@given(seed=seeds, H=st.integers(2, 20), W=st.integers(2, 20), reach=st.sampled_from([0.0, 3.0, 1e4]))
@settings(max_examples=30)
def test_any_size_and_motion_gives_a_picture(seed: int, H: int, W: int, reach: float) -> None:
    rng = np.random.default_rng(seed)
    image = rng.random((H, W, 3)).astype(np.float32)
    found = second_image(image, rng.uniform(-reach, reach, (H, W, 2)).astype(np.float32), rng)
    assert found.shape == (H, W, 3)
    assert found.dtype == np.float32
    assert 0 <= found.min() <= found.max() <= 1


def test_it_depends_on_the_generator_alone_and_leaves_its_inputs() -> None:
    image, flow = textured(), np.full((H, W, 2), 2, np.float32)
    copies = image.copy(), flow.copy()
    first, again, other = (second_image(image, flow, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(image, copies[0])
    assert np.array_equal(flow, copies[1])


@pytest.mark.parametrize("seed", range(3))
def test_without_motion_it_is_the_same_image_in_another_light(seed: int) -> None:
    image = textured()
    found = second_image(image, np.zeros((H, W, 2), np.float32), np.random.default_rng(seed))
    assert correlation(found, image) > 0.98
    assert not np.allclose(found, image, atol=1e-3)


@pytest.mark.parametrize("shift", [(5, -3), (0, 8), (2.5, 0)])
def test_a_shift_moves_the_image(shift: tuple[float, float]) -> None:
    image = textured()
    found = second_image(image, np.full((H, W, 2), shift, np.float32), np.random.default_rng(0))
    rows, columns = np.meshgrid(np.arange(20, H - 20, 3), np.arange(20, W - 20, 3), indexing="ij")
    place = torch.from_numpy(np.stack([rows.ravel(), columns.ravel()], 1)).float()
    right = torch.tensor(shift).float().expand(len(place), 2)
    told = patch_correlations(to_batch(image), to_batch(found), place, [right, -right])
    assert float(told[:, 3 + 0].median()) > 0.95  # the larger patch
    assert float(told[:, 3 + 1].median()) < 0.5


def test_where_two_surfaces_meet_one_of_them_is_in_front_and_the_uncovered_place_is_filled() -> None:
    image = np.zeros((H, W, 3), np.float32)
    image[..., 2] = 0.9
    image[30:60, 40:70] = (0.9, 0, 0)
    flow = np.zeros((H, W, 2), np.float32)
    flow[30:60, 40:70] = (12, 0)
    shown = set()
    for seed in range(12):
        found = second_image(image, flow, np.random.default_rng(seed))
        red = (found[..., 0] > found[..., 2])[45]
        shown.add(bool(red[75]))  # where the square moves to: it, or the background in front
        assert not red[:25].any()
        assert found.max(2).min() > 0.3  # no holes
    assert shown == {True, False}


def tracked_error(shift: tuple[float, float] | None, scene: tuple[Any, Any]) -> Any:
    """The errors (N, 2) of vectors tracked to the second image, for a shift or for the flow of the scene."""
    image, flow = scene
    flow = flow if shift is None else np.full_like(flow, shift)
    found = second_image((image / 255).astype(np.float32), flow, np.random.default_rng(0))
    tracked = lucas_kanade(*(np.asarray(255 * x.mean(2), np.uint8) for x in (image / 255, found)))
    known = np.isfinite(tracked[..., 0])
    assert known.sum() > 100
    return (tracked - flow)[known]


class TestTracking:
    scene = sample_scene(160, 240, seed=0)

    def test_the_flow_of_a_scene_is_found(self) -> None:
        assert np.median(np.linalg.norm(tracked_error(None, self.scene), axis=1)) < 0.5

    @pytest.mark.parametrize("shift", [(0, 0), (4, 3), (-2, 5)])
    def test_nothing_moves_on_its_own(self, shift: tuple[float, float]) -> None:
        assert np.abs(np.median(tracked_error(shift, self.scene), axis=0)).max() < 0.08
