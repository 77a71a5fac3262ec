"""What light and a camera do to a painted scene: shading, shadows, blur, gamma and noise."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.data.layered_config import LayeredConfig
from flowinpaint.draws import Draws, normal_field

BLUR_RADIUS = 5
SMEAR_TAPS = 7
_ONE = (1, 1, 1)


class Light(NamedTuple):
    """How a scene is lit, each (B, 1, 1, 1): where its clouds cast shadows, how sharp and how deep these are."""

    level: Tensor
    sharpness: Tensor
    depth: Tensor


class Exposure(NamedTuple):
    """How a picture is taken: gamma and noise (B, 1, 1, 1), and the key (B,) of the noise."""

    gamma: Tensor
    noise: Tensor
    key: Tensor


def draw_light(draws: Draws, config: LayeredConfig) -> Light:
    """Hard or soft shadows, or none."""
    depth = draws.uniform(_ONE, *config.shadow_depth) * draws.chance(_ONE, config.shadow)
    return Light(draws.uniform(_ONE, *config.shadow_level), draws.log_uniform(_ONE, *config.shadow_sharpness), depth)


def draw_exposure(draws: Draws, config: LayeredConfig) -> Exposure:
    """A camera's gamma and noise."""
    return Exposure(torch.exp(config.gamma * draws.normal(_ONE)), draws.uniform(_ONE, *config.noise), draws.key())


def illuminate(image: Tensor, light: Light, shade: Tensor, clouds: Tensor) -> Tensor:
    """Shade smoothly by exp(shade), and cast shadows where clouds are high; both are (B, 1, H, W)."""
    shadow = (0.5 + light.sharpness * (clouds - light.level)).clamp(0, 1)
    return image * torch.exp(shade) * (1 - light.depth * shadow)


def gaussian(image: Tensor, sigma: Tensor) -> Tensor:
    """Blur (B, C, H, W) by deviations (B,) of up to about two pixels and a half."""
    B, C, H, W = image.shape
    taps = torch.arange(-BLUR_RADIUS, BLUR_RADIUS + 1, device=image.device)
    kernel = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(C, 0)
    planes = F.pad(image, [BLUR_RADIUS] * 4, mode="replicate").view(1, B * C, H + 2 * BLUR_RADIUS, W + 2 * BLUR_RADIUS)
    planes = F.conv2d(planes, kernel[:, None, None, :], groups=B * C)
    return F.conv2d(planes, kernel[:, None, :, None], groups=B * C).view(B, C, H, W)


def smear(image: Tensor, flow: Tensor, shutter: Tensor, longest: float) -> Tensor:
    """Average (B, 3, H, W) along the motion of each pixel while the shutter (B,), a share of the time, is open."""
    H, W = image.shape[-2:]
    path = flow * shutter[:, None, None, None]
    length = torch.sqrt(path.square().sum(1, keepdim=True))
    path = path * (longest / length.clamp(min=longest))
    x = torch.arange(W, device=image.device, dtype=image.dtype)
    y = torch.arange(H, device=image.device, dtype=image.dtype)[:, None]
    total = torch.zeros_like(image)
    for i in range(SMEAR_TAPS):
        t = i / (SMEAR_TAPS - 1) - 0.5
        gx = (x + t * path[:, 0] + 0.5) * (2 / W) - 1
        gy = (y + t * path[:, 1] + 0.5) * (2 / H) - 1
        total = total + F.grid_sample(
            image, torch.stack([gx, gy], -1), mode="bilinear", padding_mode="border", align_corners=False
        )
    return total / SMEAR_TAPS


def expose(image: Tensor, exposure: Exposure) -> Tensor:
    """Gamma and noise; the result lies in [0, 1]."""
    image = image.clamp(1e-3, 1) ** exposure.gamma
    return (image + exposure.noise * normal_field(exposure.key, tuple(image.shape[1:]))).clamp(0, 1)
