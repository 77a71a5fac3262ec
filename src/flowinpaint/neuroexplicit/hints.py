"""The first guess as a flow-aware network sees it: two channels, normalised."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import RELATIVE_FLOOR, statistics

GUESS_CHANNELS = 2
CLIP = 6.0
"""Deviations beyond this many times the mean one are clipped; the network sees half of them."""


@torch.no_grad()
def normalised(guess: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """The guess (B, C, H, W) as two channels that are invariant to shifting and scaling the field.

    It is measured from the mean of the given vectors f, weighted by c (B, 1, H, W), in units of their mean deviation,
    and clipped at CLIP. A single channel is followed by zeros; of more than two, the two whose given values deviate
    most are used.
    """
    m, deviation = statistics(f, c)
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
