"""Training and sampling of diffusion models after Karras, Aittala, Aila and Laine (2022), "EDM".

Their symbols: y is a clean field, n noise of standard deviation σ, D(y + n; σ) the denoised field. Written from the
formulas in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.counter_rng import Draws

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""D: x (B, 2, h, w) and σ, () or (B,), to the denoised field (B, 2, h, w)."""
Raw = Callable[[Tensor, Tensor], Tensor]
"""F, the network itself: c_in x (B, 2, h, w) and c_noise, () or (B,), to (B, 2, h, w)."""


class Scalings(NamedTuple):
    """Factors of equation 7 at a noise level: skip, out and in broadcast over fields, noise has the shape of σ."""

    c_skip: Tensor
    c_out: Tensor
    c_in: Tensor
    c_noise: Tensor


def scalings(sigma: Tensor, sigma_data: float) -> Scalings:
    """Their Table 1, "Network and preconditioning", for σ of shape () or (B,)."""
    s = per_field(sigma)
    total = s.square() + sigma_data**2
    root = total.rsqrt()
    return Scalings(sigma_data**2 / total, s * sigma_data * root, root, torch.log(sigma) / 4)


def preconditioned(network: Raw, sigma_data: float) -> Denoiser:
    """Equation 7: D(x; σ) = c_skip x + c_out F(c_in x; c_noise)."""

    def denoise(x: Tensor, sigma: Tensor) -> Tensor:
        c = scalings(sigma, sigma_data)
        return c.c_skip * x + c.c_out * network(c.c_in * x, c.c_noise)

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


def churn(sigma: float, count: int, s_churn: float, s_tmin: float, s_tmax: float) -> float:
    """γ of Algorithm 2 for N steps: the relative increase of a noise level before the step."""
    return min(s_churn / count, math.sqrt(2) - 1) if s_tmin <= sigma <= s_tmax else 0.0


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


def per_field(sigma: Tensor) -> Tensor:
    """σ of shape () or (B,) as (1, 1, 1, 1) or (B, 1, 1, 1)."""
    return sigma.reshape(-1, 1, 1, 1)
