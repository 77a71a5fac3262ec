"""Painting of a scene's layers: pictures of a bank under affine maps, with modified colours."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.data.bank import PictureBank
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.picture_sampling import Pictures, choose, colours, labels, mirrored
from flowinpaint.data.generator.shapes import CUTOUT, Covering, Shapes, cutout_place


class Paint(NamedTuple):
    """Painting of L layers, each (B, L): an affine map from the scene into a picture, colour gains and an offset."""

    xx: Tensor
    xy: Tensor
    yx: Tensor
    yy: Tensor
    x: Tensor
    y: Tensor
    red: Tensor
    green: Tensor
    blue: Tensor
    added: Tensor


def draw_paint(
    draws: Draws, config: LayeredConfig, size: tuple[int, int], bank: PictureBank, shapes: Shapes, cutouts: Pictures
) -> tuple[Paint, Pictures]:
    """Draw the pictures and colours of the background and K objects, (B, 1 + K), the background first."""
    L = (config.most_objects + 1,)
    H, W = size
    is_background = torch.arange(L[0], device=shapes.x.device) == 0
    zeros = torch.zeros_like(shapes.x[:, :1])
    centre_x = torch.cat([zeros + (W - 1) / 2, shapes.x], 1)
    centre_y = torch.cat([zeros + (H - 1) / 2, shapes.y], 1)

    photo = draws.uniform(L) < torch.where(is_background, config.photo, 1 - config.material)
    photos, materials = (draws.integers(L, 0, len(table) - 1) for table in (bank.photos, bank.materials))
    number = torch.where(photo, photos, materials)
    scene = is_background & photo
    scale = torch.where(scene, draws.uniform(L, *config.photo_scale), draws.log_uniform(L, *config.texture_scale))
    angle = torch.where(scene, 0.0, draws.uniform(L, -math.pi, math.pi))
    flip = torch.where(draws.chance(L, config.mirror), -1.0, 1.0)
    # An object that is similar to the background shows the same picture at the same scale.
    alike = draws.chance(L, config.similar + config.camouflage)
    photo, number, scale, angle, flip = (
        torch.where(alike, part[:, :1], part) for part in (photo, number, scale, angle, flip)
    )
    from_photos, photo_scale = choose(bank.photos, torch.where(photo, number, 0), scale)
    from_materials, material_scale = choose(bank.materials, torch.where(photo, 0, number), scale)
    pictures = Pictures(*(torch.where(photo, p, m) for p, m in zip(from_photos, from_materials, strict=True)))
    scale = torch.where(photo, photo_scale, material_scale)
    xx, xy = flip * scale * torch.cos(angle), flip * scale * torch.sin(angle)
    yx, yy = -scale * torch.sin(angle), scale * torch.cos(angle)
    x = _place(draws.uniform(L), pictures.width, torch.where(is_background, scale * W / 2, 0.0))
    y = _place(draws.uniform(L), pictures.height, torch.where(is_background, scale * H / 2, 0.0))
    # An object that continues the background exactly has no image edge.
    same = alike & draws.chance(L, config.camouflage / max(config.similar + config.camouflage, 1e-9))
    dx, dy = centre_x - centre_x[:, :1], centre_y - centre_y[:, :1]
    x = torch.where(same, x[:, :1] + xx * dx + xy * dy, x)
    y = torch.where(same, y[:, :1] + yx * dx + yy * dy, y)

    brightness = torch.exp(config.contrast * draws.normal(L))
    red, green, blue = (brightness * torch.exp(config.tint * draws.normal(L)) for _ in range(3))
    added = config.offset * draws.normal(L)
    red, green, blue, added = (torch.where(same, part[:, :1], part) for part in (red, green, blue, added))

    # Tables (B, 1 + K) with an unused first row.
    own = Shapes(*(torch.cat([part[..., :1], part], -1) for part in shapes))
    own_pictures = Pictures(*(torch.cat([part[:, :1], part], 1) for part in cutouts))
    cut = (own.kind == CUTOUT) & ~is_background
    xx, xy = torch.where(cut, own.scale * own.cos, xx), torch.where(cut, own.scale * own.sin, xy)
    yx, yy = torch.where(cut, -own.scale * own.sin, yx), torch.where(cut, own.scale * own.cos, yy)
    cut_x, cut_y = cutout_place(own, own_pictures, own.x, own.y)
    x, y = torch.where(cut, cut_x, x), torch.where(cut, cut_y, y)
    pictures = Pictures(*(torch.where(cut, c, p) for c, p in zip(own_pictures, pictures, strict=True)))
    # Store the map relative to the scene's origin.
    x, y = x - xx * centre_x - xy * centre_y, y - yx * centre_x - yy * centre_y
    return Paint(xx, xy, yx, yy, x, y, red, green, blue, added), pictures


def paint(seen: Covering, table: Tensor, pictures: Tensor, pixels: Tensor, place: Tensor) -> Tensor:
    """The colours (B, 3, H, W) of a scene at the positions (2, H, W).

    table (B, L, 10) is a stacked `Paint`, pictures (B, L, 3) are stacked `Pictures` of a bank with these pixels.
    """
    front = _paint_layer(seen.front, table, pictures, pixels, place)
    behind = _paint_layer(seen.behind, table, pictures, pixels, place)
    return torch.lerp(behind, front, seen.coverage[..., None]).permute(0, 3, 1, 2).contiguous()


def _paint_layer(layer: Tensor, table: Tensor, pictures: Tensor, pixels: Tensor, place: Tensor) -> Tensor:
    p, picture = Paint(*pick(table, layer)), Pictures(*pick(pictures, layer))
    colour = colours(pixels, picture, *_place_in(p, picture, place))
    return colour * torch.stack([p.red, p.green, p.blue], -1) + p.added[..., None]


def background_labels(table: Tensor, pictures: Tensor, pixels: Tensor, place: Tensor) -> Tensor:
    """The labels (B, H, W) of the background's picture; those of a material are all equal."""
    p, picture = Paint(*table[:, 0, None, None].unbind(-1)), Pictures(*pictures[:, 0, None, None].unbind(-1))
    return labels(pixels, picture, *_place_in(p, picture, place))


def pick(table: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """Select rows of a table (B, L, P) by index (B, H, W), as P tensors (B, H, W)."""
    B, L = table.shape[:2]
    base = torch.arange(B, device=table.device, dtype=index.dtype).view(-1, *[1] * (index.ndim - 1)) * L
    return table.flatten(0, 1)[base + index].unbind(-1)


def _place_in(p: Paint, picture: Pictures, place: Tensor) -> tuple[Tensor, Tensor]:
    x = p.xx * place[0] + p.xy * place[1] + p.x
    y = p.yx * place[0] + p.yy * place[1] + p.y
    return mirrored(x, picture.width), mirrored(y, picture.height)


def _place(share: Tensor, length: Tensor, reach: Tensor) -> Tensor:
    """A position in a picture at least `reach` from its ends, if the picture is large enough."""
    room = (length - 1 - 2 * reach).clamp(min=0)
    return (length - 1) / 2 + (share - 0.5) * room
