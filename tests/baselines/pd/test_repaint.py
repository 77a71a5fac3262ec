"""RePaint's sampler with the exact denoiser of a correlated Gaussian field, whose conditional distribution is known."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from flowinpaint.baselines.pd import edm
from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.baselines.pd.edm import Denoiser, plan, repaint
from flowinpaint.counter_rng import Draws
from helpers import generator

SIDE = 6
SAMPLES = 1024
LARGEST = 20.0


class Problem(NamedTuple):
    """A truth (1, 2, 6, 6), what is known of it, and the distribution of the rest."""

    covariance: Tensor
    truth: Tensor
    known: Tensor
    mean: Tensor
    variance: Tensor

    def denoiser(self, device: str = "cpu") -> Denoiser:
        """D(x; σ) = Σ (Σ + σ²I)⁻¹ x."""
        values, vectors = (x.float().to(device) for x in torch.linalg.eigh(self.covariance))

        def denoise(x: Tensor, sigma: Tensor) -> Tensor:
            shares = values / (values + sigma.reshape(-1, 1, 1) ** 2)
            denoised: Tensor = ((x.flatten(2) @ vectors) * shares) @ vectors.T
            return denoised.reshape(x.shape)

        return denoise

    def sample(self, steps: int, resampling: int, seed: int = 0, count: int = SAMPLES) -> Tensor:
        """Samples (count, 2, 6, 6) with the paper's churn."""
        f, known = (x.expand(count, -1, -1, -1) for x in (self.truth, self.known))
        return repaint(
            self.denoiser(), f, known, config(steps, resampling), LARGEST, Draws(torch.arange(count), seed).key()
        )

    def errors(self, samples: Tensor) -> tuple[float, float]:
        """Root mean square error of the mean, in standard deviations of the unknown, and the ratio of variances."""
        unknown = samples.flatten(2)[..., ~self.known.flatten()].double()
        off = (unknown.mean(0) - self.mean) / self.variance.sqrt()
        return float(off.square().mean().sqrt()), float((unknown.var(0) / self.variance).mean())


def config(steps: int, resampling: int) -> PDConfig:
    return PDConfig(sampling_steps=steps, resampling_steps=resampling)


@pytest.fixture(scope="module")
def problem() -> Problem:
    places = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE)).double()
    square = (places[:, None] - places[None]).square().sum(-1)
    S = (torch.exp(-square / 8) + 0.05 * torch.eye(SIDE**2)) / 1.05
    g = generator(0)
    truth = torch.randn(2, SIDE**2, generator=g, dtype=torch.float64) @ torch.linalg.cholesky(S).T
    k = torch.zeros(SIDE**2, dtype=torch.bool)
    k[torch.randperm(SIDE**2, generator=g)[:8]] = True
    W = S[~k][:, k] @ torch.linalg.inv(S[k][:, k])
    mean, variance = truth[:, k] @ W.T, (S[~k][:, ~k] - W @ S[k][:, ~k]).diagonal()
    return Problem(S, truth.float().view(1, 2, SIDE, SIDE), k.view(1, 1, SIDE, SIDE), mean, variance)


def test_mean_and_variance_of_the_unknown_are_the_exact_ones(problem: Problem) -> None:
    off, ratio = problem.errors(problem.sample(24, 45, count=256))
    assert off < 0.3
    assert 0.9 < ratio < 1.2


def test_more_resampling_is_not_worse(problem: Problem) -> None:
    few, some, many = (problem.errors(problem.sample(12, times, count=256)) for times in (1, 6, 36))
    assert few[0] > some[0] > many[0]
    assert few[1] > some[1] > many[1] > 0.95


@pytest.mark.parametrize("resampling", [1, 8])
def test_without_known_pixels_the_field_keeps_its_distribution(problem: Problem, resampling: int) -> None:
    # Going back with too much or too little noise would move the variance further with every resampling.
    free = problem._replace(known=torch.zeros_like(problem.known))
    samples = free.sample(32, resampling).flatten(2).flatten(0, 1).double()
    found = samples.T @ samples / len(samples)
    assert float((found - problem.covariance).norm() / problem.covariance.norm()) < 0.08
    assert float(found.diagonal().mean()) == pytest.approx(1, abs=0.06)


def test_known_pixels_are_kept_exactly(problem: Problem) -> None:
    samples = problem.sample(4, 2, count=3)
    known = problem.known.expand_as(samples)
    assert torch.equal(samples[known], problem.truth.expand_as(samples)[known])
    everything = problem._replace(known=torch.ones_like(problem.known))
    assert torch.equal(everything.sample(4, 2, count=1), problem.truth)


def test_a_seed_is_a_sample_whatever_the_batch(problem: Problem) -> None:
    many, two, other = problem.sample(4, 3, 5, count=4), problem.sample(4, 3, 5, count=2), problem.sample(4, 3, 6, 4)
    torch.testing.assert_close(many[:2], two)
    assert not torch.allclose(many[0], many[1])
    assert not torch.allclose(many, other)


def test_iterations_are_told(problem: Problem) -> None:
    told: list[int] = []
    numbers = config(9, 30)
    key = Draws(torch.arange(1)).key()
    repaint(problem.denoiser(), problem.truth, problem.known, numbers, LARGEST, key, told.append)
    assert told == sorted(set(told))
    assert told[-1] == numbers.iterations == len(plan(numbers, LARGEST)) == 8 * 30 + 1
    assert len(told) <= 51


def test_going_back_restores_the_level_it_came_from() -> None:
    rows = plan(config(5, 3), LARGEST)
    for k, (sigma, sigma_next, _, back) in enumerate(rows[:-1]):
        returned = (sigma_next**2 + back**2) ** 0.5
        assert returned == pytest.approx(rows[k + 1][0])
        assert (back == 0) == (k % 3 == 2)
        assert sigma > sigma_next > 0
    assert rows[-1][1] == rows[-1][3] == 0


@pytest.mark.gpu
def test_a_recorded_iteration_is_the_same(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    f, known = (x.expand(8, -1, -1, -1).cuda() for x in (problem.truth, problem.known))
    key = Draws(torch.arange(8)).key().cuda()
    recorded = repaint(problem.denoiser("cuda"), f, known, config(6, 5), LARGEST, key)
    monkeypatch.setattr(edm, "record", lambda work: SimpleNamespace(replay=work))
    launched = repaint(problem.denoiser("cuda"), f, known, config(6, 5), LARGEST, key)
    torch.testing.assert_close(recorded, launched, rtol=0, atol=1e-5)
    torch.testing.assert_close(recorded.cpu(), problem.sample(6, 5, count=8), rtol=0, atol=1e-2)
