"""Families of masks for a batch, on any device: no host synchronisation and no shape that depends on the data.

Each function returns (B, 1, H, W) bool. They share one field of `noise` (B, 1, H, W), uniform in [0, 1) and `NEVER`
where no vector is valid; `settle` makes a mask of the valid pixels of what they return. Amounts are tensors
(B, 1, 1, 1), one number for each sample.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.diffusion.tensor import SymmetricTensor, eigenvalues, gaussian_blur, structure_tensor

NEVER = 2.0
"""The noise of a pixel without a valid vector: above every density."""

_WAVES = 32
_BLOB_LENGTH = 0.4
"""Correlation length of the noise over the diameter of its blobs (where it exceeds one deviation, about)."""
_LINE_CROWDING = 0.5
"""How much closer scan lines are at the horizon than on average: tilted down, beams spread over the near ground."""
_LINE_SHIFT = 0.618
"""From line to line the points are shifted by this share of their spacing, so that they do not form columns."""
_GAP_SIZE = 0.15
"""Diameter of the patches without returns, over the picture's width."""
_CORNER_BLUR, _CORNER_WINDOW = 0.7, 1.5
_TIE = 1e-4
"""Corners that are equally strong, as on a drawn pattern, differ by this much noise: one of them is the strongest."""
_WEAKEST_CORNER = 1e-6
"""Squared grey levels of [0, 1] per pixel: below it there is nothing but rounding."""


def pixel_noise(draws: Draws, valid: Tensor) -> Tensor:
    """The noise that decides each pixel, (B, 1, H, W), for valid (B, 1, H, W)."""
    return torch.where(valid > 0, draws.uniform((1, *valid.shape[-2:])), NEVER)


def settle(known: Tensor, noise: Tensor) -> Tensor:
    """The valid ones of the known pixels (B, 1, H, W), or one at random where that leaves none."""
    known = known & (noise < NEVER)
    one = (noise <= noise.amin((1, 2, 3), keepdim=True)) & (noise < NEVER)
    return torch.where(known.any(3, keepdim=True).any(2, keepdim=True), known, one)


def bernoulli(noise: Tensor, density: Tensor) -> Tensor:
    """Each valid pixel by itself, with the probability that a share of all pixels is expected; 1 where they are few."""
    valid = (noise < NEVER).float().mean((1, 2, 3), keepdim=True)
    return noise < (density / valid.clamp(min=1e-9)).clamp(max=1)


def few(noise: Tensor, count: Tensor, most: int) -> Tensor:
    """So many of the valid pixels, at most `most`; all of them where they are fewer."""
    flat = noise.view(len(noise), -1)
    smallest = flat.topk(min(most, flat.shape[1]), largest=False).values
    last = (count.view(-1, 1) - 1).clamp(max=smallest.shape[1] - 1)
    return noise <= smallest.gather(1, last).view(-1, 1, 1, 1)


def lidar(
    draws: Draws,
    noise: Tensor,
    *,
    lines: Tensor,
    spacing: Tensor,
    horizon: Tensor,
    focal: Tensor,
    lost: Tensor,
    gaps: Tensor,
) -> Tensor:
    """The points that a spinning laser scanner at the camera sees.

    A beam of elevation φ meets the image plane at y = tan φ √(f² + x²), a hyperbola. There are as many of them as
    lines below the horizon, a share of the height from above, in the middle column; the spacing of their points is in
    pixels there, and the focal length f in widths of the picture. Single points are lost by a share, and patches that
    cover a share of the picture (gaps).
    """
    H, W = noise.shape[-2:]
    # A line runs through a pixel, and a point lies in it, where their numbers change from one side of it to the other.
    x = torch.arange(W + 1, device=noise.device) - W / 2
    y = torch.arange(H + 1, device=noise.device).view(-1, 1) - horizon * H
    centre = (x[1:] + x[:-1]) / 2
    drop = y / ((1 - horizon) * H * torch.sqrt(1 + (centre / (focal * W)) ** 2))
    line = torch.floor(lines * _line_place(drop.clamp(min=0)) + draws.uniform((1, 1, 1)))
    azimuth = focal * W * torch.atan(x / (focal * W)) / spacing
    shift = line[:, :, 1:] * _LINE_SHIFT + draws.uniform((1, 1, 1))
    point = torch.floor(azimuth[..., 1:] + shift) > torch.floor(azimuth[..., :-1] + shift)
    returned = ~_patches(draws, (H, W), gaps, torch.full_like(gaps, _GAP_SIZE * W))
    return (line[:, :, 1:] > line[:, :, :-1]) & point & returned & (noise < 1 - lost)


