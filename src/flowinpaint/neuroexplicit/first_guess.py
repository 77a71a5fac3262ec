"""Isotropic diffusion: where the pull start begins, and the first guess that a flow-aware network sees, normalised."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flowinpaint.diffusion.fsi_function import inpainting_cycle, kernels_for
from flowinpaint.diffusion.pyramid import Level, pull, refine
from flowinpaint.neuroexplicit.levels import START_STEPS

GUESS_CHANNELS = 2
CLIP = 6.0
"""Deviations beyond this many times the mean one are cut; the network sees half of them."""
RELATIVE_FLOOR = 1e-6
"""The least mean deviation, as a share of the mean vector's size: below lies the rounding of a constant field."""


def pull_start(coarsest: Level) -> Tensor:
    """Where the coarsest level starts, (B, C, h, w): pulled up from one pixel, then nearly harmonic.

    What no edge lets through keeps this start. It should be what is known nearby, and not the mean of all.
    """
    u = pull(coarsest.f, coarsest.c)
    weights = u.new_tensor([0.25, 0.25, 0, 0]).view(1, -1, 1, 1).expand(len(u), -1, *u.shape[-2:])
    return inpainting_cycle(u, coarsest.f, coarsest.c, weights, START_STEPS)


@torch.no_grad()
def first_guess(u: Tensor, levels: Sequence[Level], steps: Sequence[int]) -> Tensor:
    """Isotropic diffusion from coarse to fine, one FSI cycle a level: the field (B, C, H, W) of the finest level.

    levels and steps go from coarse to fine; u (B, C, h, w) is where the coarsest starts.
    """
    for k, (level, count) in enumerate(zip(levels, steps, strict=True)):
        u = refine(u, level.f, level.c) if k else u
        u = kernels_for(u.device).diffuse(u, level.c > 0, None, count)
    return u


@torch.no_grad()
def normalised(guess: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """The guess (B, C, H, W) as two channels that do not change when the field is shifted or scaled.

    It is measured from the mean of the known vectors, in units of their mean deviation, cut at CLIP. A single channel
    comes first, beside zero; of more than two, those are taken whose known values deviate most.
    """
    m, deviation = known_statistics(f, c)
    scale = deviation.mean(1, keepdim=True)
    scale = torch.maximum(scale, RELATIVE_FLOOR * m.abs().amax(1, keepdim=True))
    g = ((guess - m) / scale.clamp(min=torch.finfo(f.dtype).tiny)).clamp(-CLIP, CLIP) / 2
    C = g.shape[1]
    if C == 1:
        return torch.cat([g, torch.zeros_like(g)], 1)
    if C > GUESS_CHANNELS:
        most = deviation.topk(GUESS_CHANNELS, dim=1).indices.sort(1).values
        g = g.gather(1, most.expand(-1, -1, *g.shape[-2:]))
    return g


def known_statistics(f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and mean absolute deviation of the known vectors, per channel: two of shape (B, C, 1, 1)."""
    count = c.sum((2, 3), keepdim=True).clamp(min=1)
    m = (f * c).sum((2, 3), keepdim=True) / count
    return m, ((f - m).abs() * c).sum((2, 3), keepdim=True) / count
