"""Inpainting with a diffusion model that was trained without masks: RePaint (Lugmayr et al., 2022), steps after EDM.

Before each step from σ_i to σ_{i+1} the known pixels are set to their values plus noise of level σ_i. The step is taken
R times, and between two times the field goes back to σ_i by fresh noise (jump length 1), so that the unknown pixels
come to fit the known ones.
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
"""How often a sampling tells of its progress; on CUDA each time waits for the device."""


class Plan(NamedTuple):
    """The numbers of a sampling: N, R, the noise levels' range and ρ (equation 5), and Algorithm 2's four."""

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
        """Steps in all: R times every step but the last, which ends without noise and is taken once."""
        return (self.sampling_steps - 1) * self.resampling_steps + 1

    def rows(self) -> list[tuple[float, float, float, float]]:
        """σ_i, σ_{i+1}, γ_i and the noise by which it goes back afterwards, for every iteration.

        Going back from σ_{i+1} to σ_i adds noise of variance σ_i² - σ_{i+1}², and none the last time.
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
    """A batch of fields on their way from noise to samples; all that changes is in device memory.

    f (B, 2, h, w) float32, known (B, 1, h, w) bool, key (B,) of `Draws`: a field's noise is a function of its key
    and the iteration.
    """

    def __init__(self, denoise: Denoiser, f: Tensor, known: Tensor, plan: Plan, key: Tensor) -> None:
        self.denoise, self.f, self.known, self.plan, self.key = denoise, f, known, plan, key
        self.table = torch.tensor(plan.rows(), dtype=torch.float32, device=f.device)
        self.done = torch.zeros(1, dtype=torch.int64, device=f.device)
        self.x = plan.sigma_max * normal_field(Draws(key - 1).key(), tuple(f.shape[1:]))

    def advance(self, last: bool = False) -> None:
        """One iteration: known pixels in, the step, and back again."""
        sigma, sigma_next, gamma, back = self.table.index_select(0, self.done)[0].unbind()
        draws, shape = Draws(self.key + self.done), tuple(self.f.shape[1:])
        noise, churned = normal_field(draws.key(), shape), normal_field(draws.key(), shape)
        x = torch.where(self.known, self.f + sigma * noise, self.x)
        x = heun_step(self.denoise, x, sigma, sigma_next, gamma, self.plan.s_noise * churned, last=last)
        # The same noise serves both: known pixels, which took it above, are set anew before they are seen again.
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
    """Samples (B, 2, h, w) of the fields whose known pixels are those of f, which they keep exactly.

    f (B, 2, h, w) float32, known (B, 1, h, w) bool, key (B,): see `Chain`. tell is told the iterations that are done.
    graph: on CUDA, record an iteration once and replay it; thousands of launches an iteration would take longer than
    the work.
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
    _wait_for(f)  # before a recorded iteration's memory goes
    if tell is not None:
        tell(plan.iterations)
    return torch.where(known, f, chain.x)


def _wait_for(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.current_stream(x.device).synchronize()
