"""Families of masks for a batch, on any device, without host synchronisation or data-dependent shapes.

Each function returns (B, 1, H, W) bool. They share one field of `noise` (B, 1, H, W), uniform in [0, 1) and `NEVER`
where no vector is valid; `settle` restricts the results to valid pixels. Tensor parameters are (B, 1, 1, 1), one number
per sample.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.diffusion.tensor import SymmetricTensor, eigenvalues, gaussian_blur, structure_tensor

NEVER = 2.0
"""The noise of a pixel without a valid vector, above every density."""

_WAVES = 32
_BLOB_LENGTH = 0.4
"""Correlation length of the noise over the diameter of its blobs, where it exceeds about one deviation."""
_LINE_CROWDING = 0.5
"""Relative density of scan lines at the horizon: beams tilted down spread over the near ground."""
_LINE_SHIFT = 0.618
"""Shift of the points from line to line, as a fraction of their spacing, so that they do not form columns."""
_GAP_SIZE = 0.15
"""Diameter of the patches without returns, over the image width."""
_CORNER_BLUR, _CORNER_WINDOW = 0.7, 1.5
_TIE = 1e-4
"""Weight of the noise that breaks ties between equally strong corners, as on a drawn pattern."""
_WEAKEST_CORNER = 1e-6
"""In squared grey levels of [0, 1] per pixel; weaker corners are rounding errors."""


def pixel_noise(draws: Draws, valid: Tensor) -> Tensor:
    """The noise (B, 1, H, W) for valid (B, 1, H, W)."""
    return torch.where(valid > 0, draws.uniform((1, *valid.shape[-2:])), NEVER)


def settle(known: Tensor, noise: Tensor) -> Tensor:
    """Restrict known pixels (B, 1, H, W) to valid ones; a sample left with none gets a random valid pixel."""
    known = known & (noise < NEVER)
    one = (noise <= noise.amin((1, 2, 3), keepdim=True)) & (noise < NEVER)
    return torch.where(known.any(3, keepdim=True).any(2, keepdim=True), known, one)


def bernoulli(noise: Tensor, density: Tensor) -> Tensor:
    """Each valid pixel independently, so that the expected number is a fraction (density) of all pixels."""
    valid = (noise < NEVER).float().mean((1, 2, 3), keepdim=True)
    return noise < (density / valid.clamp(min=1e-9)).clamp(max=1)


def few(noise: Tensor, count: Tensor, most: int) -> Tensor:
    """A number of valid pixels, at most `most`; all of them if there are fewer."""
    flat = noise.view(len(noise), -1)
    smallest = flat.topk(min(most, flat.shape[1]), largest=False).values
    last = (count.view(-1, 1) - 1).clamp(max=smallest.shape[1] - 1)
    return noise <= smallest.gather(1, last).view(-1, 1, 1, 1)


def lidar(
    draws: Draws,
    noise: Tensor,
    lines: Tensor,
    spacing: Tensor,
    horizon: Tensor,
    focal: Tensor,
    lost: Tensor,
    gaps: Tensor,
) -> Tensor:
    """The points of a spinning laser scanner at the camera.

    A beam of elevation φ meets the image plane at y = tan φ √(f² + x²), a hyperbola. lines is the number of beams
    below the horizon (a fraction of the height from the top) in the middle column, spacing the distance of points
    there in pixels, and f the focal length in image widths. lost is the fraction of lost single points, gaps that of
    the image in patches without returns.
    """
    H, W = noise.shape[-2:]
    # A pixel has a line or a point if the number of the line or point changes from one of its sides to the other.
    x = torch.arange(W + 1, device=noise.device) - W / 2
    y = torch.arange(H + 1, device=noise.device).view(-1, 1) - horizon * H
    centre = (x[1:] + x[:-1]) / 2
    drop = y / ((1 - horizon) * H * torch.sqrt(1 + (centre / (focal * W)) ** 2))
    # Solve drop = (1 - c) t + c t² for t; equal steps of t are 1 - c apart at the horizon and 1 + c at the bottom.
    c = _LINE_CROWDING
    t = (torch.sqrt((1 - c) ** 2 + 4 * c * drop.clamp(min=0)) - (1 - c)) / (2 * c)
    line = torch.floor(lines * t + draws.uniform((1, 1, 1)))
    azimuth = focal * W * torch.atan(x / (focal * W)) / spacing
    shift = line[:, :, 1:] * _LINE_SHIFT + draws.uniform((1, 1, 1))
    point = torch.floor(azimuth[..., 1:] + shift) > torch.floor(azimuth[..., :-1] + shift)
    returned = ~_patches(draws, (H, W), gaps, torch.full_like(gaps, _GAP_SIZE * W))
    return (line[:, :, 1:] > line[:, :, :-1]) & point & returned & (noise < 1 - lost)


def corners(image: Tensor, noise: Tensor, density: Tensor, most: float, distance: int) -> Tensor:
    """The strongest corners of an image (B, 3, H, W), up to a fraction (density) of all pixels, at most `most`.

    At a corner the smaller eigenvalue of the structure tensor is the largest within a distance in pixels.
    """
    B, _, H, W = noise.shape
    tensor = structure_tensor(image, _CORNER_BLUR)
    smallest = eigenvalues(SymmetricTensor(*(gaussian_blur(part, _CORNER_WINDOW) for part in tensor)))[1]
    # The corner of a cell counts for its upper left pixel; the last row and column have none.
    strength = F.pad(smallest, (0, 1, 0, 1)).where(noise < NEVER, 0.0)
    strength = strength * (1 + _TIE * noise)
    largest = F.max_pool2d(strength, 2 * distance + 1, stride=1, padding=distance)
    peaks = strength.where((strength == largest) & (strength > _WEAKEST_CORNER), 0.0).view(B, -1)
    values, places = peaks.topk(max(1, round(most * H * W)), dim=1)
    rank = torch.arange(values.shape[1], device=noise.device)
    count = torch.round(density.view(-1, 1) * (H * W)).clamp(min=1)
    chosen = (values > 0) & (rank < count)
    return torch.zeros_like(peaks, dtype=torch.bool).scatter(1, places, chosen).view(noise.shape)


def grid(draws: Draws, noise: Tensor, spacing: Tensor, closest: int, jitter: Tensor, shift: Tensor) -> Tensor:
    """A point in each square of integer spacing, at least `closest`.

    It is at the centre or, with jitter 1, anywhere in its square. shift (B, 2, 1, 1) moves the squares up and left by
    a fraction of the spacing.
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
    # Points outside go to an extra place at the end, which is cut off.
    places = torch.where(inside, y * W + x, H * W).view(B, -1)
    hit = torch.zeros(B, H * W + 1, dtype=torch.bool, device=noise.device).scatter(1, places, True)
    return hit[:, :-1].view(noise.shape)


