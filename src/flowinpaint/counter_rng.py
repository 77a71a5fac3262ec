"""Random numbers as a pure function of a sample's number: the same on any device, in any batch and on any rank.

There is no state to save. Sample n of seed s is what it is whoever draws it, so a run goes on exactly where it was
interrupted, many processes share the work of one, and a CUDA graph draws afresh at each replay. The hash is the
finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over a counter.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import SupportsIndex

import torch
from torch import Tensor

from flowinpaint.errors import InputError

_GOLDEN = -0x61C8864680B583EB
"""2⁶⁴ divided by the golden ratio, odd, as a signed number: torch's integers wrap around."""
MIX = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15))
_UNIT = 2.0**-24


_NUMBERS = 64
_STREAMS = 64
"""Streams of up to so many numbers are made so many at a time: a scene wants hundreds, each of them little work."""


def check_seed(seed: SupportsIndex) -> int:
    """The seed; InputError unless it is a whole number, of any library, for which no other one draws the same."""
    value = operator.index(seed) if hasattr(seed, "__index__") and not isinstance(seed, bool) else -1
    if not 0 <= value < 2**63:
        raise InputError(f"seed: {seed!r} was given; a whole number from 0 to 2⁶³ - 1 is taken.")
    return value


class Draws:
    """A fresh stream of numbers for each call, for each of B samples with numbers (B,) int64."""

    def __init__(self, samples: Tensor, seed: int = 0) -> None:
        self._base = _hash(samples + _wrap((seed + 1) * _GOLDEN))
        self._used = 0
        self._blocks: dict[tuple[int, Callable[[Tensor], Tensor]], Tensor] = {}

    def uniform(self, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0) -> Tensor:
        """Numbers (B, *shape) in [low, high)."""
        return low + (high - low) * self._next(shape, _uniform)

    def log_uniform(self, shape: tuple[int, ...], low: float, high: float) -> Tensor:
        """Numbers (B, *shape) from low to high whose logarithms are uniform."""
        return torch.exp(self.uniform(shape, math.log(low), math.log(high)))

    def normal(self, shape: tuple[int, ...] = ()) -> Tensor:
        """Standard normal numbers (B, *shape)."""
        return self._next(shape, _normal)

    def integers(self, shape: tuple[int, ...], count: Tensor | int) -> Tensor:
        """Whole numbers (B, *shape) int64 from 0 to count - 1."""
        return self._next(shape, _word) * count >> 32

    def chance(self, shape: tuple[int, ...], probability: Tensor | float) -> Tensor:
        """True (B, *shape) with a probability."""
        return self._next(shape, _uniform) < probability

    def key(self) -> Tensor:
        """What the next stream is made from, (B,) int64: for `normal_field`."""
        self._used += 1
        return self._streams(self._used - 1, 1)[:, 0]

    def _next(self, shape: tuple[int, ...], kind: Callable[[Tensor], Tensor]) -> Tensor:
        """The next stream's numbers (B, *shape), of a kind."""
        count = math.prod(shape)
        if count > _NUMBERS:
            return kind(_numbered(self.key(), shape))
        block, row = divmod(self._used, _STREAMS)
        self._used += 1
        if (block, kind) not in self._blocks:
            streams = self._streams(block * _STREAMS, _STREAMS)
            self._blocks[block, kind] = kind(_hash(streams[..., None] ^ _count_up(_NUMBERS, streams)))
        return self._blocks[block, kind][:, row, :count].reshape(-1, *shape)

    def _streams(self, first: int, count: int) -> Tensor:
        """The keys (B, count) of so many streams."""
        # Or-ing nothing keeps compilers from taking the product for an address, in 32 bits.
        steps = (_count_up(count, self._base) | 0) * _GOLDEN
        return _hash(self._base[:, None] + _wrap((first + 1) * _GOLDEN) + steps)


def normal_field(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers (B, *shape), the stream of a key (B,) of `Draws.key`: a function that compilers fuse."""
    return _normal(_numbered(key, shape))


def _numbered(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The hashes (B, *shape) of a stream."""
    places = _count_up(math.prod(shape), key).view(1, *shape)
    # Not key + place * _GOLDEN: compilers take that for an address, in 32 bits.
    return _hash(key.view(-1, *[1] * len(shape)) ^ places)


def _count_up(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)


def _uniform(bits: Tensor) -> Tensor:
    """The upper 24 bits as a number in [0, 1)."""
    return _shift(bits, 40).float() * _UNIT


def _normal(bits: Tensor) -> Tensor:
    """Box and Muller's number from the two halves of a hash."""
    angle = 2 * math.pi * ((bits >> 8 & 0xFFFFFF).float() * _UNIT)
    return torch.sqrt(-2 * torch.log(_uniform(bits) + _UNIT)) * torch.cos(angle)


def _word(bits: Tensor) -> Tensor:
    """The upper 32 bits."""
    return _shift(bits, 32)


def _wrap(n: int) -> int:
    """The signed 64-bit number with the same last 64 bits."""
    return (n + 2**63) % 2**64 - 2**63


def _hash(x: Tensor) -> Tensor:
    """A bijection of int64 that spreads every bit over all."""
    for shift, factor in MIX:
        x = (x ^ _shift(x, shift)) * factor
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right as if x had no sign."""
    return x >> bits & ((1 << (64 - bits)) - 1)
