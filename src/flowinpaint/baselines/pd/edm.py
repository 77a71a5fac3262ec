"""Diffusion models after Karras, Aittala, Aila and Laine (2022), "EDM", and inpainting with them by RePaint.

Karras et al.'s symbols: y is a clean field, n noise of standard deviation σ, D(y + n; σ) the denoised field. Written
from the formulas in the papers.

RePaint (Lugmayr et al., 2022) needs no masks in training. Before each step from σ_i to σ_{i+1} the known pixels are set
to their values plus noise of level σ_i. The step is repeated R times, and in between the field is returned to σ_i by
fresh noise (jump length 1), so that unknown and known pixels become consistent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.counter_rng import Draws, normal_field
from flowinpaint.diffusion.kernels.recording import record

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""D: x (B, 2, h, w) and σ, () or (B,), to the denoised field (B, 2, h, w).

Also the type of F, the network itself: c_in x (B, 2, h, w) and c_noise, () or (B,), to (B, 2, h, w).
"""
REPORTS = 50
"""Number of progress reports of a sampling; on CUDA each one waits for the device."""


def scalings(sigma: Tensor, sigma_data: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """c_skip, c_out, c_in and c_noise of their Table 1, "Network and preconditioning", for σ of shape () or (B,).

    The first three broadcast over fields; c_noise has the shape of σ.
    """
    s = per_field(sigma)
    total = s.square() + sigma_data**2
    root = total.rsqrt()
    return sigma_data**2 / total, s * sigma_data * root, root, torch.log(sigma) / 4


def preconditioned(network: Denoiser, sigma_data: float) -> Denoiser:
    """Equation 7: D(x; σ) = c_skip x + c_out F(c_in x; c_noise)."""

    def denoise(x: Tensor, sigma: Tensor) -> Tensor:
        c_skip, c_out, c_in, c_noise = scalings(sigma, sigma_data)
        return c_skip * x + c_out * network(c_in * x, c_noise)

    return denoise


def draw_sigma(draws: Draws, p_mean: float, p_std: float, fields: int = 1) -> Tensor:
    """Noise levels (B·fields,) of training, `fields` for each sample: ln σ is normal (Table 1, "Training")."""
    return torch.exp(p_mean + p_std * draws.normal((fields,)).flatten())


def denoising_loss(
    denoise: Denoiser, y: Tensor, sigma: Tensor, noise: Tensor, weight: Tensor, sigma_data: float
) -> Tensor:
    """Equations 2 and 8: the mean over pixels of λ(σ) ‖D(y + n; σ) - y‖², with λ = (σ² + σ_data²) / (σ σ_data)².

    y (B, 2, h, w), sigma (B,), noise (B, 2, h, w) standard normal, weight (B, 1, h, w), 0 to ignore a pixel. In terms
    of the network it is the mean square of F minus its target, about 1 for an untrained network.
    """
    s = per_field(sigma)
    lam = (s.square() + sigma_data**2) / (s * sigma_data).square()
    error = denoise(y + s * noise, sigma) - y
    count = weight.sum().clamp(min=1) * y.shape[1]
    return (weight * lam * error.square()).sum() / count


def sigma_schedule(count: int, sigma_min: float, sigma_max: float, rho: float) -> list[float]:
    """Equation 5: N + 1 noise levels from σ_max to σ_{N-1} = σ_min and σ_N = 0, for N of at least 2."""
    first, last = sigma_max ** (1 / rho), sigma_min ** (1 / rho)
    return [(first + i / (count - 1) * (last - first)) ** rho for i in range(count)] + [0.0]


def churn(sigma: float, config: PDConfig) -> float:
    """γ of Algorithm 2: the relative increase of a noise level before the step."""
    most = min(config.s_churn / config.sampling_steps, math.sqrt(2) - 1)
    return most if config.s_tmin <= sigma <= config.s_tmax else 0.0


def plan(config: PDConfig, sigma_max: float) -> list[tuple[float, float, float, float]]:
    """σ_i, σ_{i+1}, γ_i and the standard deviation of the noise added afterwards, for each iteration of a sampling.

    Returning from σ_{i+1} to σ_i adds noise of variance σ_i² - σ_{i+1}², and none the last time.
    """
    sigma = sigma_schedule(config.sampling_steps, config.sigma_min, sigma_max, config.rho)
    rows = []
    for now, after in pairwise(sigma[:-1]):
        back = math.sqrt(now**2 - after**2)
        rows += [(now, after, churn(now, config), back)] * (config.resampling_steps - 1)
        rows.append((now, after, churn(now, config), 0.0))
    return [*rows, (sigma[-2], sigma[-1], churn(sigma[-2], config), 0.0)]


def heun_step(
    denoise: Denoiser, x: Tensor, sigma: Tensor, sigma_next: Tensor, gamma: Tensor, noise: Tensor, *, last: bool = False
) -> Tensor:
    """One step of Algorithm 2, from σ to the next: raise the noise by γσ, Euler step, Heun correction.

    x and noise (B, 2, h, w), the noise of standard deviation S_noise; sigma, sigma_next, gamma () or (B,). last: the
    next σ is 0, where there is no slope to correct with.
    """
    s, end = per_field(sigma), per_field(sigma_next)
    raised = sigma + gamma * sigma
    t = per_field(raised)
    x = x + (t.square() - s.square()).clamp(min=0).sqrt() * noise
    slope = (x - denoise(x, raised)) / t
    reached = x + (end - t) * slope
    if last:
        return reached
    slope_there = (reached - denoise(reached, sigma_next)) / end
    return x + (end - t) * (slope + slope_there) / 2


@torch.no_grad()
def repaint(
    denoise: Denoiser,
    f: Tensor,
    known: Tensor,
    config: PDConfig,
    sigma_max: float,
    key: Tensor,
    tell: Callable[[int], None] | None = None,
) -> Tensor:
    """Samples (B, 2, h, w) of fields with the known pixels of f, which they keep exactly.

    f (B, 2, h, w) float32, known (B, 1, h, w) bool, key (B,) of `Draws`: the noise of a field is a function of its key
    and the iteration. tell: called with the number of finished iterations. On CUDA an iteration is recorded once and
    replayed, with all state in device memory; its thousands of launches would take longer than the computation.
    """
    table = torch.tensor(plan(config, sigma_max), dtype=torch.float32, device=f.device)
    shape, count = tuple(f.shape[1:]), config.iterations
    place = torch.zeros(1, dtype=torch.int64, device=f.device)
    x = sigma_max * normal_field(Draws(key - 1).key(), shape)

    def iterate(last: bool = False) -> None:
        """Insert the known pixels, step, and return to the noise level."""
        sigma, sigma_next, gamma, back = table.index_select(0, place)[0].unbind()
        draws = Draws(key + place)
        noise, churned = normal_field(draws.key(), shape), normal_field(draws.key(), shape)
        start = torch.where(known, f + sigma * noise, x)
        reached = heun_step(denoise, start, sigma, sigma_next, gamma, config.s_noise * churned, last=last)
        # The same noise serves both: the known pixels, which used it above, are replaced before the next step.
        x.copy_(reached + back * noise)
        place.add_(1)

    advance: Callable[[], None] = iterate
    for done in range(1, count):
        advance()
        if done == 1 and f.is_cuda and count > 2:
            advance = record(iterate).replay
        if tell is not None and done % math.ceil(count / REPORTS) == 0:
            _wait_for(f)
            tell(done)
    iterate(last=True)
    _wait_for(f)  # before the memory of a recorded iteration is freed
    if tell is not None:
        tell(count)
    return torch.where(known, f, x)


def per_field(sigma: Tensor) -> Tensor:
    """σ of shape () or (B,) as (1, 1, 1, 1) or (B, 1, 1, 1)."""
    return sigma.reshape(-1, 1, 1, 1)


def _wait_for(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.current_stream(x.device).synchronize()
