"""Light and camera effects on a painted scene: shading, shadows, blur, gamma and noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.counter_rng import Draws, normal_field
from flowinpaint.data.generator.config import LayeredConfig

BLUR_RADIUS = 5
SMEAR_TAPS = 7
SMEAR_STRIDE = 2
"""Step in pixels of the search for the longest path around a pixel."""
SMEAR_SLACK = 1.1
"""Factor on the reach of a moving object, so that slowly varying motion is blurred as a whole."""
_ONE = (1, 1, 1)


class Light(NamedTuple):
    """Shadows of B scenes, each (B, 1, 1, 1): the level of the clouds that cast them, sharpness and depth."""

    level: Tensor
    sharpness: Tensor
    depth: Tensor


class Exposure(NamedTuple):
    """Gamma and noise deviation (B, 1, 1, 1), and the key (B,) of the noise."""

    gamma: Tensor
    noise: Tensor
    key: Tensor


def draw_light(draws: Draws, config: LayeredConfig) -> Light:
    """Draw hard, soft or no shadows."""
    depth = draws.uniform(_ONE, *config.shadow_depth) * draws.chance(_ONE, config.shadow)
    return Light(draws.uniform(_ONE, *config.shadow_level), draws.log_uniform(_ONE, *config.shadow_sharpness), depth)


def draw_exposure(draws: Draws, config: LayeredConfig) -> Exposure:
    """Draw a camera's gamma and noise."""
    return Exposure(torch.exp(config.gamma * draws.normal(_ONE)), draws.uniform(_ONE, *config.noise), draws.key())


def illuminate(image: Tensor, light: Light, shade: Tensor, clouds: Tensor) -> Tensor:
    """Shade smoothly by exp(shade), and cast shadows where clouds are above their level; both are (B, 1, H, W)."""
    shadow = (0.5 + light.sharpness * (clouds - light.level)).clamp(0, 1)
    return image * torch.exp(shade) * (1 - light.depth * shadow)


def gaussian(image: Tensor, sigma: Tensor) -> Tensor:
    """Blur (B, C, H, W) by deviations (B,) of up to about 2.5 pixels."""
    B, C, H, W = image.shape
    taps = torch.arange(-BLUR_RADIUS, BLUR_RADIUS + 1, device=image.device)
    kernel = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(C, 0)
    planes = F.pad(image, [BLUR_RADIUS] * 4, mode="replicate").view(1, B * C, H + 2 * BLUR_RADIUS, W + 2 * BLUR_RADIUS)
    planes = F.conv2d(planes, kernel[:, None, None, :], groups=B * C)
    return F.conv2d(planes, kernel[:, None, :, None], groups=B * C).view(B, C, H, W)


def smear(image: Tensor, flow: Tensor, shutter: Tensor, delay: Tensor, longest: float) -> Tensor:
    """Blur pictures (B, 3, H, W) along the flow (B, 2, H, W), for a shutter open for a fraction (B,) of its time.

    During the exposure objects move along paths v = shutter · flow of at most `longest` px. The middle of the exposure
    is delay (B,) after the instant of the flow, a fraction of the exposure in [-1/2, 1/2], so it lasts from
    s = delay - 1/2 to s = delay + 1/2. At time s, pixel x shows the point that was at p = x - s N(x) at the instant,
    where N(x) is the longest path around x, if p or x moves that far on this side of the instant:
    |s| |N(x)| <= |delay ± 1/2| max(|v(p)|, |v(x)|), + for s > 0. Otherwise x is unchanged. Uniform motion thus blurs a
    picture and shifts it by delay · v.
    """
    H, W = image.shape[-2:]
    shutter, delay = shutter[:, None, None], delay[:, None, None]
    around = _fastest(_fastest(flow, delay, longest).mT, delay, longest).mT
    around = around * (shutter * longest / (shutter * _length(around)).clamp(min=longest))[:, None]
    length, own = _length(around), (shutter * _length(flow)).clamp(max=longest)
    x = torch.arange(W, device=image.device, dtype=image.dtype)
    y = torch.arange(H, device=image.device, dtype=image.dtype)[:, None]
    change = torch.zeros_like(image)
    for i in range(SMEAR_TAPS):
        s = i / (SMEAR_TAPS - 1) - 0.5 + delay
        u, v = x - s * around[:, 0], y - s * around[:, 1]
        row, column = (v + 0.5).long().clamp(0, H - 1), (u + 0.5).long().clamp(0, W - 1)
        there = own.flatten(1).gather(1, (row * W + column).flatten(1)).view_as(own)
        way = s.abs() * length
        limit = torch.where(s > 0, 0.5 + delay, 0.5 - delay) * torch.maximum(there, own) * SMEAR_SLACK
        grid = torch.stack([(u + 0.5) * (2 / W) - 1, (v + 0.5) * (2 / H) - 1], -1)
        seen = F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)
        change = change + torch.where(((way > 0) & (way <= limit))[:, None], seen - image, 0)
    return image + change / SMEAR_TAPS


def _length(vectors: Tensor) -> Tensor:
    return torch.sqrt(vectors.square().sum(1))


def _fastest(flow: Tensor, delay: Tensor, longest: float) -> Tensor:
    """The longest vector along rows within the reach of an exposure, over every second pixel; ties go to the first."""
    steps = torch.ceil((0.5 + delay.abs()) * longest / SMEAR_STRIDE)
    most, W = math.ceil(longest / SMEAR_STRIDE), flow.shape[-1]
    padded = F.pad(flow, (SMEAR_STRIDE * most, SMEAR_STRIDE * most, 0, 0), mode="replicate")
    squares = padded.square().sum(1)
    best, length = torch.zeros_like(flow), torch.zeros_like(flow[:, 0])
    for i in range(-most, most + 1):
        start = SMEAR_STRIDE * (most + i)
        other = squares[..., start : start + W]
        longer = (other > length) & (steps >= abs(i))
        length = torch.where(longer, other, length)
        best = torch.where(longer[:, None], padded[..., start : start + W], best)
    return best


def expose(image: Tensor, exposure: Exposure) -> Tensor:
    """Apply gamma and noise, and clip to [0, 1]."""
    image = image.clamp(1e-3, 1) ** exposure.gamma
    return (image + exposure.noise * normal_field(exposure.key, tuple(image.shape[1:]))).clamp(0, 1)