def _line_place(drop: Tensor) -> Tensor:
    """The t of drop = (1 - c) t + c t², which spaces equal steps of t by 1 - c at the horizon and 1 + c at the foot."""
    c = _LINE_CROWDING
    return (torch.sqrt((1 - c) ** 2 + 4 * c * drop) - (1 - c)) / (2 * c)


def corners(image: Tensor, noise: Tensor, density: Tensor, most: float, distance: int) -> Tensor:
    """The strongest corners of an image (B, 3, H, W), as many as a share of all pixels, `most` in any sample.

    A corner is where the smaller eigenvalue of the structure tensor is the largest within a distance in pixels. Fewer
    come where the image has no more.
    """
    B, _, H, W = noise.shape
    tensor = structure_tensor(image, _CORNER_BLUR)
    smallest = eigenvalues(SymmetricTensor(*(gaussian_blur(part, _CORNER_WINDOW) for part in tensor)))[1]
    # A cell's corner counts for the pixel to its upper left; the last row and column have none.
    strength = F.pad(smallest, (0, 1, 0, 1)).where(noise < NEVER, 0.0)
    strength = strength * (1 + _TIE * noise)
    largest = F.max_pool2d(strength, 2 * distance + 1, stride=1, padding=distance)
    peaks = strength.where((strength == largest) & (strength > _WEAKEST_CORNER), 0.0).view(B, -1)
    values, places = peaks.topk(max(1, round(most * H * W)), dim=1)
    rank = torch.arange(values.shape[1], device=noise.device)
    chosen = (values > 0) & (rank < _count(density, H * W))
    return torch.zeros_like(peaks, dtype=torch.bool).scatter(1, places, chosen).view(noise.shape)


def grid(draws: Draws, noise: Tensor, *, spacing: Tensor, closest: int, jitter: Tensor, shift: Tensor) -> Tensor:
    """A point in each square of a spacing in whole pixels, `closest` in any sample.

    It lies at the centre or, with jitter 1, anywhere in its square. shift (B, 2, 1, 1) moves the squares up and left by
    a share of the spacing.
    """
    B, _, H, W = noise.shape
    rows, columns = H // closest + 2, W // closest + 2
    away = (draws.uniform((2, rows, columns)) - 0.5) * jitter
    i = torch.arange(rows, device=noise.device).view(-1, 1)
    j = torch.arange(columns, device=noise.device)
    corner = torch.floor(shift * spacing)
    y = torch.floor((i + 0.5 + away[:, :1]) * spacing - corner[:, :1]).long()
    x = torch.floor((j + 0.5 + away[:, 1:]) * spacing - corner[:, 1:]).long()
    inside = (y >= 0) & (y < H) & (x >= 0) & (x < W)
    # Points outside share one more place at the end, which is cut off.
    places = torch.where(inside, y * W + x, H * W).view(B, -1)
    hit = torch.zeros(B, H * W + 1, dtype=torch.bool, device=noise.device).scatter(1, places, True)
    return hit[:, :-1].view(noise.shape)


def blob_holes(draws: Draws, noise: Tensor, *, share: Tensor, size: Tensor, density: Tensor) -> Tensor:
    """A density of pixels outside of round holes, some pixels in diameter (size), that cover a share of the picture."""
    H, W = noise.shape[-2:]
    return ~_patches(draws, (H, W), share, size) & (noise < density)


