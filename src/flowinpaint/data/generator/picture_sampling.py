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


def gather(pixels: Tensor, pictures: Pictures, x: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """The four pixels of a bank around the positions (x, y) in pictures, and their offsets from the first: x and y."""
    offset, height, width = pictures
    x0 = x.int().clamp(min=0).minimum(width - 1)
    y0 = y.int().clamp(min=0).minimum(height - 1)
    x1, y1 = (x0 + 1).minimum(width - 1), (y0 + 1).minimum(height - 1)
    upper, lower = offset + y0 * width, offset + y1 * width
    around = [pixels[upper + x0], pixels[upper + x1], pixels[lower + x0], pixels[lower + x1]]
    return around, (x - x0).clamp(0, 1), (y - y0).clamp(0, 1)


def colours(pixels: Tensor, pictures: Pictures, x: Tensor, y: Tensor) -> Tensor:
    """Bilinearly interpolated colours (…, 3) in [0, 1]."""
    around, right, down = gather(pixels, pictures, x, y)
    a, b, c, d = (unpack(pixel)[0] for pixel in around)
    right, down = right[..., None], down[..., None]
    return torch.lerp(torch.lerp(a, b, right), torch.lerp(c, d, right), down) / 255


def distances(pixels: Tensor, pictures: Pictures, x: Tensor, y: Tensor) -> Tensor:
    """Bilinearly interpolated distances from the silhouettes of cut-outs, in picture pixels, positive inside."""
    around, right, down = gather(pixels, pictures, x, y)
    a, b, c, d = (unpack(pixel)[1].float() for pixel in around)
    byte = torch.lerp(torch.lerp(a, b, right), torch.lerp(c, d, right), down)
    return (byte - DISTANCE_ZERO) / DISTANCE_UNIT


def labels(pixels: Tensor, pictures: Pictures, x: Tensor, y: Tensor) -> Tensor:
    """The label with the largest bilinear weight, so that borders of enlarged segments are smooth, not stepped."""
    around, right, down = gather(pixels, pictures, x, y)
    numbers = [unpack(pixel)[1] for pixel in around]
    weights = [(1 - right) * (1 - down), right * (1 - down), (1 - right) * down, right * down]
    best, most = numbers[0], torch.zeros_like(right)
    for own in numbers:
        agreeing = [torch.where(other == own, weight, 0.0) for other, weight in zip(numbers, weights, strict=True)]
        total = agreeing[0] + agreeing[1] + agreeing[2] + agreeing[3]
        best, most = torch.where(total > most, own, best), torch.maximum(most, total)
    return best
