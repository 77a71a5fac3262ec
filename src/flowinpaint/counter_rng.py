"""Counter-based random numbers: a pure function of the sample number, on any device, in any batch and on any rank.

There is no state to save, so a run resumes exactly where it stopped, several processes can share one run, and a CUDA
graph draws new numbers at each replay. The hash is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) applied to
a counter.
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
"""2⁶⁴ divided by the golden ratio, odd, as a signed number; torch's integers wrap around."""
MIX = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15))
_UNIT = 2.0**-24

_NUMBERS = 64
_STREAMS = 64
"""Streams of up to _NUMBERS numbers are computed _STREAMS at a time, because a scene needs hundreds of short ones."""


def check_seed(seed: SupportsIndex) -> int:
    """The seed as int; InputError unless it is an integer (of any library) from 0 to 2⁶³ - 1."""
    value = operator.index(seed) if hasattr(seed, "__index__") and not isinstance(seed, bool) else -1
    if not 0 <= value < 2**63:
        raise InputError(f"seed must be an integer from 0 to 2⁶³ - 1, got {seed!r}")
    return value


class Draws:
    """Random streams of B samples with numbers (B,) int64; each call uses a new stream."""

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

    def integers(self, shape: tuple[int, ...], low: int, high: int) -> Tensor:
        """Integers (B, *shape) int64 from low to high."""
        return low + (self._next(shape, _word) * (high - low + 1) >> 32)

    def chance(self, shape: tuple[int, ...], probability: Tensor | float) -> Tensor:
        """True (B, *shape) with a probability."""
        return self._next(shape, _uniform) < probability

    def key(self) -> Tensor:
        """The keys (B,) int64 of the next stream, for `normal_field`."""
        self._used += 1
        return self._streams(self._used - 1, 1)[:, 0]

    def _next(self, shape: tuple[int, ...], kind: Callable[[Tensor], Tensor]) -> Tensor:
        """Numbers (B, *shape) of a kind from the next stream."""
        count = math.prod(shape)
        if count > _NUMBERS:
            return kind(_numbered(self.key(), shape))
        block, row = divmod(self._used, _STREAMS)
        self._used += 1
        if (block, kind) not in self._blocks:
            streams = self._streams(block * _STREAMS, _STREAMS)
            places = torch.arange(_NUMBERS, device=streams.device)
            self._blocks[block, kind] = kind(_hash(streams[..., None] ^ places))
        return self._blocks[block, kind][:, row, :count].reshape(-1, *shape)

    def _streams(self, first: int, count: int) -> Tensor:
        """The keys (B, count) of consecutive streams."""
        # `| 0` keeps compilers from computing the product as a 32-bit address.
        steps = (torch.arange(count, device=self._base.device) | 0) * _GOLDEN
        return _hash(self._base[:, None] + _wrap((first + 1) * _GOLDEN) + steps)


def normal_field(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers (B, *shape) from the stream of a key (B,) of `Draws.key`; torch.compile can fuse it."""
    return _normal(_numbered(key, shape))


def _numbered(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The hashes (B, *shape) of a stream."""
    places = torch.arange(math.prod(shape), device=key.device).view(1, *shape)
    # Not key + place * _GOLDEN, which compilers compute as a 32-bit address.
    return _hash(key.view(-1, *[1] * len(shape)) ^ places)


def _uniform(bits: Tensor) -> Tensor:
    """The upper 24 bits as a number in [0, 1)."""
    return _shift(bits, 40).float() * _UNIT


def _normal(bits: Tensor) -> Tensor:
    """A normal number from the two halves of a hash (Box and Muller)."""
    angle = 2 * math.pi * ((bits >> 8 & 0xFFFFFF).float() * _UNIT)
    return torch.sqrt(-2 * torch.log(_uniform(bits) + _UNIT)) * torch.cos(angle)


def _word(bits: Tensor) -> Tensor:
    """The upper 32 bits."""
    return _shift(bits, 32)


def _wrap(n: int) -> int:
    """The signed 64-bit integer with the same last 64 bits."""
    return (n + 2**63) % 2**64 - 2**63


def _hash(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64, a bijection of int64."""
    for shift, factor in MIX:
        x = (x ^ _shift(x, shift)) * factor
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Unsigned shift to the right."""
    return x >> bits & ((1 << (64 - bits)) - 1)
