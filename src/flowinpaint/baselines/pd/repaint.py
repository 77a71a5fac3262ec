"""RePaint (Lugmayr et al., 2022) with EDM steps: inpainting by a diffusion model trained without masks.

Before each step from σ_i to σ_{i+1} the known pixels are set to their values plus noise of level σ_i. The step is
repeated R times, and in between the field is returned to σ_i by fresh noise (jump length 1), so that unknown and known
pixels become consistent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.baselines.pd.edm import Denoiser, churn, heun_step, sigma_schedule
from flowinpaint.counter_rng import Draws, normal_field
from flowinpaint.diffusion.kernels.recording import record

REPORTS = 50
"""Number of progress reports of a sampling; on CUDA each one waits for the device."""


class Plan(NamedTuple):
    """Constants of a sampling: N, R, the range of noise levels and ρ (equation 5), and the four of Algorithm 2."""

    sampling_steps: int
    resampling_steps: int
    sigma_min: float
    sigma_max: float
    rho: float
    s_churn: float
    s_tmin: float
    s_tmax: float
    s_noise: float

    @property
    def iterations(self) -> int:
        """Total number of steps: R times each step except the last, which ends without noise and is done once."""
        return (self.sampling_steps - 1) * self.resampling_steps + 1

    def rows(self) -> list[tuple[float, float, float, float]]:
        """σ_i, σ_{i+1}, γ_i and the standard deviation of the noise added afterwards, for each iteration.

        Returning from σ_{i+1} to σ_i adds noise of variance σ_i² - σ_{i+1}², and none the last time.
        """
        sigma = sigma_schedule(self.sampling_steps, self.sigma_min, self.sigma_max, self.rho)
        gamma = [churn(s, self.sampling_steps, self.s_churn, self.s_tmin, self.s_tmax) for s in sigma]
        rows = []
        for i in range(self.sampling_steps - 1):
            back = math.sqrt(sigma[i] ** 2 - sigma[i + 1] ** 2)
            again = (sigma[i], sigma[i + 1], gamma[i], back)
            rows += [again] * (self.resampling_steps - 1) + [(*again[:3], 0.0)]
        return [*rows, (sigma[-2], sigma[-1], gamma[-2], 0.0)]


class Chain:
    """A batch of fields on the way from noise to samples, with all state in device memory.

    f (B, 2, h, w) float32, known (B, 1, h, w) bool, key (B,) of `Draws`: the noise of a field is a function of its key
    and the iteration.
    """

    def __init__(self, denoise: Denoiser, f: Tensor, known: Tensor, plan: Plan, key: Tensor) -> None:
        self.denoise, self.f, self.known, self.plan, self.key = denoise, f, known, plan, key
        self.table = torch.tensor(plan.rows(), dtype=torch.float32, device=f.device)
        self.done = torch.zeros(1, dtype=torch.int64, device=f.device)
        self.x = plan.sigma_max * normal_field(Draws(key - 1).key(), tuple(f.shape[1:]))

    def advance(self, last: bool = False) -> None:
        """One iteration: insert the known pixels, step, and return to the noise level."""
        sigma, sigma_next, gamma, back = self.table.index_select(0, self.done)[0].unbind()
        draws, shape = Draws(self.key + self.done), tuple(self.f.shape[1:])
        noise, churned = normal_field(draws.key(), shape), normal_field(draws.key(), shape)
        x = torch.where(self.known, self.f + sigma * noise, self.x)
        x = heun_step(self.denoise, x, sigma, sigma_next, gamma, self.plan.s_noise * churned, last=last)
        # The same noise serves both: the known pixels, which used it above, are replaced before the next step.
        self.x.copy_(x + back * noise)
        self.done += 1


@torch.no_grad()
def repaint(
    denoise: Denoiser,
    f: Tensor,
    known: Tensor,
    plan: Plan,
    key: Tensor,
    tell: Callable[[int], None] | None = None,
    graph: bool = True,
) -> Tensor:
    """Samples (B, 2, h, w) of fields with the known pixels of f, which they keep exactly.

    f (B, 2, h, w) float32, known (B, 1, h, w) bool, key (B,): see `Chain`. tell: called with the number of finished
    iterations. graph: on CUDA, record an iteration once and replay it; its thousands of launches would take longer than
    the computation.
    """
    chain = Chain(denoise, f, known, plan, key)
    advance: Callable[[], None] = chain.advance
    every = math.ceil(plan.iterations / REPORTS)
    for done in range(1, plan.iterations):
        advance()
        if done == 1 and graph and f.is_cuda and plan.iterations > 2:
            advance = record(chain.advance).replay
        if tell is not None and done % every == 0:
            _wait_for(f)
            tell(done)
    chain.advance(last=True)
    _wait_for(f)  # before the memory of a recorded iteration is freed
    if tell is not None:
        tell(plan.iterations)
    return torch.where(known, f, chain.x)


def _wait_for(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.current_stream(x.device).synchronize()