def rectangle_holes(draws: Draws, noise: Tensor, *, count: Tensor, sides: Tensor, density: Tensor) -> Tensor:
    """A density of pixels outside of a count of rectangles, the first of those with sides (B, 2, n, 1) in pixels."""
    H, W = noise.shape[-2:]
    middle = draws.uniform(tuple(sides.shape[1:]))
    there = torch.arange(sides.shape[2], device=noise.device).view(-1, 1) < count
    rows = _covered(H, middle[:, :1], sides[:, :1]) * there
    columns = _covered(W, middle[:, 1:], sides[:, 1:])
    hole = rows.transpose(2, 3) @ columns > 0
    return ~hole & (noise < density)


def _covered(length: int, middle: Tensor, side: Tensor) -> Tensor:
    """1 for the pixels (…, length) within half a side of the middle, a share of the length; else 0."""
    place = torch.arange(length, device=middle.device) + 0.5
    return ((place - middle * length).abs() < side / 2).float()


def occlusion(noise: Tensor, flow: Tensor, *, reach: Tensor, jump: float, widest: int, density: Tensor) -> Tensor:
    """A density of pixels outside of bands along the jumps of a flow (B, C, H, W), as a forward-backward check leaves.

    To either side of a jump of more than `jump` the band is `reach` pixels wide for each pixel that its two sides move
    apart, and at most `widest`.
    """
    valid = noise < NEVER
    dx = (flow[..., :, 1:] - flow[..., :, :-1]).norm(dim=1, keepdim=True) * (valid[..., :, 1:] & valid[..., :, :-1])
    dy = (flow[..., 1:, :] - flow[..., :-1, :]).norm(dim=1, keepdim=True) * (valid[..., 1:, :] & valid[..., :-1, :])
    sides = (F.pad(dx, (0, 1)), F.pad(dx, (1, 0)), F.pad(dy, (0, 0, 0, 1)), F.pad(dy, (0, 0, 1, 0)))
    step = torch.stack(sides).amax(0)
    band = (step * reach).where(step > jump, 0.0)
    # Each round carries the band one pixel on, so their number bounds its width; 4 and 8 neighbours by turns make it
    # round.
    for i in range(widest - 1):
        wider = F.max_pool2d(band, 3, 1, 1) if i % 2 else torch.maximum(_pooled(band, 3, 1), _pooled(band, 1, 3))
        band = torch.maximum(band, wider - 1)
    return (band <= 0) & (noise < density)


def _pooled(x: Tensor, height: int, width: int) -> Tensor:
    return F.max_pool2d(x, (height, width), 1, (height // 2, width // 2))


def _patches(draws: Draws, shape: tuple[int, int], share: Tensor, size: Tensor) -> Tensor:
    """Round patches of some pixels in diameter (size) that cover a share of the picture on average."""
    level: Tensor = torch.special.ndtri(share)
    return smooth_noise(draws, shape, size) < level


def smooth_noise(draws: Draws, shape: tuple[int, int], size: Tensor) -> Tensor:
    """Smooth fields (B, 1, H, W), about standard normal, whose hills are some pixels in diameter (size).

    A sum of plane waves of random direction, length and phase; cos(a + b) = cos a cos b - sin a sin b makes a matrix
    product of it, whatever the size in each sample.
    """
    H, W = shape
    frequency = draws.normal((2, _WAVES, 1)) / (_BLOB_LENGTH * size)
    phase = draws.uniform((1, _WAVES, 1), 0.0, 2 * math.pi)
    a = frequency[:, :1] * torch.arange(H, device=phase.device) + phase
    b = frequency[:, 1:] * torch.arange(W, device=phase.device)
    rows, columns = torch.cat([a.cos(), a.sin()], 2), torch.cat([b.cos(), -b.sin()], 2)
    return rows.transpose(2, 3) @ columns * math.sqrt(2 / _WAVES)


def _count(density: Tensor, pixels: int) -> Tensor:
    """The share of the pixels as a whole number of at least 1, (B, 1) for (B, 1, 1, 1)."""
    return torch.round(density.view(-1, 1) * pixels).clamp(min=1)
