"""Sample the pictures of a bank at any position."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.data.bank import DISTANCE_UNIT, DISTANCE_ZERO, SIZES, unpack


class Pictures(NamedTuple):
    """Pictures to read: offset, height and width, integers of one shape."""

    offset: Tensor
    height: Tensor
    width: Tensor


class Gathered(NamedTuple):
    """The four pixels around a position, as packed integers, and the offset of the position from the first."""

    pixels: tuple[Tensor, Tensor, Tensor, Tensor]
    right: Tensor
    down: Tensor


def choose(bank_table: Tensor, number: Tensor, pixels_per_pixel: Tensor) -> tuple[Pictures, Tensor]:
    """The stored size of each picture for a scale in picture pixels per scene pixel, and the scale at that size.

    Reduced pictures are read at half or quarter size, so that they do not alias.
    """
    level = torch.log2(pixels_per_pixel).round().clamp(0, SIZES - 1)
    offset, height, width = bank_table[number, level.long()].unbind(-1)
    return Pictures(offset, height, width), pixels_per_pixel * torch.exp2(-level)


def mirrored(x: Tensor, length: Tensor) -> Tensor:
    """Reflect a coordinate at the first and last pixel until it lies between them."""
    last = (length - 1).clamp(min=1).float()
    return (last - (torch.remainder(x, 2 * last) - last).abs()).clamp(min=0)


def gather(pixels: Tensor, pictures: Pictures, x: Tensor, y: Tensor) -> Gathered:
    """The pixels around the positions (x, y) in pictures of a bank with these pixels."""
    offset, height, width = pictures
    x0 = x.int().clamp(min=0).minimum(width - 1)
    y0 = y.int().clamp(min=0).minimum(height - 1)
    x1, y1 = (x0 + 1).minimum(width - 1), (y0 + 1).minimum(height - 1)
    upper, lower = offset + y0 * width, offset + y1 * width
    around = (pixels[upper + x0], pixels[upper + x1], pixels[lower + x0], pixels[lower + x1])
    return Gathered(around, (x - x0).clamp(0, 1), (y - y0).clamp(0, 1))


def colours(gathered: Gathered) -> Tensor:
    """Bilinearly interpolated colours (…, 3) in [0, 1]."""
    a, b, c, d = (unpack(pixel)[0] for pixel in gathered.pixels)
    right, down = gathered.right[..., None], gathered.down[..., None]
    return torch.lerp(torch.lerp(a, b, right), torch.lerp(c, d, right), down) / 255


def distances(gathered: Gathered) -> Tensor:
    """Bilinearly interpolated distances from the silhouettes of cut-outs, in picture pixels, positive inside."""
    a, b, c, d = (unpack(pixel)[1].float() for pixel in gathered.pixels)
    byte = torch.lerp(torch.lerp(a, b, gathered.right), torch.lerp(c, d, gathered.right), gathered.down)
    return (byte - DISTANCE_ZERO) / DISTANCE_UNIT


def labels(gathered: Gathered) -> Tensor:
    """The label with the largest bilinear weight, so that borders of enlarged segments are smooth, not stepped."""
    numbers = [unpack(pixel)[1] for pixel in gathered.pixels]
    right, down = gathered.right, gathered.down
    weights = [(1 - right) * (1 - down), right * (1 - down), (1 - right) * down, right * down]
    best, most = numbers[0], torch.zeros_like(right)
    for own in numbers:
        agreeing = [torch.where(other == own, weight, 0.0) for other, weight in zip(numbers, weights, strict=True)]
        total = agreeing[0] + agreeing[1] + agreeing[2] + agreeing[3]
        best, most = torch.where(total > most, own, best), torch.maximum(most, total)
    return best
