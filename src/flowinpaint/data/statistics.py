"""What scenes and real frames are like, in numbers that can be laid side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

FLOW_JUMP = 1.0
"""Flow that differs by more than this between neighbours, in pixels, is an edge."""
IMAGE_JUMP = 0.04
"""So is an image in [0, 1], smoothed by a Gaussian of one pixel, whose gradient is larger than this."""
REACH = 2
"""Edges that lie so many pixels apart, or less, belong together."""


class EdgeCounts(NamedTuple):
    """Numbers of pixels; they add up over frames."""

    pixels: int
    flow_edges: int
    flow_edges_with_image_edge: int
    image_edges: int
    image_edges_with_flow_edge: int


def count_edges(
    image: npt.NDArray[np.uint8], flow: npt.NDArray[np.floating[Any]], valid: npt.NDArray[np.bool_]
) -> EdgeCounts:
    """The edges of an image (H, W, 3) or (H, W) and of its flow (H, W, C) where valid (H, W), and how many coincide."""
    filled = np.where(valid[..., None], flow, 0)
    jump = np.linalg.norm(_steps(filled, 1), axis=-1), np.linalg.norm(_steps(filled, 0), axis=-1)
    both = valid & _next(valid, 1), valid & _next(valid, 0)
    flow_edge = ((jump[0] > FLOW_JUMP) & both[0]) | ((jump[1] > FLOW_JUMP) & both[1])
    known = both[0] & both[1]

    smooth = cv2.GaussianBlur(image.astype(np.float32) / 255, (0, 0), 1.0).reshape(*image.shape[:2], -1)
    image_edge = np.sqrt((_steps(smooth, 1) ** 2 + _steps(smooth, 0) ** 2).sum(-1)) > IMAGE_JUMP
    return EdgeCounts(
        int(known.sum()),
        int(flow_edge.sum()),
        int((flow_edge & _widened(image_edge)).sum()),
        int((image_edge & known).sum()),
        int((image_edge & known & _widened(flow_edge)).sum()),
    )


def _steps(field: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """Differences to the next pixel along an axis, 0 at the last."""
    return np.diff(field, axis=axis, append=np.take(field, [-1], axis))


def _next(mask: npt.NDArray[np.bool_], axis: int) -> npt.NDArray[np.bool_]:
    shifted = np.roll(mask, -1, axis)
    shifted[(slice(None),) * axis + (-1,)] = False
    return shifted


def _widened(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    side = 2 * REACH + 1
    return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((side, side), np.uint8))) > 0
