from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.given_vectors import inlier_auc, roc_auc, wrong_share

H, W = 6, 8


@pytest.fixture
def frame() -> Frame:
    """Nothing moves. All vectors of the lower half are given, the first two columns wrong by 4 px, others by 3 px.

    The truth of the last two columns is not valid.
    """
    truth, vectors = np.zeros((2, H, W, 2), np.float32)
    truth[:, -2:] = np.nan
    vectors[:, :2, 0], vectors[:, 2:, 1] = 4, 3
    mask = np.zeros((H, W), np.bool_)
    mask[3:] = True
    image = np.zeros((H, W), np.uint8)
    return Frame(image, truth, np.isfinite(truth[..., 0]), mask, vectors=np.where(mask[..., None], vectors, np.nan))


def test_more_than_three_pixels_are_wrong_where_truth_and_vector_are_known(frame: Frame) -> None:
    assert wrong_share(frame) == pytest.approx(2 / 6)
    assert wrong_share(replace(frame, mask=frame.mask & ~frame.valid)) is None


def test_the_auc_counts_the_same_vectors(frame: Frame) -> None:
    inliers = np.where(frame.mask, np.float32(0.9), np.nan)
    inliers[3:, :2] = 0.1
    inliers[3:, -2:] = 0  # no truth there
    assert inlier_auc(inliers, frame) == 1
    assert inlier_auc(1 - inliers, frame) == 0
    assert inlier_auc(np.where(frame.mask, 0.5, np.nan), frame) == 0.5
    inliers[3, :2] = 0.9  # a third of the wrong ones is not seen
    assert inlier_auc(inliers, frame) == pytest.approx(2 / 3 + 1 / 3 / 2)
    right = replace(frame, vectors=np.zeros((H, W, 2), np.float32))
    assert inlier_auc(inliers, right) is None


def by_pairs(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float:
    above = scores[positive][:, None] - scores[~positive]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_the_auc_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    scores, positive = np.array([score for score, _ in pairs], np.float64), np.array([p for _, p in pairs], np.bool_)
    found = roc_auc(scores, positive)
    if not positive.any() or positive.all():
        assert found is None
    else:
        assert found == pytest.approx(by_pairs(scores, positive))
