"""Motion of a scene's layers: a camera that sees planes at different depths, and layers with their own motion.

Let x̂, ŷ be coordinates from the image centre in units of half the longer side. A camera translation (tx, ty, tz)
moves a plane of inverse depth ϱ by ϱ (tx + tz x̂, ty + tz ŷ), which is quadratic over a slanted plane; rotating the
camera adds a motion that is independent of depth.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.data.generator.config import LayeredConfig


class Camera(NamedTuple):
    """Cameras, each (B,): translation, turn and roll in pixels, horizon in ŷ, and the slope of the ground's ϱ or 0."""

    tx: Tensor
    ty: Tensor
    tz: Tensor
    turn_x: Tensor
    turn_y: Tensor
    roll: Tensor
    horizon: Tensor
    ground: Tensor
    beyond: Tensor
    """ϱ at and above the horizon."""


class Motions(NamedTuple):
    """Motions of M layers, each (B, M)."""

    inverse_depth: Tensor
    slant_x: Tensor
    slant_y: Tensor
    x: Tensor
    y: Tensor
    """The centre of the layer's own motion."""
    vx: Tensor
    vy: Tensor
    xx: Tensor
    xy: Tensor
    yx: Tensor
    yy: Tensor
    bending: Tensor


def draw_motions(
    draws: Draws, config: LayeredConfig, size: tuple[int, int], x: Tensor, y: Tensor
) -> tuple[Camera, Motions]:
    """Draw the camera and the motions of M layers with centres x, y (B, M)."""
    M = (x.shape[1],)
    magnitude = config.magnitude * torch.exp(config.magnitude_spread * draws.normal())
    camera = _draw_camera(draws, config, size, magnitude)
    driving = camera.ground > 0
    depth = draws.log_uniform(M, *config.inverse_depth)
    slant_x, slant_y = config.slant * draws.normal(M), config.slant * draws.normal(M)

    own = magnitude[:, None] * (~draws.chance(M, config.parallax)).float()
    # In a driving scene most objects are static in the world, and moving ones follow the road.
    own = own * torch.where(driving[:, None] & draws.chance(M, config.driving_parallax), 0.0, 1.0)
    vx, vy = own * draws.normal(M), own * config.vertical * draws.normal(M)
    linear = config.linear * torch.exp(config.linear_spread * draws.normal(M)) * (own > 0)
    xx, xy, yx, yy = (linear * draws.normal(M) for _ in range(4))
    turn = config.rotation * draws.normal(M) * (own > 0)
    bending = torch.where(draws.chance(M, config.bending), draws.uniform(M, *config.bending_amplitude), 0.0)
    motions = Motions(depth, slant_x, slant_y, x, y, vx, vy, xx, xy - turn, yx + turn, yy, bending * magnitude[:, None])
    return camera, motions


def _draw_camera(draws: Draws, config: LayeredConfig, size: tuple[int, int], magnitude: Tensor) -> Camera:
    unit = max(size) / 2
    moving = (~draws.chance((), config.still)).float()
    driving = draws.chance((), config.driving).float() * moving
    across = magnitude * moving * torch.where(driving > 0, config.driving_sideways, 1.0)
    tx, ty = across * draws.normal(), across * config.vertical * draws.normal()
    ahead = torch.where(driving > 0, draws.uniform((), *config.driving_speed), config.zoom * draws.normal())
    tz = magnitude * moving * ahead
    turned = config.turn * across
    turn_x, turn_y = turned * draws.normal(), turned * config.vertical * draws.normal()
    roll = config.roll * unit * draws.normal() * moving
    horizon = (draws.uniform((), *config.horizon) - 0.5) * size[0] / unit
    ground = driving * draws.uniform((), *config.ground)
    beyond = torch.full_like(ground, config.beyond)
    return Camera(tx, ty, tz, turn_x, turn_y, roll, horizon, ground, beyond)


def flow_of(camera: Camera, layer: Motions, on_ground: Tensor, bend: Tensor, place: Tensor, largest: float) -> Tensor:
    """The flow (B, 2, H, W) at the places (2, H, W), whose layers have the motions (B, H, W).

    on_ground (B, H, W) marks the pixels on the ground plane of a driving scene, and bend (B, 2, H, W) is the smooth
    field by which layers bend.
    """
    x, y = place
    H, W = x.shape
    unit = max(H, W) / 2
    xn, yn = (x - (W - 1) / 2) / unit, (y - (H - 1) / 2) / unit
    tx, ty, tz, turn_x, turn_y, roll, horizon, ground, beyond = (part[:, None, None] for part in camera)
    plane = layer.inverse_depth * (1 + layer.slant_x * xn + layer.slant_y * yn).clamp(0.1, 4)
    # Below the horizon the ground gets closer to the camera; above it everything is far away.
    below = ground * (yn - horizon).clamp(min=0) + beyond
    depth = torch.where(on_ground & (ground > 0), below, plane)
    dx, dy = x - layer.x, y - layer.y
    vx = depth * (tx + tz * xn) + turn_x - roll * yn + layer.vx + layer.xx * dx + layer.xy * dy
    vy = depth * (ty + tz * (yn - horizon)) + turn_y + roll * xn + layer.vy + layer.yx * dx + layer.yy * dy
    flow = torch.stack([vx, vy], 1) + layer.bending[:, None] * bend
    return flow.clamp(-largest, largest)
