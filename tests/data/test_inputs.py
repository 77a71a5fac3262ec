import cv2
import numpy as np
import pytest

from flowinpaint.data.inputs import DAMAGES, corrupted, matched
from flowinpaint.data.matchers import MATCHERS
from flowinpaint.masks import random_mask
from flowinpaint.masks.cases import INPUTS, Case
from image_pair import image_pair

H, W = 200, 300
TRUTH = np.random.default_rng(0).normal(0, 20, (H, W, 2)).astype(np.float32)


def damaged(name: Case, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The field of a corrupted input, and the difference (N, C) of its given vectors to the truth."""
    mask = random_mask((H, W), 0.05)
    field = corrupted(DAMAGES[name], TRUTH, mask, seed)
    assert np.isnan(field[~mask]).all()
    assert field.dtype == np.float32
    return field, (field - TRUTH)[mask]


def test_noise_is_gaussian_of_half_a_pixel() -> None:
    _, difference = damaged("noise")
    assert difference.std(0) == pytest.approx(0.5, rel=0.05)
    assert np.abs(difference.mean(0)).max() < 0.05
    assert np.mean(np.abs(difference) < 0.5) == pytest.approx(0.683, abs=0.02)


@pytest.mark.parametrize(("name", "share", "reach"), [("outliers", 0.1, 10), ("gross", 0.2, 40)])
def test_a_share_of_the_vectors_is_moved_evenly_within_reach(name: Case, share: float, reach: float) -> None:
    _, difference = damaged(name)
    moved = np.abs(difference).max(1) > 1e-4
    assert moved.sum() == round(share * len(moved))
    assert not difference[~moved].any()
    assert 0.95 * reach < np.abs(difference).max() <= reach + 1e-4
    assert difference[moved].std() == pytest.approx(reach / np.sqrt(3), rel=0.1)


@pytest.mark.parametrize("name", DAMAGES)
def test_the_seed_decides(name: Case) -> None:
    assert np.array_equal(damaged(name, 1)[0], damaged(name, 1)[0], equal_nan=True)
    assert not np.array_equal(damaged(name, 1)[0], damaged(name, 2)[0], equal_nan=True)


@pytest.mark.parametrize("name", DAMAGES)
def test_one_given_value_is_enough(name: Case) -> None:
    mask = np.zeros((3, 4), np.bool_)
    mask[1, 2] = True
    truth = np.where(mask[..., None], np.float32(3), np.float32(np.nan))
    field = corrupted(DAMAGES[name], truth, mask, 5)
    assert np.array_equal(np.isfinite(field[..., 0]), mask)


def test_every_input_has_a_function_or_a_file() -> None:
    assert {*MATCHERS, *DAMAGES, "given"} == set(INPUTS)


def test_images_of_every_kind_are_matched() -> None:
    first, second = image_pair()
    grey = matched("lk", first, second)
    assert np.isfinite(grey).any()
    coloured = (cv2.cvtColor(x, cv2.COLOR_GRAY2RGB) for x in (first, second))
    assert np.array_equal(matched("lk", *coloured), grey, equal_nan=True)
    assert np.array_equal(matched("lk", first / np.float32(255), second), grey, equal_nan=True)
