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


def test_equal_vectors_have_a_finite_expected_error() -> None:
    log_error, f, c = given()
    count = c.sum((2, 3), keepdim=True)
    for value in (0.0, 3.3, -1e4, 1e9, 1e-30):
        error = expected_error(log_error, torch.full_like(f, value), c)
        assert (error[c > 0] == 0).all()
        least = (abs(value) or 1.0) / count.expand_as(c)[c == 0]
        assert torch.isfinite(error).all()
        assert (error[c == 0] >= least * (1 - 1e-6)).all()  # the network may raise it


def test_the_expected_error_of_equal_vectors_scales_with_them_and_falls_with_their_number() -> None:
    log_error, f, c = given()
    one = torch.zeros_like(c)
    one[:, :, 4, 4] = 1
    single, many = (expected_error(log_error, torch.full_like(f, 2.5), known) for known in (one, c))
    unknown = (c == 0) & (one == 0)
    assert (single[unknown] > 10 * many[unknown]).all()
    assert (single[unknown] >= 2.5).all()  # a single vector tells nothing about the others
    assert torch.equal(expected_error(log_error, torch.full_like(f, 2.5 * 2**20), c), 2**20 * many)


@pytest.mark.parametrize("values", [(0.0, 1e-30), (1.0, 1.0 + 1e-7), (1e9, -1e9), (5.0, 5.0), (0.0, 1e-44)])
def test_two_vectors_have_a_finite_expected_error(values: tuple[float, float]) -> None:
    log_error, f, c = given()
    c = torch.zeros_like(c)
    c[..., 0, :2] = 1
    f = torch.zeros_like(f)
    f[..., 0, 0], f[..., 0, 1] = values
    error = expected_error(log_error, f, c)
    assert torch.isfinite(error).all()
    assert torch.equal(error > 0, c == 0)
    assert torch.isfinite(confidence_of(error)).all()


def test_extreme_predictions_stay_finite() -> None:
    _, f, c = given()
    for value in (-1e6, 1e6):
        assert torch.isfinite(expected_error(torch.full_like(c, value), f, c)).all()


def test_confidence_is_the_chance_of_an_error_below_one() -> None:
    for mean in (0.1, 1.0, 20.0):
        drawn = torch.empty(100_000).exponential_(1 / mean, generator=generator(1))
        assert confidence_of(torch.tensor(mean)).item() == pytest.approx((drawn < 1).float().mean().item(), abs=0.01)
    assert confidence_of(torch.tensor([0.0, math.inf])).tolist() == [1.0, 0.0]
