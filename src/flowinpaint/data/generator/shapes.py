"""Shapes of a scene's objects as signed distances in pixels, positive inside, accurate enough for anti-aliasing."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.data.bank import PictureBank
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.picture_sampling import Pictures, choose, distances

BLOB, BOX, RING, CUTOUT = range(4)
EDGE = 0.9
"""Half the side of a box as a fraction of its radius, so that a box has about the area of a disc."""
FAR = -1e3
"""The distance where an object cannot be."""


class Shapes(NamedTuple):
    """K objects (B, K), from back to front."""

    kind: Tensor
    x: Tensor
    y: Tensor
    cos: Tensor
    sin: Tensor
    across: Tensor
    along: Tensor
    """The radii along the two axes."""
    scale: Tensor
    """Cut-out pixels per scene pixel."""
    hole: Tensor
    """Inner radius of a ring as a fraction of the outer."""
    bumps: Tensor
    """Fourier coefficients (2 n, B, K) of the outline's radius: of cos 2θ, sin 2θ, cos 3θ, …"""


def draw_shapes(
    draws: Draws, config: LayeredConfig, size: tuple[int, int], bank: PictureBank
) -> tuple[Shapes, Pictures]:
    """Draw objects (B, K), the larger ones further back, and the pictures of cut-outs."""
    K = (config.most_objects,)
    H, W = size
    kind = _draw_kind(draws, config, K)
    is_bar = kind == _BAR
    kind = torch.where(is_bar, BOX, kind)
    x, y = draws.uniform(K, *config.place) * W, draws.uniform(K, *config.place) * H
    radius = draws.log_uniform(K, *config.radius).sort(1, descending=True).values * min(H, W)
    aspect = torch.where(is_bar, draws.log_uniform(K, *config.bar_aspect), torch.exp(config.aspect * draws.normal(K)))
    root = torch.sqrt(torch.where(kind == CUTOUT, 1.0, aspect))
    radius = torch.where(kind == CUTOUT, config.cutout_scale * radius, radius)
    angle = draws.uniform(K, 0, 2 * math.pi)
    stands = (kind == CUTOUT) & draws.chance(K, config.upright)
    angle = torch.where(stands, config.tilt * (angle - math.pi), angle)

    hole = 1 - draws.log_uniform(K, *config.ring_width)
    plain = draws.chance(K, config.ellipse)
    bumps = []
    for deviation in config.bumps:
        amplitude = torch.where(plain, 0.0, deviation * draws.normal(K))
        phase = draws.uniform(K, 0, 2 * math.pi)
        bumps += [amplitude * torch.cos(phase), amplitude * torch.sin(phase)]

    number = draws.integers(K, 0, len(bank.cutouts) - 1)
    own_size = bank.cutouts[number, 0, 1:].amax(-1).float()
    pictures, scale = choose(bank.cutouts, number, own_size / (2 * radius))
    coefficients = torch.stack(bumps) if bumps else x.new_zeros(0, *x.shape)
    turn = torch.cos(angle), torch.sin(angle)
    shapes = Shapes(kind, x, y, *turn, radius * root, radius / root, scale, hole, coefficients)
    return shapes, pictures


_BAR = 4


def _draw_kind(draws: Draws, config: LayeredConfig, K: tuple[int, ...]) -> Tensor:
    u = draws.uniform(K)
    kind = torch.full_like(u, BLOB, dtype=torch.int32)
    chances = ((BOX, config.box), (RING, config.ring), (_BAR, config.bar), (CUTOUT, config.cutout))
    start = 0.0
    for value, chance in chances:
        kind = torch.where((u >= start) & (u < start + chance), value, kind)
        start += chance
    return kind


