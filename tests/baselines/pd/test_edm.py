"""EDM's preconditioning, loss, schedule and steps, against exact results for Gaussian fields."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.baselines.pd.edm import (
    Denoiser,
    churn,
    denoising_loss,
    draw_sigma,
    heun_step,
    preconditioned,
    scalings,
    sigma_schedule,
)
from flowinpaint.counter_rng import Draws, normal_field
from helpers import generator

SIGMAS = [0.002, 0.05, 1.0, 7.0, 480.0]


def white(sigma_data: float) -> Denoiser:
    """The exact denoiser of independent normal values."""
    return lambda x, sigma: x * sigma_data**2 / (sigma_data**2 + sigma.reshape(-1, 1, 1, 1) ** 2)


@pytest.mark.parametrize("sigma_data", [0.5, 1.0])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_input_and_target_have_unit_variance(sigma: float, sigma_data: float) -> None:
    g = generator(0)
    y, n = (torch.randn(4, 2, 100, 100, generator=g, dtype=torch.float64) for _ in range(2))
    x = sigma_data * y + sigma * n
    c_skip, c_out, c_in, c_noise = scalings(torch.tensor(sigma, dtype=torch.float64), sigma_data)
    target = (sigma_data * y - c_skip * x) / c_out
    assert float((c_in * x).var()) == pytest.approx(1, rel=0.03)
    assert float(target.var()) == pytest.approx(1, rel=0.03)
    assert float(c_noise) == pytest.approx(math.log(sigma) / 4)
    # The target has nothing left to do with the input, which is what makes c_skip the best one.
    assert float((target * x).mean() / x.std()) == pytest.approx(0, abs=0.03)


def test_levels_may_differ_within_a_batch() -> None:
    sigma = torch.tensor(SIGMAS)
    x = torch.randn(len(SIGMAS), 2, 3, 4, generator=generator(1))

    def network(x: Tensor, c_noise: Tensor) -> Tensor:
        return torch.sin(x) + c_noise.reshape(-1, 1, 1, 1)

    denoise = preconditioned(network, 0.7)
    together = denoise(x, sigma)
    for k, s in enumerate(sigma):
        torch.testing.assert_close(together[k : k + 1], denoise(x[k : k + 1], s))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_loss_weighs_all_levels_alike(sigma: float) -> None:
    g = generator(2)
    y, n = (torch.randn(64, 2, 16, 16, generator=g, dtype=torch.float64) for _ in range(2))
    levels, weight = torch.full((64,), sigma, dtype=torch.float64), torch.ones(64, 1, 16, 16, dtype=torch.float64)

    def loss(denoise: Denoiser) -> float:
        return float(denoising_loss(denoise, y, levels, n, weight, 1.0))

    # F = 0 is the best one here: white values leave nothing to learn, and the loss is F's target's variance.
    assert loss(white(1.0)) == pytest.approx(1, rel=0.03)
    assert loss(preconditioned(lambda x, _: torch.zeros_like(x), 1.0)) == pytest.approx(loss(white(1.0)))
    assert loss(preconditioned(lambda x, _: 0.5 * torch.ones_like(x), 1.0)) == pytest.approx(1.25, rel=0.03)


def test_pixels_without_weight_do_not_count() -> None:
    g = generator(3)
    y, n = torch.randn(3, 2, 8, 8, generator=g), torch.randn(3, 2, 8, 8, generator=g)
    weight = (torch.rand(3, 1, 8, 8, generator=g) < 0.5).float()
    sigma = torch.tensor([0.1, 1.0, 10.0])
    other = torch.where(weight > 0, y, y + 100)
    losses = [denoising_loss(white(1.0), truth, sigma, n, weight, 1.0) for truth in (y, other)]
    torch.testing.assert_close(*losses)
    assert float(denoising_loss(white(1.0), y, sigma, n, 0 * weight, 1.0)) == 0


def test_noise_levels_are_log_normal() -> None:
    sigma = draw_sigma(Draws(torch.arange(1000)), -1.2, 1.2, 20)
    assert sigma.shape == (20_000,)
    logs = sigma.log()
    assert float(logs.mean()) == pytest.approx(-1.2, abs=0.03)
    assert float(logs.std()) == pytest.approx(1.2, rel=0.02)


@pytest.mark.parametrize("count", [2, 3, 48])
def test_the_schedule_falls_from_end_to_end(count: int) -> None:
    sigma = sigma_schedule(count, 0.002, 480, 7)
    assert len(sigma) == count + 1
    assert sigma[0] == pytest.approx(480)
    assert sigma[-2] == pytest.approx(0.002)
    assert sigma[-1] == 0
    assert all(a > b for a, b in pairwise(sigma))
    # Equation 5: the roots are evenly spaced.
    roots = [s ** (1 / 7) for s in sigma[:-1]]
    steps = [a - b for a, b in pairwise(roots)]
    assert max(steps) == pytest.approx(min(steps))


def test_churn_is_bounded_and_within_its_range() -> None:
    few, many = PDConfig(), PDConfig(sampling_steps=480)
    assert churn(1, few) == pytest.approx(math.sqrt(2) - 1)
    assert churn(1, many) == pytest.approx(80 / 480)
    assert churn(0.04, few) == churn(51, few) == 0


def integrate(count: int, denoise: Denoiser, x: Tensor, noise: Callable[[int], Tensor], gamma: float) -> Tensor:
    """Algorithm 2 from 10 to 0.1, without the last step."""
    sigma = torch.tensor(sigma_schedule(count, 0.1, 10, 7), dtype=x.dtype)
    for i in range(count - 1):
        x = heun_step(denoise, x, sigma[i], sigma[i + 1], torch.tensor(gamma), noise(i))
    return x


def test_heun_converges_with_order_two() -> None:
    x = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    exact = math.sqrt((1 + 0.1**2) / (1 + 10**2))  # of dx/dσ = x σ / (1 + σ²)
    errors = [abs(float(integrate(n + 1, white(1.0), x, lambda _: x, 0)) / exact - 1) for n in (16, 32, 64, 128)]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) > 1.8
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("gamma", [0.0, 0.2, math.sqrt(2) - 1])
def test_churning_keeps_the_distribution(gamma: float) -> None:
    keys = Draws(torch.arange(200)).key()

    def noise(i: int) -> Tensor:
        return normal_field(keys + i, (2, 16, 16)).double()

    start = math.sqrt(1 + 10**2) * noise(-1)
    end = integrate(65, white(1.0), start, noise, gamma)
    assert float(end.var()) == pytest.approx(1 + 0.1**2, rel=0.03)
    # Without churn the end is the start, scaled; with it most of that is forgotten.
    kept = float(torch.corrcoef(torch.stack([start.flatten(), end.flatten()]))[0, 1])
    assert kept == pytest.approx(1) if gamma == 0 else abs(kept) < 0.5


def test_the_last_step_ends_at_what_is_denoised() -> None:
    x = torch.randn(2, 2, 3, 3, generator=generator(4))
    sigma, zero = torch.tensor(0.5), torch.tensor(0.0)
    reached = heun_step(white(1.0), x, sigma, zero, zero, torch.zeros_like(x), last=True)
    torch.testing.assert_close(reached, white(1.0)(x, sigma))
