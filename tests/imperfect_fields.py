"""Smooth fields with given vectors, exact or damaged, for tests of what judges them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint.methods.registry import get_method
from flowinpaint.result import Solution
from flowinpaint.robust.points import Points, points_of

Array = npt.NDArray[Any]


def smooth_scene(H: int = 64, W: int = 80, C: int = 2, seed: int = 0) -> tuple[Array, Array]:
    """A smooth image (H, W, 3), uint8, with a little noise, and a smooth field (H, W, C)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:H, :W] / max(H, W)
    waves = [5 * np.sin(3 * x + rng.normal()) + 4 * rng.normal() * y + rng.normal() for _ in range(C)]
    grey = 128 + 60 * np.sin(9 * x + 5 * y)[..., None] + rng.normal(0, 8, (H, W, 3))
    return grey.clip(0, 255).astype(np.uint8), np.stack(waves, -1).astype(np.float32)


def some_pixels(H: int, W: int, share: float, seed: int = 0) -> npt.NDArray[np.bool_]:
    """A random mask with at least one True."""
    mask = np.random.default_rng(seed).random((H, W)) < share
    mask[H // 2, W // 2] = True
    return mask


def with_gross_outliers(
    field: Array, share: float = 0.1, reach: float = 20.0, seed: int = 5
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The field with a share of its vectors moved by 5 to `reach` px, and where they are, (H, W) bool."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(field.shape[:2]) < share
    direction = rng.normal(size=field.shape)
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    moved = field + direction * rng.uniform(5, reach, (*wrong.shape, 1))
    return np.where(wrong[..., None], moved, field).astype(np.float32), wrong


def with_noise(field: Array, sigma: float, seed: int = 6) -> Array:
    noise = np.random.default_rng(seed).normal(0, sigma, field.shape)
    return np.asarray(field + noise, np.float32)


def to_batch(x: Array) -> Tensor:
    """(H, W), (H, W, C) or an uint8 image as (1, C, H, W) float32."""
    x = x[..., None] if x.ndim == 2 else x
    scale = 255 if x.dtype == np.uint8 else 1
    return torch.from_numpy(np.ascontiguousarray(x.astype(np.float32) / scale)).permute(2, 0, 1)[None].contiguous()


def points_on(field: Array, mask: npt.NDArray[np.bool_], image: Array | None = None) -> Points:
    """The points of a field (H, W, C) where the mask (H, W) is True; a grey image by default."""
    picture = np.full((*mask.shape, 3), 128, np.uint8) if image is None else image
    return points_of(to_batch(picture), to_batch(field * mask[..., None]), to_batch(mask))


def harmonic_fill(image: Tensor, f: Tensor, mask: Tensor, weight: Tensor | None = None) -> Solution:
    return get_method("harmonic").fill(image, f, mask, weight=weight)
