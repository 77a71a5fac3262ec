"""A picture of one field with its key: colours, or arrows over an image or over the colours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import InputError
from flowinpaint.opencv import cv2
from flowinpaint.text_tables import three_figures
from flowinpaint.viz.arrows import arrow_grid, draw_arrows, round_length
from flowinpaint.viz.colours import (
    STRIPE,
    Field,
    FieldRange,
    Rgb,
    as_rgb,
    colour_field,
    draw_dots,
    field_range,
    stripes,
)
from flowinpaint.viz.sheet import arrow_key, contact_sheet, field_key

SHORTEST, LONGEST = 640, 2000
"""The longer side of the picture in px; smaller fields are enlarged, larger ones shrunk."""
_DARK = 64
"""Grey of the ground of sparse fields without an image, and the darker one of the stripes."""
_SPARSE = 0.3
"""Fields with a smaller share of known pixels are drawn as dots."""
_DIM, _TINT = 0.45, 0.55
"""Brightness of an image where the field is unknown, and share of the colours over an image."""


def field_picture(
    field: Field, title: str, image: Field | None = None, arrows: bool = False, high: float | None = None
) -> Rgb:
    """Draw a field (H, W, C), NaN where unknown, with a title and a key (h, w, 3).

    image: drawn below the colours, or with `arrows` (C = 2) instead of them; (H, W), (H, W, 1) or (H, W, 3). high: the
    largest value or magnitude of the key; by default that of `field_range`. Unknown pixels are striped; the points of a
    sparse field are dots.
    """
    if arrows and field.shape[2] != 2:
        raise InputError(f"arrows need a field of 2 channels, got {field.shape[2]}")
    if high is not None and not 0 < high < np.inf:
        raise InputError(f"max must be a finite number above 0, got {high}")
    if image is not None and image.shape[:2] != field.shape[:2]:
        raise InputError(f"image must have the size of the field, {field.shape[:2]}, got {image.shape[:2]}")
    limits = field_range(field) if high is None else FieldRange(0.0, high)
    known = np.asarray(np.isfinite(field).all(axis=2))
    size = _size(field.shape[1], field.shape[0])
    shown = _ground(image, known, size)
    keys = []
    if image is None or not arrows:
        shown = _coloured(shown, field, known, limits, 1.0 if image is None else _TINT)
        keys.append(field_key(limits, field.shape[2], size[0]))
    if arrows:
        grid, length = arrow_grid(size, limits), round_length(limits.high)
        shown = draw_arrows(shown, field, grid)
        keys.append(arrow_key(length, length * grid.scale, grid.spacing, size[0]))
    facts = f"{field.shape[1]} x {field.shape[0]} px"
    if 0 < known.mean() < _SPARSE:
        facts += f" | unknown: {three_figures(100 * (1 - known.mean()))} %"
    elif not known.all():
        facts += f" | striped: unknown, {three_figures(100 * (1 - known.mean()))} %"
    return contact_sheet([(f"{title}\n{facts}", shown), ("", np.concatenate(keys))], 1)


def _coloured(ground: Rgb, field: Field, known: npt.NDArray[np.bool_], limits: FieldRange, opacity: float) -> Rgb:
    """The field's colours over the ground where it is known; points of a sparse field as opaque dots."""
    size = ground.shape[1], ground.shape[0]
    way = cv2.INTER_AREA if size[0] <= field.shape[1] else cv2.INTER_NEAREST
    weight = known[..., None].astype(np.float32)
    colours, cover = (
        np.reshape(cv2.resize(x, size, interpolation=way), (size[1], size[0], -1))
        for x in (weight * colour_field(field, limits), weight)
    )
    blended = np.round(opacity * colours + (1 - opacity * cover) * ground).astype(np.uint8)
    return draw_dots(blended, field, known, limits) if known.mean() < _SPARSE else blended


def _size(width: int, height: int) -> tuple[int, int]:
    """The (width, height) of the picture of a field: shrunk to LONGEST, or enlarged by an integer factor."""
    longest = max(width, height)
    factor = LONGEST / longest if longest > LONGEST else max(1, -(-SHORTEST // longest))
    return max(1, round(width * factor)), max(1, round(height * factor))


def _ground(image: Field | None, known: npt.NDArray[np.bool_], size: tuple[int, int]) -> Rgb:
    """The image, striped and darker where the field is unknown; grey stripes without an image.

    For a sparse field it is dark everywhere, without stripes.
    """
    width, height = size
    sparse = 0 < known.mean() < _SPARSE
    if image is None and sparse:
        return np.full((height, width, 3), _DARK, np.uint8)
    hatch = stripes(height, width, STRIPE)
    if image is None:
        return hatch
    rgb = np.asarray(cv2.resize(as_rgb(image), size, interpolation=cv2.INTER_AREA), np.uint8)
    unknown = cv2.resize((~known).astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None] * np.float32(_DIM)
    if sparse:
        return np.repeat(grey.astype(np.uint8), 3, axis=2)
    marked = np.where(hatch > _DARK, grey + 40, grey).astype(np.uint8)
    return np.where(unknown[..., None], marked, rgb)
