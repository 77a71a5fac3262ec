"""What lies inside of a silhouette, what outside, and how far from its border."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_MARGIN = 2


def silhouette_distance(inside: Mask) -> npt.NDArray[np.float32]:
    """The distance (H, W) in px of pixel centres from the border of a silhouette (H, W), positive inside.

    The border lies half-way between pixels inside and outside, so that these are at ±0.5. Both must be there.
    """
    masks = (inside.astype(np.uint8), (~inside).astype(np.uint8))
    to_out, to_in = (np.asarray(cv2.distanceTransform(m, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)) for m in masks)
    return np.asarray(np.where(inside, to_out - 0.5, 0.5 - to_in), np.float32)


def fill_outside(colour: Bytes, inside: Mask) -> Bytes:
    """The colours (H, W, 3) with those not inside (H, W) replaced by the nearest ones that are."""
    outside = (~inside).astype(np.uint8)
    _, nearest = cv2.distanceTransformWithLabels(outside, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    table = np.zeros((int(nearest.max()) + 1, 3), np.uint8)
    table[nearest[inside]] = colour[inside]
    return np.asarray(table[nearest])


def cut_to_silhouette(colour: Bytes, inside: Mask, step: int) -> tuple[Bytes, Mask]:
    """Colours (H, W, 3) and inside (H, W) cut to what is inside and a margin, to sides that are multiples of a step.

    The colours outside, which interpolation touches at the border, are the nearest ones inside.
    """
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    window = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    borders = [(_MARGIN, _MARGIN + -(n + 2 * _MARGIN) % step) for n in inside[window].shape]
    wide = np.pad(inside[window], borders)
    return fill_outside(np.pad(colour[window], [*borders, (0, 0)]), wide), wide
