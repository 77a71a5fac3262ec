"""Channel pairs: fields of any number of channels for networks that take two, each pair being a field of its own."""

from __future__ import annotations

import torch
from torch import Tensor

PAIR = 2


def pairs_of(channels: int) -> int:
    """Number of pairs; an odd channel is paired with zeros."""
    return -(-channels // PAIR)


def to_pairs(field: Tensor) -> Tensor:
    """(B, C, H, W) → (B·P, 2, H, W), the P pairs of a sample next to each other."""
    B, C, H, W = field.shape
    if C % PAIR:
        field = torch.cat([field, torch.zeros_like(field[:, :1])], 1)
    return field.reshape(B * pairs_of(C), PAIR, H, W)


def repeated(x: Tensor, channels: int) -> Tensor:
    """Repeat per-sample data (B, ·, H, W) for each pair of a field with `channels` channels: (B·P, ·, H, W)."""
    return x if pairs_of(channels) == 1 else x.repeat_interleave(pairs_of(channels), 0)


def from_pairs(pairs: Tensor, channels: int) -> Tensor:
    """Inverse of `to_pairs`: (B·P, 2, H, W) → (B, C, H, W)."""
    H, W = pairs.shape[-2:]
    return pairs.reshape(-1, PAIR * pairs_of(channels), H, W)[:, :channels]
