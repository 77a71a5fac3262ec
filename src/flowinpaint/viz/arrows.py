"""Arrows of a flow on a grid, drawn over a picture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import InputError
from flowinpaint.opencv import cv2
from flowinpaint.viz.colours import Field, FieldRange, Rgb

_ALONG = 36
"""Arrows along the longer side."""
_LONGEST = 1.6
"""Length of an arrow for the largest magnitude of the range, in spacings."""
_SHORTEST = 0.45
"""Shorter arrows, in spacings, are wedges that become narrow towards their end, instead of a line with a tip."""
_TIP = 0.35
"""Length of an arrow's tip relative to its own, at most that of an arrow of one spacing."""
_FRACTION = 4
"""Bits of the fraction of a coordinate in OpenCV."""
WHITE, BLACK = (255, 255, 255), (20, 22, 26)


class ArrowGrid(NamedTuple):
    """How arrows are drawn: spacing in px of the picture, and px of the picture per unit of the flow."""

    spacing: int
    scale: float


def arrow_grid(size: tuple[int, int], limits: FieldRange) -> ArrowGrid:
    """The grid for a picture of (width, height) and flows up to `limits.high`."""
    spacing = max(8, round(max(size) / _ALONG))
    return ArrowGrid(spacing, _LONGEST * spacing / limits.high)


def draw_arrows(picture: Rgb, flow: Field, grid: ArrowGrid) -> Rgb:
    """A copy of a picture (h, w, 3) with the arrows of a flow (H, W, 2): one per cell of the grid with a known vector.

    The arrow of a cell starts at its known pixel nearest to the middle. The longest are clipped to twice `_LONGEST`
    spacings, so that one wrong vector does not cross the picture.
    """
    if flow.ndim != 3 or flow.shape[2] != 2:
        raise InputError(f"arrows need a flow of shape (H, W, 2), got {flow.shape}")
    starts, vectors = _chosen(flow, picture.shape, grid)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True) * grid.scale
    most = 2 * _LONGEST * grid.spacing
    shown = vectors * grid.scale * np.minimum(1, most / np.maximum(lengths, 1e-9))
    drawn = picture.copy()
    width = max(1, round(grid.spacing / 14))
    for colour, thickness in ((BLACK, width + 2), (WHITE, width)):
        for start, vector in zip(starts, shown, strict=True):
            draw_arrow(drawn, start, vector, grid.spacing, colour, thickness)
    return drawn


def draw_arrow(
    picture: Rgb,
    start: npt.NDArray[np.floating],
    vector: npt.NDArray[np.floating],
    spacing: int,
    colour: tuple[int, int, int],
    thickness: int,
) -> None:
    """Draw an arrow from start (x, y) along vector, both in px of the picture: a wedge if it is short."""
    length = float(np.hypot(*vector))
    along = vector / max(length, 1e-9)
    if length >= _SHORTEST * spacing:
        head = _TIP * min(1.0, spacing / length)
        tail, tip = (_fixed(x) for x in (start, start + vector))
        cv2.arrowedLine(picture, tail, tip, colour, thickness, cv2.LINE_AA, _FRACTION, head)
    elif length > 1:
        half = 0.5 * thickness + 1
        across = half * np.array([-along[1], along[0]])
        corners = [_fixed(x) for x in (start - across, start + across, start + vector + (half - 1) * along)]
        cv2.fillConvexPoly(picture, np.array(corners), colour, cv2.LINE_AA, _FRACTION)
    else:
        cv2.circle(
            picture, _fixed(start), round((0.5 * thickness + 0.5) * 2**_FRACTION), colour, -1, cv2.LINE_AA, _FRACTION
        )


def round_length(value: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is at most `value`."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(power * max(n for n in (1, 2, 5) if n * power <= value * (1 + 1e-9)))


def _chosen(
    flow: Field, shape: tuple[int, ...], grid: ArrowGrid
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Starts (N, 2) as x, y in px of the picture, and vectors (N, 2), of the cells with known pixels."""
    H, W = flow.shape[:2]
    size = np.array([shape[1], shape[0]])
    counts = np.maximum(1, np.round(size / grid.spacing)).astype(int)  # whole cells, about as large as the spacing
    rows, columns = np.nonzero(np.isfinite(flow).all(axis=2))
    places = (np.stack([columns, rows], axis=1) + 0.5) * size / (W, H)
    cells = np.floor(places * counts / size)
    far_first = np.argsort(-np.square(places - (cells + 0.5) * size / counts).sum(axis=1))
    nearest = np.full(counts[0] * counts[1], -1)
    nearest[(cells @ (1, counts[0])).astype(int)[far_first]] = far_first  # the last one assigned is the nearest
    kept = nearest[nearest >= 0]
    return places[kept] - 0.5, flow[rows[kept], columns[kept]].astype(np.float64)


def _fixed(point: npt.NDArray[np.floating]) -> tuple[int, int]:
    x, y = np.round(point * 2**_FRACTION).astype(int)
    return int(x), int(y)
