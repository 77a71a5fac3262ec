"""Fields of any number of channels for networks that know two: each pair of channels is a field of its own."""

from __future__ import annotations

import torch
from torch import Tensor

PAIR = 2


def pairs_of(channels: int) -> int:
    """How many pairs so many channels make; an odd one is paired with zeros."""
    return -(-channels // PAIR)


def to_pairs(field: Tensor) -> Tensor:
    """(B, C, H, W) → (B·P, 2, H, W), the P pairs of a sample side by side."""
    B, C, H, W = field.shape
    if C % PAIR:
        field = torch.cat([field, torch.zeros_like(field[:, :1])], 1)
    return field.reshape(B * pairs_of(C), PAIR, H, W)


def repeated(x: Tensor, channels: int) -> Tensor:
    """What belongs to a whole sample, (B, ·, H, W), once for each pair of its field: (B·P, ·, H, W)."""
    return x if pairs_of(channels) == 1 else x.repeat_interleave(pairs_of(channels), 0)


def from_pairs(pairs: Tensor, channels: int) -> Tensor:
    """The way back of `to_pairs`: (B·P, 2, H, W) → (B, C, H, W)."""
    H, W = pairs.shape[-2:]
    return pairs.reshape(-1, PAIR * pairs_of(channels), H, W)[:, :channels]
