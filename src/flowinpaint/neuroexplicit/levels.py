"""The number of diffusion levels of an image, and the size that they need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from flowinpaint.neuroexplicit.config import LEVELS, NeuroexplicitConfig

COARSEST_SIDE = 32
"""With the pull start the longer side of the coarsest level is at most this, unless four levels are more."""

START_STEPS = 40
"""Steps of isotropic diffusion that smooth the pull start: half way across the coarsest level."""

T = TypeVar("T")


def levels_of(H: int, W: int, config: NeuroexplicitConfig) -> int:
    """The number of levels for an image of H×W pixels, such that the coarsest has a cell."""
    if config.start == "zero":
        return LEVELS
    wanted = 1 + math.ceil(math.log2(max(H, W) / COARSEST_SIDE))
    return max(LEVELS, min(wanted, (int(min(H, W)) - 1).bit_length()))


def extended_size(H: int, W: int, levels: int) -> tuple[int, int]:
    """The size to which a very small or thin image is extended, so that the coarsest level has a cell."""
    smallest = 2 ** (levels - 1) + 1
    return max(H, smallest), max(W, smallest)


def per_level(values: Sequence[T], levels: int) -> list[T]:
    """Values of each level, coarse to fine; levels coarser than the network's use those of its coarsest."""
    return [values[0]] * (levels - LEVELS) + list(values)
