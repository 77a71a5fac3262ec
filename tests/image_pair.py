"""A textured image and the same texture moved by a known shift, for tests of matchers."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

SHIFT = (5, -3)
"""Columns and rows by which the texture moves."""


def image_pair(height: int = 96, width: int = 128, seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Two grey images (H, W), uint8."""
    rng = np.random.default_rng(seed)
    edge = 8
    noise = rng.uniform(0, 255, (height + 2 * edge, width + 2 * edge)).astype(np.float32)
    texture = cv2.GaussianBlur(noise, (0, 0), 1.5)
    texture = (255 * (texture - texture.min()) / np.ptp(texture)).astype(np.uint8)
    dx, dy = SHIFT
    first, second = (texture[edge - y :, edge - x :][:height, :width].copy() for x, y in ((0, 0), (dx, dy)))
    return first, second
