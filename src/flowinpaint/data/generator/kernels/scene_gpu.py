"""Rendering of scenes on CUDA: one kernel for painting and flow, the others for the camera."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.data.bank import PictureBank
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.kernels import picture_triton, scene_triton
from flowinpaint.data.generator.plan import SMOOTH_FIELDS, ScenePlan, draw_plan
from flowinpaint.integers import ceil_div

_ROWS, _COLUMNS = 8, 32
"""Tile of a scene; small, because objects that do not touch a tile cost nothing there."""
_PICTURE_ROWS, _PICTURE_COLUMNS = 2, 128


class Tables(NamedTuple):
    """A plan in the form that the kernels read; `scene_triton` names the columns."""

    objects: Tensor
    """(B, K, 9 + 2 n): kind or -1, x, y, cos, sin, across, along, scale, hole, outline."""
    paint: Tensor
    pictures: Tensor
    group: Tensor
    motions: Tensor
    unsharp: Tensor
    """As in the plan, with group as int32 and unsharp as uint8."""
    numbers: Tensor
    """(B, 21): wobble, camera, light, defocus (0 if nothing is unsharp), shutter, delay, blur, gamma, noise."""
    keys: Tensor
    """(B, 7) int64: keys of the smooth fields and of the camera's noise."""


def plan_tables(samples: Tensor, seed: int, config: LayeredConfig, size: tuple[int, int], bank: PictureBank) -> Tables:
    """The tables of the scenes with the numbers samples (B,) int64, as one function that torch.compile can fuse."""
    return pack(draw_plan(samples, seed, config, size, bank))


def pack(plan: ScenePlan) -> Tables:
    """The tables of a plan."""
    *outline, bumps = plan.shapes[1:]
    kind = torch.where(plan.present, plan.shapes.kind, -1).float()
    objects = torch.stack([kind, *outline, *bumps], -1)
    defocus = plan.defocus * plan.unsharp.amax(1)
    blurs = (defocus, plan.shutter, plan.delay, plan.blur)
    own = (*plan.camera, *plan.light, *blurs, plan.exposure.gamma, plan.exposure.noise)
    numbers = torch.cat([plan.wobble, torch.stack([number.flatten() for number in own], 1)], 1)
    keys = torch.cat([plan.smooth, plan.exposure.key[:, None]], 1)
    unsharp = plan.unsharp.to(torch.uint8)
    return Tables(objects, plan.paint, plan.pictures, plan.group.int(), plan.motions, unsharp, numbers, keys)


def render(tables: Tables, config: LayeredConfig, pixels: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Render planned scenes with the pixels of a bank as images (B, 3, H, W) and flow (B, 2, H, W)."""
    H, W = size
    B, K = tables.objects.shape[:2]
    smooth = _smooth_rows(tables.keys, size)
    floats = {"dtype": torch.float32, "device": pixels.device}
    pictures = torch.empty(2, B, 3, H, W, **floats)  # type: ignore[call-overload]
    rows, flow = torch.empty(B, 3, H, W, **floats), torch.empty(B, 2, H, W, **floats)  # type: ignore[call-overload]
    soft = torch.empty(B, H, W, dtype=torch.uint8, device=pixels.device)
    scene_triton.scene[_tiles(B, H, W, _ROWS, _COLUMNS)](
        *tables[:-1],
        smooth,
        pixels,
        pictures,
        flow,
        soft,
        config.shading,
        config.largest,
        H,
        W,
        K,
        tables.motions.shape[1],
        smooth.shape[1],
        len(config.bumps),
        _ROWS,
        _COLUMNS,
    )
    grid, shape = _tiles(B, H, W, _PICTURE_ROWS, _PICTURE_COLUMNS), (_PICTURE_ROWS, _PICTURE_COLUMNS)
    loops, numbers = picture_triton, tables.numbers
    loops.blur_rows[grid](pictures, numbers, rows, B, H, W, False, *shape)
    loops.defocus_columns[grid](rows, soft, numbers, pictures, H, W, *shape)
    loops.fastest_in_rows[grid](flow, numbers, rows, config.longest_blur, H, W, *shape)
    loops.smear[grid](pictures, flow, rows, numbers, config.longest_blur, B, H, W, *shape)
    loops.blur_rows[grid](pictures, numbers, rows, B, H, W, True, *shape)
    image = pictures[0]
    loops.expose_columns[grid](rows, tables.keys, numbers, image, H, W, *shape)
    return image, flow


def _smooth_rows(keys: Tensor, size: tuple[int, int]) -> Tensor:
    """All smooth fields (B, rows, W): one row per row of knots, interpolated along the image rows."""
    H, W = size
    B, rows = len(keys), sum(channels * _knots_along(H, spacing) for spacing, channels in SMOOTH_FIELDS.values())
    most = max(_knots_along(W, spacing) for spacing, _ in SMOOTH_FIELDS.values())
    knots, stretched = (torch.empty(B, rows, n, device=keys.device) for n in (most, W))
    loops, shape = picture_triton, (_PICTURE_ROWS, _PICTURE_COLUMNS)
    loops.draw_knots[_tiles(B, rows, most, *shape)](keys, knots, H, W, rows, most, *shape)
    loops.stretch_knots[_tiles(B, rows, W, *shape)](knots, stretched, H, W, rows, most, *shape)
    return stretched


def _knots_along(length: int, spacing: int) -> int:
    return (2 * length - 1) // (2 * spacing) + 4


def _tiles(B: int, H: int, W: int, rows: int, columns: int) -> tuple[int, int, int]:
    return ceil_div(W, columns), ceil_div(H, rows), B
