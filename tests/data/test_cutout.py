import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.data.bank import cut_to_silhouette, silhouette_distance


def test_pixels_at_the_border_are_half_a_pixel_from_it() -> None:
    inside = np.zeros((9, 9), np.bool_)
    inside[3:6, 2:7] = True
    distance = silhouette_distance(inside)
    assert distance[3, 4] == distance[5, 4] == distance[4, 2] == 0.5
    assert distance[2, 4] == distance[6, 4] == distance[4, 1] == -0.5
    assert distance[4, 4] == 1.5
    assert distance[0, 4] == -2.5


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 30))
def test_a_cutout_has_a_margin_and_whole_steps_and_no_colour_from_outside(seed: int, height: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    inside = rng.random((height, width)) < 0.3
    inside[rng.integers(height), rng.integers(width)] = True
    colour = np.where(inside[..., None], rng.integers(0, 100, (height, width, 1)), 255).repeat(3, 2).astype(np.uint8)
    cut, extra = cut_to_silhouette(colour, inside)
    within = extra == 255
    assert cut.shape == (*within.shape, 3)
    assert within.shape[0] % 4 == within.shape[1] % 4 == 0
    assert within.sum() == inside.sum()
    assert not (within[:2].any() or within[-2:].any() or within[:, :2].any() or within[:, -2:].any())
    assert within[2].any()
    assert within[:, 2].any()
    assert (cut[within] == colour[inside]).all()
    assert cut.max() < 100
