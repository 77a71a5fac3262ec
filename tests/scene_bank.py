"""A tiny bank for tests of the generator: stripes, a photo in two halves, and a disc as cut-out."""

from pathlib import Path

import torch
from torch import Tensor

from flowinpaint.data.bank import (
    DISTANCE_UNIT,
    DISTANCE_ZERO,
    KINDS,
    SIZES,
    PictureBank,
    bank_picture,
    pack_picture,
    save_pictures,
)

SIDE = 64


def pack(colour: Tensor, extra: Tensor) -> Tensor:
    """Pack colours (H, W, 3) uint8 and extra (H, W) uint8 into (H·W,) int32."""
    r, g, b = colour.int().unbind(-1)
    return (r | g << 8 | b << 16 | extra.int() << 24).reshape(-1)


def save_bank(bank: PictureBank, path: Path) -> None:
    """Write a bank to a .safetensors file."""
    numbers = {kind: range(len(getattr(bank, kind))) for kind in KINDS}
    save_pictures(
        {kind: [pack_picture(kind, bank_picture(bank, kind, i)) for i in numbers[kind]] for kind in KINDS}, path
    )


def tiny_bank() -> PictureBank:
    pixels: list[Tensor] = []
    tables: dict[str, list[list[list[int]]]] = {"photos": [], "materials": [], "cutouts": []}
    offset = 0
    for kind, table in tables.items():
        rows = []
        for level in range(SIZES):
            n = SIDE >> level
            y, x = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
            shade = (40 + 160 * (x + y) / (2 * n)).to(torch.uint8)
            colour = torch.stack([shade, shade.flip(0), shade.flip(1)], -1)
            if kind == "materials":
                colour = 255 - colour
            distance = 0.4 * n - torch.hypot(x - (n - 1) / 2, y - (n - 1) / 2)
            extra = {
                "photos": (x >= n // 2) * 100,
                "materials": torch.zeros(n, n),
                "cutouts": (DISTANCE_ZERO + DISTANCE_UNIT * distance).clamp(0, 255),
            }[kind]
            pixels.append(pack(colour, extra.to(torch.uint8)))
            rows.append([offset, n, n])
            offset += n * n
        table.append(rows)
    return PictureBank(torch.cat(pixels), **{k: torch.tensor(t, dtype=torch.int32) for k, t in tables.items()})
