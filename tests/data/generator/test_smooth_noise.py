import pytest
import torch

from flowinpaint.counter_rng import Draws
from flowinpaint.data.generator.smooth_noise import SmoothNoise


@pytest.mark.parametrize("spacing", [3, 8, 16])
def test_has_mean_zero_and_deviation_one_everywhere(spacing: int) -> None:
    field = SmoothNoise((31, 44), spacing, 1)(Draws(torch.arange(3000)).key())
    assert field.shape == (3000, 1, 31, 44)
    assert field.mean().abs() < 0.02
    assert (field**2).mean() == pytest.approx(1, abs=0.06)
    assert (field[:, :, 0, 0] ** 2).mean() > 0.5  # the border is no weaker than the middle


def test_varies_over_its_spacing() -> None:
    field = SmoothNoise((64, 64), 16, 2)(Draws(torch.arange(200)).key())
    near, far = (field[..., n:] - field[..., :-n] for n in (1, 40))
    assert near.std() < 0.12
    assert far.std() == pytest.approx(2**0.5, rel=0.1)
    assert (field[..., 2:] - 2 * field[..., 1:-1] + field[..., :-2]).abs().max() < 0.12  # no kinks at the knots


def test_scenes_differ_and_channels_differ() -> None:
    field = SmoothNoise((32, 32), 4, 2)(Draws(torch.arange(2)).key()).flatten(2).flatten(0, 1)
    assert (torch.corrcoef(field) - torch.eye(4)).abs().max() < 0.5