def drawn_distance(shapes: Shapes, x: Tensor, y: Tensor) -> Tensor:
    """Signed distance of the positions (x, y) from blobs, boxes and rings."""
    dx, dy = x - shapes.x, y - shapes.y
    across, along = shapes.cos * dx + shapes.sin * dy, shapes.cos * dy - shapes.sin * dx
    u, v = across / shapes.across, along / shapes.along
    rho = torch.sqrt(u * u + v * v + 1e-9)
    cos, sin = u / rho, v / rho
    radius, slope = _bumpy_radius(shapes.bumps, cos, sin)
    # |∇ρ| and the slope of the outline convert a difference of radii into a distance.
    gradient = torch.sqrt((cos / shapes.across) ** 2 + (sin / shapes.along) ** 2)
    pixels = torch.rsqrt(1 + (slope / rho.clamp(min=0.2)) ** 2) / gradient
    blob = (radius - rho) * pixels
    ring = torch.minimum(blob, (rho - shapes.hole * radius) * pixels)
    box = torch.minimum((EDGE - u.abs()) * shapes.across, (EDGE - v.abs()) * shapes.along)
    return torch.where(shapes.kind == BOX, box, torch.where(shapes.kind == RING, ring, blob))


def _bumpy_radius(bumps: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """R(θ) = 1 + Σ a_n cos nθ + b_n sin nθ and R'(θ), by powers of e^{iθ}."""
    radius, slope = torch.ones_like(cos), torch.zeros_like(cos)
    c, s = cos, sin
    for i in range(0, len(bumps), 2):
        c, s = c * cos - s * sin, s * cos + c * sin
        n, a, b = i // 2 + 2, bumps[i], bumps[i + 1]
        radius = radius + a * c + b * s
        slope = slope + n * (b * c - a * s)
    return radius, slope


def cutout_place(shapes: Shapes, pictures: Pictures, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Positions in the pictures of cut-outs of the positions (x, y) in the scene."""
    dx, dy = x - shapes.x, y - shapes.y
    across, along = shapes.cos * dx + shapes.sin * dy, shapes.cos * dy - shapes.sin * dx
    return across * shapes.scale + (pictures.width - 1) / 2, along * shapes.scale + (pictures.height - 1) / 2


def cutout_distance(pixels: Tensor, shapes: Shapes, pictures: Pictures, x: Tensor, y: Tensor) -> Tensor:
    """Signed distance of the positions (x, y) from the silhouettes of cut-outs of a bank with these pixels."""
    px, py = cutout_place(shapes, pictures, x, y)
    inside = (px > 0) & (py > 0) & (px < pictures.width - 1) & (py < pictures.height - 1)
    return torch.where(inside, distances(pixels, pictures, px, py) / shapes.scale, FAR)


class Covering(NamedTuple):
    """The visible layers of each pixel, each (B, H, W); layer 0 is the background."""

    front: Tensor
    behind: Tensor
    """The topmost layer that reaches into the pixel, and the one that covers the rest of it."""
    solid: Tensor
    """The topmost layer at the pixel's centre."""
    coverage: Tensor
    """Fraction of the pixel that the front layer covers."""


def cover(
    shapes: Shapes, cutouts: Pictures, present: Tensor, pixels: Tensor, place: Tensor, wobbling: Tensor
) -> Covering:
    """Place objects 1 to K in front of the background and of each other, where they are present (B, K).

    place (2, H, W) are positions, and wobbling (B, 2, H, W) the distorted positions.
    """
    front = behind = solid = torch.zeros_like(wobbling[:, 0], dtype=torch.int32)
    coverage = torch.ones_like(wobbling[:, 0])
    for k in range(present.shape[1]):
        shape = Shapes(*(part[..., k, None, None] for part in shapes))
        picture = Pictures(*(part[:, k, None, None] for part in cutouts))
        drawn = drawn_distance(shape, wobbling[:, 0], wobbling[:, 1])
        cut = cutout_distance(pixels, shape, picture, place[0], place[1])
        distance = torch.where(shape.kind == CUTOUT, cut, drawn).where(present[:, k, None, None], FAR)
        touched = distance > -0.5
        front, behind = torch.where(touched, k + 1, front), torch.where(touched, solid, behind)
        solid = torch.where(distance >= 0, k + 1, solid)
        coverage = torch.where(touched, (distance + 0.5).clamp(max=1), coverage)
    return Covering(front, behind, solid, coverage)
