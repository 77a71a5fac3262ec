"""Plan of a layered scene: all its random numbers, drawn before rendering."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.data.bank import PictureBank
from flowinpaint.data.generator.camera import Exposure, Light, draw_exposure, draw_light
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.motion import Camera, draw_motions
from flowinpaint.data.generator.paint import draw_paint
from flowinpaint.data.generator.picture_sampling import Pictures
from flowinpaint.data.generator.shapes import Shapes, draw_shapes

SMOOTH_FIELDS = {
    "coarse": (32, 2),
    "middle": (8, 2),
    "fine": (3, 2),
    "bend": (48, 2),
    "shade": (96, 1),
    "clouds": (64, 1),
}
"""Spacing in pixels and channels of a scene's smooth fields; the first three distort borders."""
LABELS = 256
_SHARPEST = 0.05
"""Deviation in pixels of a blur without effect; 0 would divide by zero."""


class ScenePlan(NamedTuple):
    """B scenes with K objects, L = 1 + K layers, the background first, and M motions."""

    shapes: Shapes
    cutouts: Pictures
    """The objects, and the pictures of cut-outs, (B, K)."""
    present: Tensor
    """Whether an object exists, (B, K) bool."""
    wobble: Tensor
    """Amplitudes (B, 3) of the coarse, middle and fine distortion of borders."""
    paint: Tensor
    """A stacked `Paint`, (B, L, 10)."""
    pictures: Tensor
    """Stacked `Pictures`, (B, L, 3)."""
    group: Tensor
    """The motion of each label of the background, (B, 256)."""
    motions: Tensor
    """Stacked `Motions`, and 1 for layers on the ground, (B, M, 13)."""
    camera: Camera
    light: Light
    unsharp: Tensor
    """1 for layers out of focus, else 0, (B, L)."""
    defocus: Tensor
    """Blur deviation of layers out of focus, (B,)."""
    shutter: Tensor
    delay: Tensor
    """Fraction of time that the shutter is open, and its delay after the flow as a fraction of that, (B,)."""
    blur: Tensor
    """Blur deviation of the whole image, (B,)."""
    exposure: Exposure
    smooth: Tensor
    """Keys (B, 6) of SMOOTH_FIELDS."""


def draw_plan(samples: Tensor, seed: int, config: LayeredConfig, size: tuple[int, int], bank: PictureBank) -> ScenePlan:
    """Draw the scenes with the numbers samples (B,) int64. The order of the draws determines the scenes."""
    draws = Draws(samples, seed)
    shapes, cutouts = draw_shapes(draws, config, size, bank)
    amount = draws.uniform((1,))
    borders = [draws.key() for _ in range(3)]
    coarse, middle, fine = config.wobble
    wobble = torch.cat([coarse * amount, middle * amount**2, fine * draws.chance((1,), config.fuzzy)], 1)
    present = torch.arange(config.most_objects, device=samples.device) < draws.integers((1,), *config.objects)

    paint, pictures = (torch.stack(tables, -1) for tables in draw_paint(draws, config, size, bank, shapes, cutouts))
    # Motion 0 belongs to the whole background, the next to the objects, and the others to groups of its segments.
    count = draws.integers((1,), *config.groups)
    group = 1 + config.most_objects + torch.remainder(draws.integers((LABELS,), 0, (1 << 20) - 1), count)
    group = torch.where(draws.chance((1,), config.segmented), group, 0)
    H, W = size
    x = torch.cat([draws.uniform((1,), 0, W), shapes.x, draws.uniform((config.groups[1],), 0, W)], 1)
    y = torch.cat([draws.uniform((1,), 0, H), shapes.y, draws.uniform((config.groups[1],), 0, H)], 1)
    camera, motions = draw_motions(draws, config, size, x, y)
    # In a driving scene the background is the ground, or some of its segments are; the others stand upright.
    number = torch.arange(x.shape[1], device=x.device)
    flat = (draws.chance((x.shape[1],), config.flat) | (number == 0)) & ((number == 0) | (number > config.most_objects))
    bend, shade = draws.key(), draws.key()
    light = draw_light(draws, config)
    clouds = draws.key()
    defocus = draws.uniform((), *config.defocus_blur).clamp(min=_SHARPEST)
    unsharp = draws.chance((config.most_objects + 1,), config.unsharp) & draws.chance((1,), config.defocus)
    # The order of the draws below is part of the scene: another one changes every generated picture.
    return ScenePlan(
        shapes,
        cutouts,
        present,
        wobble,
        paint,
        pictures,
        group,
        torch.stack([*motions, flat.float()], -1),
        camera,
        light,
        unsharp.float(),
        defocus,
        shutter=draws.uniform((), *config.shutter) * draws.chance((), config.motion_blur),
        delay=draws.uniform((), -config.exposure_shift, config.exposure_shift),
        blur=draws.uniform((), *config.blur).clamp(min=_SHARPEST),
        exposure=draw_exposure(draws, config),
        smooth=torch.stack([*borders, bend, shade, clouds], 1),
    )
