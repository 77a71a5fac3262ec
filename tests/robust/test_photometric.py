"""Photometric evidence of given vectors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.robust.features import PHOTO_HINT, PHOTO_VECTORS
from flowinpaint.robust.photometric import RADII, grey, patch_correlations, sample
from image_pair import SHIFT, image_pair

H, W = 96, 128
CORRELATIONS = [0, 4]
"""Columns of the first vector's correlations, at both radii, among those of three vectors."""


def colour(picture: np.ndarray) -> Tensor:
    return torch.from_numpy(picture.astype(np.float32) / 255).expand(1, 3, -1, -1)


def places(count: int = 200, seed: int = 0) -> Tensor:
    """Rows and columns at least 16 px from the border."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([rng.integers(16, H - 16, count), rng.integers(16, W - 16, count)], 1)).float()


FIRST, SECOND = map(colour, image_pair(H, W))
TRUE = torch.tensor(SHIFT).float().expand(200, 2)


def test_the_form() -> None:
    found = patch_correlations(FIRST, SECOND, places(), [TRUE] * PHOTO_VECTORS)
    assert found.shape == (200, PHOTO_HINT - 1)
    assert patch_correlations(FIRST, SECOND, places(3), [TRUE[:3]]).shape == (3, 2 * len(RADII) + 1)


def test_the_same_image_correlates_completely() -> None:
    zero = torch.zeros(200, 2)
    found = patch_correlations(FIRST, FIRST, places(), [zero, TRUE, zero])
    torch.testing.assert_close(found[:, CORRELATIONS], torch.ones(200, 2), atol=1e-4, rtol=0)
    torch.testing.assert_close(found[:, [2, 6]], torch.ones(200, 2), atol=1e-4, rtol=0)
    assert float(found[:, [1, 5]].abs().mean()) < 0.5


def test_right_vectors_correlate_and_wrong_ones_do_not() -> None:
    wrong = TRUE + torch.tensor([4.0, 6.0])
    found = patch_correlations(FIRST, SECOND, places(), [TRUE, wrong, -TRUE])
    assert float(found[:, CORRELATIONS].min()) > 0.999
    assert float(found[:, [1, 2, 5, 6]].median()) < 0.3
    assert float((found[:, 5] > 0.8).float().mean()) < 0.02


@given(gain=st.floats(0.5, 1.0), offset=st.floats(0, 0.3))
@settings(max_examples=20)
def test_brightness_and_contrast_do_not_matter(gain: float, offset: float) -> None:
    other = gain * SECOND + offset
    expected, found = (patch_correlations(FIRST, x, places(), [TRUE, -TRUE, TRUE / 2]) for x in (SECOND, other))
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)


def test_a_negative_anticorrelates() -> None:
    found = patch_correlations(FIRST, 1 - FIRST, places(), [torch.zeros(200, 2)])
    assert float(found[:, [0, 2]].max()) < -0.95


def test_patches_without_texture_agree_with_each_other_only() -> None:
    flat = torch.full((1, 3, H, W), 0.4)
    for second, low, high in ((flat, 0.999, 1.001), (flat + 0.3, 0.999, 1.001), (FIRST, -0.1, 0.5)):
        found = patch_correlations(flat, second, places(), [TRUE])[:, [0, 2]]
        assert low < float(found.min())
        assert float(found.max()) < high


@given(seed=st.integers(0, 1000), reach=st.floats(0, 1e30))
@settings(max_examples=30)
def test_any_vectors_have_finite_evidence_within_its_range(seed: int, reach: float) -> None:
    rng = np.random.default_rng(seed)
    place = torch.from_numpy(np.stack([rng.integers(0, H, 30), rng.integers(0, W, 30)], 1)).float()
    vectors = torch.from_numpy(rng.uniform(-reach, reach, (30, 2))).float()
    found = patch_correlations(FIRST, SECOND, place, [vectors])
    assert found.isfinite().all()
    assert float(found[:, [0, 2]].abs().max()) <= 1 + 1e-4
    end = place + vectors.flip(-1)
    inside = (end[:, 0] >= 0) & (end[:, 0] <= H - 1) & (end[:, 1] >= 0) & (end[:, 1] <= W - 1)
    assert torch.equal(found[:, -1] == 1, inside)
    assert torch.equal(found[:, -1] == 0, ~inside)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 2)])
def test_tiny_images(size: tuple[int, int]) -> None:
    image = torch.rand(1, 3, *size)
    found = patch_correlations(image, image, torch.zeros(1, 2), [torch.zeros(1, 2)])
    assert found[0, [0, 2]].tolist() == pytest.approx([1, 1], abs=1e-4)
    assert found[0, -1] == 1


def test_samples_at_pixels_are_their_values_and_between_them_the_mean() -> None:
    image = grey(FIRST)
    place = places(20)
    torch.testing.assert_close(sample(image, place[:, None])[:, 0], image[0, 0][tuple(place.long().T)])
    between = sample(image, place[:, None] + torch.tensor([0.0, 0.5]))[:, 0]
    rows, columns = place.long().T
    torch.testing.assert_close(between, (image[0, 0][rows, columns] + image[0, 0][rows, columns + 1]) / 2)
