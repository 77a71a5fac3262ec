"""Tiled evaluation of the network: activations never exist for the whole image, and the maps are the same.

A pixel's maps depend on its neighbourhood only. Take a network that halves four times, S = 16. Through the 3×3 layers
of the encoder, every second of which halves, row i of the coarsest features sees rows 2 i ± 1 of x3, 4 i ± 5 of x2,
8 i ± 13 of x1, 16 i ± 29 of x0 and 16 i ± 30 of the input, in general S i ± (2 S - 2). Row r of a decoder depends on
row r of its scale and row ⌊r/2⌋ of the coarser one, row r of a map on rows r - 1 to r + 1. So the maps of input rows
S a up to S b depend on the coarsest rows a - 1 to b, and on the input rows S a - (3 S - 2) to S b + 2 S - 2. With
merge, a row of each decoder depends on one more row to either side, which does not change the range of coarsest rows,
and the second layer of full resolution sees one more input row to either side. At the image border the network pads
with zeros, layer by layer, as it does in a tile that ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import NamedTuple

from torch import Tensor

from flowinpaint.progress import Tell, part_of

BEFORE, AFTER = 3, 2
"""Rows, or columns, that a tile reads before and after its core, in strides of the network."""

Network = Callable[..., list[Tensor]]
"""Maps input (B, n, h, w), h and w multiples of its stride, to (B, C, h/8, w/8) … (B, C, h, w), coarse to fine."""
Reader = Callable[[slice, slice], Tensor]
"""Maps rows and columns, of the image extended to multiples of the stride, to the network's input there."""


class Span(NamedTuple):
    """A tile along one axis: the range it reads, and the core it computes."""

    read: slice
    core: slice


def spans_of(length: int, tile: int, stride: int) -> list[Span]:
    """Nearly equal cores, multiples of the stride and at most `tile`, that cover `length` rounded up to a stride."""
    units = -(-length // stride)
    count = -(-units // max(1, tile // stride))
    bounds = [units * i // count * stride for i in range(count + 1)]
    end = bounds[-1]
    return [
        Span(slice(max(0, start - BEFORE * stride), min(end, stop + AFTER * stride)), slice(start, stop))
        for start, stop in pairwise(bounds)
    ]


def tiled_maps(
    network: Network, read: Reader, size: tuple[int, int], tile: int, stride: int, tell: Tell | None = None
) -> list[Tensor]:
    """The network's maps of an image of size (H, W), coarse to fine, each of size (ceil(H/s), ceil(W/s)).

    tile: the maximal side of a tile's core; stride: the network's input is a multiple of this. tell: called with the
    finished share after each tile; the network gets a `tell` of its own, as a second argument.
    """
    (H, W), maps = size, list[Tensor]()
    tiles = list(product(spans_of(H, tile, stride), spans_of(W, tile, stride)))
    for i, (vertical, horizontal) in enumerate(tiles):
        x = read(vertical.read, horizontal.read)
        parts = network(x) if tell is None else network(x, part_of(tell, i / len(tiles), (i + 1) / len(tiles)))
        scales = [2 ** (len(parts) - 1 - k) for k in range(len(parts))]
        if not maps:
            maps = [z.new_empty(*z.shape[:2], -(-H // s), -(-W // s)) for z, s in zip(parts, scales, strict=True)]
        for z, part, s in zip(maps, parts, scales, strict=True):
            rows, columns = (slice(span.core.start // s, span.core.stop // s) for span in (vertical, horizontal))
            target = z[..., rows, columns]
            top, left = ((span.core.start - span.read.start) // s for span in (vertical, horizontal))
            target.copy_(part[..., top : top + target.shape[-2], left : left + target.shape[-1]])
        if tell is not None:
            tell((i + 1) / len(tiles))
    return maps