def blob_holes(draws: Draws, noise: Tensor, share: Tensor, size: Tensor, density: Tensor) -> Tensor:
    """A density of pixels outside round holes with a diameter (size) that cover a fraction (share) of the image."""
    H, W = noise.shape[-2:]
    return ~_patches(draws, (H, W), share, size) & (noise < density)


def rectangle_holes(draws: Draws, noise: Tensor, count: Tensor, sides: Tensor, density: Tensor) -> Tensor:
    """A density of pixels outside the first `count` of n rectangles with sides (B, 2, n, 1) in pixels."""
    H, W = noise.shape[-2:]
    middle = draws.uniform(tuple(sides.shape[1:]))
    there = torch.arange(sides.shape[2], device=noise.device).view(-1, 1) < count
    rows = _covered(H, middle[:, :1], sides[:, :1]) * there
    columns = _covered(W, middle[:, 1:], sides[:, 1:])
    hole = rows.transpose(2, 3) @ columns > 0
    return ~hole & (noise < density)


def _covered(length: int, middle: Tensor, side: Tensor) -> Tensor:
    """1 for the pixels (…, length) within half a side of the middle, a fraction of the length; else 0."""
    place = torch.arange(length, device=middle.device) + 0.5
    return ((place - middle * length).abs() < side / 2).float()


def occlusion(noise: Tensor, flow: Tensor, reach: Tensor, jump: float, widest: int, density: Tensor) -> Tensor:
    """A density of pixels outside bands along the jumps of a flow (B, C, H, W), as after a forward-backward check.

    To either side of a difference of more than `jump`, the band is `reach` pixels wide per pixel of the difference, at
    most `widest`.
    """
    valid = noise < NEVER
    dx = (flow[..., :, 1:] - flow[..., :, :-1]).norm(dim=1, keepdim=True) * (valid[..., :, 1:] & valid[..., :, :-1])
    dy = (flow[..., 1:, :] - flow[..., :-1, :]).norm(dim=1, keepdim=True) * (valid[..., 1:, :] & valid[..., :-1, :])
    sides = (F.pad(dx, (0, 1)), F.pad(dx, (1, 0)), F.pad(dy, (0, 0, 0, 1)), F.pad(dy, (0, 0, 1, 0)))
    step = torch.stack(sides).amax(0)
    band = (step * reach).where(step > jump, 0.0)
    # Each iteration extends the band by one pixel. Alternating 4 and 8 neighbours makes it round.
    for i in range(widest - 1):
        wider = F.max_pool2d(band, 3, 1, 1) if i % 2 else torch.maximum(_pooled(band, 3, 1), _pooled(band, 1, 3))
        band = torch.maximum(band, wider - 1)
    return (band <= 0) & (noise < density)


def _pooled(x: Tensor, height: int, width: int) -> Tensor:
    return F.max_pool2d(x, (height, width), 1, (height // 2, width // 2))


def _patches(draws: Draws, shape: tuple[int, int], share: Tensor, size: Tensor) -> Tensor:
    """Round patches with a diameter (size) in pixels that cover a fraction (share) of the image on average."""
    level: Tensor = torch.special.ndtri(share)
    return smooth_noise(draws, shape, size) < level


def smooth_noise(draws: Draws, shape: tuple[int, int], size: Tensor) -> Tensor:
    """Smooth, about standard normal fields (B, 1, H, W) whose hills have a diameter (size) in pixels.

    A sum of plane waves of random direction, length and phase; cos(a + b) = cos a cos b - sin a sin b turns it into a
    matrix product for any size.
    """
    H, W = shape
    frequency = draws.normal((2, _WAVES, 1)) / (_BLOB_LENGTH * size)
    phase = draws.uniform((1, _WAVES, 1), 0.0, 2 * math.pi)
    a = frequency[:, :1] * torch.arange(H, device=phase.device) + phase
    b = frequency[:, 1:] * torch.arange(W, device=phase.device)
    rows, columns = torch.cat([a.cos(), a.sin()], 2), torch.cat([b.cos(), -b.sin()], 2)
    return rows.transpose(2, 3) @ columns * math.sqrt(2 / _WAVES)
