"""WGAIN's critic, which training alone needs."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.errors import InputError
from flowinpaint.networks.channel_pairs import PAIR
from flowinpaint.networks.colours import Colours
from flowinpaint.networks.network import by_pixel

SLOPE = 0.3
"""Slope of the leaky ReLU below zero."""
KERNEL = 5
WIDTHS = (64, 128, 256, 256, 512)
FEWEST = 2
"""Minimum rows and columns of each layer's output: instance norm of a single number is undefined."""


class Critic(nn.Module):
    """Score (B,) of how true a field looks: image (B, 3, H, W), field (B, 2, H, W), mask (B, 1, H, W).

    For images of one size; at 384 x 384 it has 5,992,705 parameters, and for small images fewer layers. Instance norm,
    since a gradient penalty requires samples to be independent.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        sides, widths = list(size), [3 + PAIR + 1]
        for outputs in WIDTHS:
            if min(halved := [(side - KERNEL) // 2 + 1 for side in sides]) < FEWEST:
                break
            sides = halved
            widths.append(outputs)
        if len(widths) == 1:
            raise InputError(f"size must have sides of at least {KERNEL + 2} for a critic, got {list(size)}.")
        pairs = list(pairwise(widths))
        self.layers = nn.ModuleList(nn.Conv2d(i, o, KERNEL, stride=2, bias=False) for i, o in pairs)
        self.norms = nn.ModuleList(nn.InstanceNorm2d(o, affine=True) for _, o in pairs)
        self.score = nn.Linear(widths[-1] * math.prod(sides), 1)
        self.colours = Colours()

    def forward(self, image: Tensor, field: Tensor, mask: Tensor) -> Tensor:
        """`field` is in the generator's units: divided by its scale."""
        x = by_pixel(torch.cat([self.colours(image), field, mask], 1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.leaky_relu(norm(layer(x)), SLOPE)
        score: Tensor = self.score(x.flatten(1))[:, 0]
        return score
