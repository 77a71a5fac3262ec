"""What a step of training sets a network: a batch, of which some vectors are given."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.data import Batch
from flowinpaint.masks import MaskMix

MASK_SEED = 7919
"""Added to the seed: masks must not repeat the numbers that their scenes were drawn from."""


class Task(NamedTuple):
    """A batch, which of its pixels are given, (B, 1, H, W), and the vectors there, (B, C, H, W).

    samples: the sample numbers (B,), of which all that is drawn at random for a task is a function.
    """

    batch: Batch
    mask: Tensor
    given: Tensor
    samples: Tensor


def draw_given(samples: Tensor, seed: int, masks: MaskMix, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mask and given vectors for the batch of these sample numbers (B,)."""
    draws = Draws(samples, seed + MASK_SEED)
    mask = masks.draw(draws, batch.image, batch.flow, batch.valid)
    return mask, masks.disturb(draws, batch.flow)
