"""Statistics of flow edges and image edges, to compare generated scenes with real frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

FLOW_JUMP = 1.0
"""Difference of flow between neighbours, in pixels, above which there is an edge."""
IMAGE_JUMP = 0.04
"""Gradient of an image in [0, 1], smoothed by a Gaussian of one pixel, above which there is an edge."""
REACH = 2
"""Largest distance in pixels between edges that coincide."""


class EdgeCounts(NamedTuple):
    """Numbers of pixels, which can be added over frames."""

    pixels: int
    flow_edges: int
    flow_edges_with_image_edge: int
    image_edges: int
    image_edges_with_flow_edge: int


def count_edges(
    image: npt.NDArray[np.uint8], flow: npt.NDArray[np.floating[Any]], valid: npt.NDArray[np.bool_]
) -> EdgeCounts:
    """Count edges, and coinciding ones, of an image (H, W, 3) or (H, W) and its flow (H, W, C) where valid (H, W)."""
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
