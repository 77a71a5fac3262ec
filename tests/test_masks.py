import numpy as np
import pytest

from flowinpaint.errors import InputError
from flowinpaint.masks import random_mask


@pytest.mark.parametrize(
    ("shape", "density", "count"),
    [((20, 30), 0.1, 60), ((20, 30), 1.0, 600), ((20, 30), 1e-9, 1), ((7, 11), 0.33, 25), ((1, 1), 0.5, 1)],
)
def test_the_count_is_exact(shape: tuple[int, int], density: float, count: int) -> None:
    for seed in range(5):
        mask = random_mask(shape, density, seed)
        assert mask.shape == shape
        assert mask.dtype == np.bool_
        assert mask.sum() == count


def test_the_seed_decides() -> None:
    assert np.array_equal(random_mask((40, 50), 0.05, 3), random_mask((40, 50), 0.05, 3))
    assert not np.array_equal(random_mask((40, 50), 0.05, 3), random_mask((40, 50), 0.05, 4))


def test_every_pixel_is_as_likely() -> None:
    hits = sum(random_mask((8, 8), 0.25, seed).astype(int) for seed in range(2000))
    # 500 expected with a deviation of 19; 6 deviations over 64 pixels leave no room for chance.
    assert np.abs(np.asarray(hits) - 500).max() < 6 * 19.4


@pytest.mark.parametrize("density", [0.0, -0.1, 1.01, float("nan")])
def test_bad_densities_are_named(density: float) -> None:
    with pytest.raises(InputError, match="density is"):
        random_mask((8, 8), density, 0)


@pytest.mark.parametrize("shape", [(0, 4), (4, -1), (4, 4, 2), (4,)])
def test_bad_shapes_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="shape is"):
        random_mask(shape, 0.5, 0)  # type: ignore[arg-type]


def test_a_share_of_all_pixels_is_drawn_from_the_valid_ones() -> None:
    valid = np.zeros((20, 30), np.bool_)
    valid[:, 20:] = True
    mask = random_mask((20, 30), 0.1, 3, valid)
    assert mask.sum() == 60
    assert not (mask & ~valid).any()
    assert random_mask((20, 30), 1 / 3, 0, valid).tolist() == valid.tolist()
    everywhere = np.ones((20, 30), np.bool_)
    assert np.array_equal(random_mask((20, 30), 0.1, 3, everywhere), random_mask((20, 30), 0.1, 3))


def test_bad_valid_pixels_are_named() -> None:
    with pytest.raises(InputError, match=r"density is 0.5, 300 of 600 pixels; up to the 200 valid ones"):
        random_mask((20, 30), 0.5, 0, np.arange(600).reshape(20, 30) < 200)
    with pytest.raises(InputError, match="valid is float64"):
        random_mask((2, 3), 0.5, 0, np.ones((2, 3)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"valid is bool \(3, 2\)"):
        random_mask((2, 3), 0.5, 0, np.ones((3, 2), np.bool_))
