import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.data.silhouettes import SHAPES


@pytest.mark.parametrize("number", range(len(SHAPES)))
@given(seed=st.integers(0, 2**32 - 1))
def test_a_shape_is_large_and_hangs_together_and_the_seed_decides_it(number: int, seed: int) -> None:
    parts = SHAPES[number](np.random.default_rng(seed), 128)
    assert parts.shape == (128, 128)
    assert parts.dtype == np.uint8
    assert (parts == SHAPES[number](np.random.default_rng(seed), 128)).all()
    assert 0.02 < (parts > 0).mean() < 0.9
    _, _, stats, _ = cv2.connectedComponentsWithStats((parts > 0).astype(np.uint8))
    assert np.asarray(stats)[1:, cv2.CC_STAT_AREA].max() > 0.7 * (parts > 0).sum()
