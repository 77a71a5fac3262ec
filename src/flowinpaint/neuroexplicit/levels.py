"""How many levels the diffusion of an image has, and what its size must be for that."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flowinpaint.neuroexplicit.config import LEVELS, NeuroexplicitConfig

COARSEST_SIDE = 32
"""With the pull start the coarsest level is not longer than this, unless the network's own four levels end before."""

START_STEPS = 40
"""Steps of isotropic diffusion from which the coarsest level starts with the pull start: half way across it."""

Known = tuple[Tensor, Tensor]
"""A level's f (B, C, h, w) and known (B, 1, h, w) bool."""


def levels_of(H: int, W: int, config: NeuroexplicitConfig) -> int:
    """How many levels the diffusion of an image has, the coarsest of which still has a cell."""
    if config.start == "zero":
        return LEVELS
    wanted = 1 + math.ceil(math.log2(max(H, W) / COARSEST_SIDE))
    return max(LEVELS, min(wanted, (int(min(H, W)) - 1).bit_length()))


def extended_size(H: int, W: int, levels: int) -> tuple[int, int]:
    """The size to which a very small or thin image is extended, so that the coarsest level has a cell."""
    smallest = 2 ** (levels - 1) + 1
    return max(H, smallest), max(W, smallest)


def extend(x: Tensor, height: int, width: int) -> Tensor:
    """Repeat the last row and column of (B, C, H, W) until the size is (height, width)."""
    H, W = x.shape[-2:]
    if height > H:
        x = torch.cat([x, x[..., -1:, :].expand(-1, -1, height - H, -1)], -2)
    if width > W:
        x = torch.cat([x, x[..., :, -1:].expand(-1, -1, -1, width - W)], -1)
    return x


def per_level(steps: tuple[int, ...], levels: int) -> list[int]:
    """Step counts from coarse to fine; levels coarser than the network's take those of its coarsest."""
    return [steps[0]] * (levels - LEVELS) + list(steps)
