"""The network in tiles: what it computes on the way never exists for the whole image, and the maps are the same.

A pixel's maps depend on its surroundings only. Take a network that halves four times, S = 16. Through the encoder's
layers of 3×3, every second of which halves, the coarsest features' row i sees x3's rows 2 i ± 1, x2's 4 i ± 5, x1's
8 i ± 13, x0's 16 i ± 29 and the input's 16 i ± 30, or S i ± (2 S - 2) in general. Row r of a decoder is made of row r
of its scale and row ⌊r/2⌋ of the coarser one, row r of a map of r - 1 to r + 1. So the maps of the input's rows from
S a up to S b go back to the coarsest rows a - 1 to b, and to the input's S a - (3 S - 2) to S b + 2 S - 2. With merge a
row of each decoder is made of one more to either side, which leaves the coarsest rows as they are, and the second layer
of full resolution sees one more of the input's to either side. At the image's borders the network pads with zeros,
layer by layer, as it does in a tile that ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import NamedTuple

from torch import Tensor

BEFORE, AFTER = 3, 2
"""Rows, or columns, that a tile reads before its core and behind it, in strides of the network."""

Network = Callable[[Tensor], list[Tensor]]
"""Input (B, n, h, w), h and w multiples of its stride, to maps (B, C, h/8, w/8) … (B, C, h, w), coarse to fine."""
Reader = Callable[[slice, slice], Tensor]
"""Rows and columns, of the image extended to multiples of the stride, to the network's input there."""


class Span(NamedTuple):
    """A tile along one axis: what it reads, and the part that it is for."""

    read: slice
    core: slice


def spans_of(length: int, tile: int, stride: int) -> list[Span]:
    """Cores of at most `tile`, multiples of a stride, nearly equal, that cover a length rounded up to it."""
    units = -(-length // stride)
    count = -(-units // max(1, tile // stride))
    bounds = [units * i // count * stride for i in range(count + 1)]
    end = bounds[-1]
    return [
        Span(slice(max(0, start - BEFORE * stride), min(end, stop + AFTER * stride)), slice(start, stop))
        for start, stop in pairwise(bounds)
    ]


def tiled_maps(network: Network, read: Reader, size: tuple[int, int], tile: int, stride: int) -> list[Tensor]:
    """The network's maps of an image of that size (H, W), coarse to fine, each of the size ceil(H/s), ceil(W/s).

    tile: the most rows, and columns, of a tile's core; stride: what the network's input is a multiple of.
    """
    (H, W), maps = size, list[Tensor]()
    for vertical, horizontal in product(spans_of(H, tile, stride), spans_of(W, tile, stride)):
        parts = network(read(vertical.read, horizontal.read))
        scales = [2 ** (len(parts) - 1 - k) for k in range(len(parts))]
        if not maps:
            maps = [z.new_empty(*z.shape[:2], -(-H // s), -(-W // s)) for z, s in zip(parts, scales, strict=True)]
        for z, part, s in zip(maps, parts, scales, strict=True):
            rows, columns = (slice(span.core.start // s, span.core.stop // s) for span in (vertical, horizontal))
            target = z[..., rows, columns]
            top, left = ((span.core.start - span.read.start) // s for span in (vertical, horizontal))
            target.copy_(part[..., top : top + target.shape[-2], left : left + target.shape[-1]])
    return maps
