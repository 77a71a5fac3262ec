"""The second image of a generated scene, by forward warping, so that real matchers can run on generated scenes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.opencv import cv2

Float = npt.NDArray[np.float32]

_UP, _FINE = 4, 2
"""Samples per pixel of the first image and of the warped one, along each axis."""
_SAME_LAYER = 0.7
"""Pixels that land in the same place and whose motions differ by less, in px, belong to the same surface."""
_FAST_IN_FRONT = 0.65
"""Probability that the faster of two surfaces is in front."""
_CRACK = 5
"""Holes narrower than this, in fine pixels, are cracks between samples, not uncovered background."""


def second_image(image: Float, flow: Float, rng: np.random.Generator) -> Float:
    """The image (H, W, 3) in [0, 1] that `flow` (H, W, 2) leads to from `image`; new brightness and noise.

    Uncovered background shows another part of the image.
    """
    H, W = flow.shape[:2]
    colours = cv2.resize(image, (W * _UP, H * _UP), interpolation=cv2.INTER_CUBIC).clip(0, 1)
    motion = flow.repeat(_UP, 0).repeat(_UP, 1)
    rows, columns = np.indices(motion.shape[:2], np.float32)
    x = np.floor(((columns + 0.5) / _UP + motion[..., 0]) * _FINE).astype(np.int64)
    y = np.floor(((rows + 0.5) / _UP + motion[..., 1]) * _FINE).astype(np.int64)
    inside = (x >= 0) & (y >= 0) & (x < W * _FINE) & (y < H * _FINE)
    nearness = np.linalg.norm(motion, axis=-1) * (1 if rng.random() < _FAST_IN_FRONT else -1)
    warped, hole = _splat(colours[inside], (y * W * _FINE + x)[inside], nearness[inside], (H * _FINE, W * _FINE))
    warped = _fill_holes(warped, hole, image, rng)
    warped = np.asarray(cv2.resize(warped, (W, H), interpolation=cv2.INTER_AREA), np.float32)
    gain, offset = np.exp(0.06 * rng.standard_normal()), 0.02 * rng.standard_normal()
    noise = 0.01 * rng.random() * rng.standard_normal(warped.shape)
    return np.asarray((gain * warped + offset + noise).clip(0, 1), np.float32)


def _splat(
    colours: Float, index: npt.NDArray[np.int64], nearness: Float, size: tuple[int, int]
) -> tuple[Float, npt.NDArray[np.bool_]]:
    """Average the nearest colours (M, 3) at each pixel of a flat index (M,); also where no colour arrived."""
    target, z = torch.from_numpy(index), torch.from_numpy(nearness.astype(np.float32))
    count = size[0] * size[1]
    front = torch.full((count,), -torch.inf).scatter_reduce(0, target, z, "amax")
    seen = (z > front[target] - _SAME_LAYER).float()
    total = torch.zeros(count, 3).index_add(0, target, torch.from_numpy(colours).float() * seen[:, None])
    weight = torch.zeros(count).index_add(0, target, seen)
    mean = total / weight.clamp(min=1)[:, None]
    return mean.reshape(*size, 3).numpy(), (weight == 0).reshape(size).numpy()


def _fill_holes(warped: Float, hole: npt.NDArray[np.bool_], image: Float, rng: np.random.Generator) -> Float:
    """Interpolate cracks; show another part of the image in larger holes."""
    size = (_CRACK, _CRACK)
    known = (~hole).astype(np.float32)
    mean = cv2.blur(warped * known[..., None], size) / np.maximum(cv2.blur(known, size), 1e-3)[..., None]
    warped = np.where(hole[..., None], mean, warped)
    inner = cv2.erode(hole.astype(np.uint8), np.ones(size, np.uint8))
    uncovered = (cv2.dilate(inner, np.ones(size, np.uint8)) > 0) & hole
    H, W = hole.shape
    shift = int(rng.integers(H)), int(rng.integers(W))
    other = np.roll(cv2.resize(image, (W, H)), shift, (0, 1))
    return np.where(uncovered[..., None], other, warped).astype(np.float32)
