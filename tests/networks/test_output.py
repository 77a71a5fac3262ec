import math

import pytest
import torch

from flowinpaint.networks.output import confidence_of, expected_error, mean_and_scale
from helpers import generator


def given(density: float = 0.3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A logarithm, a field that is NaN where unknown, and what is known."""
    g = generator(0)
    c = (torch.rand(2, 1, 9, 11, generator=g) < density).float()
    f = torch.where(c > 0, torch.randn(2, 2, 9, 11, generator=g), torch.nan)
    return torch.randn(2, 1, 9, 11, generator=g), f, c


def test_the_scale_is_the_mean_deviation_of_the_known_vectors() -> None:
    _, f, c = given()
    known = f[1].flatten(1)[:, c[1].flatten() > 0]
    deviation = (known - known.mean(1, keepdim=True)).abs().mean()
    assert mean_and_scale(f, c)[1][1].item() == pytest.approx(deviation.item(), rel=1e-5)


def test_errors_scale_with_the_field_and_do_not_change_when_it_is_shifted() -> None:
    log_error, f, c = given()
    error = expected_error(log_error, f, c)
    torch.testing.assert_close(expected_error(log_error, -4 * f + 7, c), 4 * error, rtol=1e-4, atol=1e-5)
    assert (error[c > 0] == 0).all()
    assert (error[c == 0] > 0).all()


def test_a_single_vector_tells_nothing_about_the_others() -> None:
    log_error, f, c = given()
    c = torch.zeros_like(c)
    c[:, :, 4, 4] = 1
    error = expected_error(log_error, torch.ones_like(f), c)
    assert (error[..., 4, 4] == 0).all()
    assert torch.isinf(error).sum() == error.numel() - 2
    assert confidence_of(error).sum() == 2


@pytest.mark.parametrize("value", [0.0, 3.3, -1e4])
def test_nor_do_many_that_are_alike(value: float) -> None:
    log_error, f, c = given()
    error = expected_error(log_error, torch.full_like(f, value), c)
    assert torch.equal(torch.isinf(error), c == 0)
    assert (error[c > 0] == 0).all()


def test_extreme_predictions_stay_finite() -> None:
    _, f, c = given()
    for value in (-1e6, 1e6):
        assert torch.isfinite(expected_error(torch.full_like(c, value), f, c)).all()


def test_confidence_is_the_chance_of_an_error_below_one() -> None:
    for mean in (0.1, 1.0, 20.0):
        drawn = torch.empty(100_000).exponential_(1 / mean, generator=generator(1))
        assert confidence_of(torch.tensor(mean)).item() == pytest.approx((drawn < 1).float().mean().item(), abs=0.01)
    assert confidence_of(torch.tensor([0.0, math.inf])).tolist() == [1.0, 0.0]
