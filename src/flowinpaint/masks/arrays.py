"""Masks as numpy arrays: bool (H, W), True where a vector is known; `masks.MaskMix` draws them for batches in training.

All except `random_mask` are the families of a training run, for a batch of one. With valid (H, W) bool, only its True
pixels are known, and at least one of them if there are any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint.arguments.arrays import image_of
from flowinpaint.checks import Limit, check_flow, check_image, check_number
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.masks import families
from flowinpaint.masks.mix import MaskMix

Mask = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]


def random_mask(shape: tuple[int, int], density: float, seed: int = 0, valid: Mask | None = None) -> Mask:
    """A fraction of the pixels of an image of shape (H, W), uniformly at random.

    The number of pixels is exactly max(1, round(density * H * W)), and the same seed gives the same mask. With valid
    (H, W) the same number, a fraction of all pixels, is drawn from the valid ones: the paper's rule for KITTI.
    """
    _check_shape(shape, valid)
    check_number("density", density, Limit.SHARE)
    height, width = shape
    count = drawn_count(density, height * width)
    places = np.arange(height * width) if valid is None else np.flatnonzero(valid)
    if count > places.size:
        raise InputError(
            f"density must select at most the {places.size} valid pixels, got {density}: {count} of {height * width}"
        )
    # Drawn by position in the list: without valid, a seed gives the same mask as in earlier versions.
    chosen = places[np.random.default_rng(seed).choice(places.size, size=count, replace=False, shuffle=False)]
    mask = np.zeros(height * width, dtype=np.bool_)
    mask[chosen] = True
    return mask.reshape(height, width)


def drawn_count(density: float, pixels: int) -> int:
    """The number of pixels that `random_mask` marks."""
    return max(1, round(density * pixels))


def bernoulli_mask(shape: tuple[int, int], density: float, seed: int = 0, valid: Mask | None = None) -> Mask:
    """Each pixel independently with a probability, so the number of pixels varies, unlike in `random_mask`."""
    numbers = _numbers(density=(density, Limit.SHARE))
    _, noise = _noise(shape, seed, valid)
    return _mask(families.bernoulli(noise, **numbers), noise)


def lidar_mask(
    shape: tuple[int, int],
    lines: int = 48,
    spacing: float = 2.0,
    horizon: float = 0.35,
    lost: float = 0.1,
    gaps: float = 0.1,
    focal: float = 0.8,
    seed: int = 0,
    valid: Mask | None = None,
) -> Mask:
    """The points of a spinning laser scanner: curved lines that get closer to each other toward the horizon.

    There are no points above the horizon, a fraction of the height. Points are `spacing` pixels apart along a line.
    lost is the fraction of single points without a return, gaps the fraction of the image in patches without returns,
    and focal the focal length in image widths; a shorter one curves the lines more.
    """
    beams = _numbers(lines=(lines, Limit.COUNT), spacing=(spacing, Limit.LENGTH), focal=(focal, Limit.POSITIVE))
    parts = _numbers(horizon=(horizon, Limit.PART), lost=(lost, Limit.PART), gaps=(gaps, Limit.PART))
    draws, noise = _noise(shape, seed, valid)
    return _mask(families.lidar(draws, noise, **beams, **parts), noise)


def corner_mask(image: _Array, density: float = 0.005, distance: int = 3, valid: Mask | None = None) -> Mask:
    """The strongest corners of an image, as feature trackers find them, up to a fraction of all pixels.

    image is (H, W, 3) or (H, W) as in `inpaint`, at least 2 x 2 pixels. Two corners are more than `distance` pixels
    apart. The mask is not random, except that one pixel is drawn if the image has no corner.
    """
    numbers = _numbers(density=(density, Limit.SHARE))
    check_number("distance", distance, Limit.COUNT)
    picture = _image_batch(image)
    _, noise = _noise(image.shape[:2], 0, valid)
    return _mask(families.corners(picture, noise, most=density, distance=int(distance), **numbers), noise)


def grid_mask(
    shape: tuple[int, int], spacing: int = 8, jitter: float = 0.0, seed: int = 0, valid: Mask | None = None
) -> Mask:
    """One pixel in each square of spacing x spacing pixels: at its centre, like the motion vectors of a video.

    jitter is the fraction of the square over which the pixel is placed at random.
    """
    numbers = _numbers(spacing=(spacing, Limit.COUNT), jitter=(jitter, Limit.CHANCE))
    draws, noise = _noise(shape, seed, valid)
    return _mask(families.grid(draws, noise, closest=int(spacing), shift=torch.zeros(1, 2, 1, 1), **numbers), noise)


def blob_hole_mask(
    shape: tuple[int, int],
    share: float = 0.3,
    size: float = 60.0,
    density: float = 1.0,
    seed: int = 0,
    valid: Mask | None = None,
) -> Mask:
    """All pixels, or a random fraction (density) of them, outside round holes.

    The holes have a diameter of about `size` pixels and cover a fraction (share) of the image on average.
    """
    numbers = _numbers(share=(share, Limit.PART), size=(size, Limit.LENGTH), density=(density, Limit.SHARE))
    draws, noise = _noise(shape, seed, valid)
    return _mask(families.blob_holes(draws, noise, **numbers), noise)


def rectangle_hole_mask(
    shape: tuple[int, int],
    count: int = 4,
    smallest: float = 20.0,
    largest: float = 120.0,
    density: float = 1.0,
    seed: int = 0,
    valid: Mask | None = None,
) -> Mask:
    """All pixels, or a random fraction (density) of them, outside a number of rectangles.

    The rectangles may overlap and cross the border; their sides are `smallest` to `largest` pixels.
    """
    numbers = _numbers(count=(count, Limit.COUNT), density=(density, Limit.SHARE))
    check_number("smallest", smallest, Limit.LENGTH)
    check_number("largest", largest, Limit.LENGTH)
    if smallest > largest:
        raise InputError(f"smallest must be at most largest, got {smallest} and {largest}")
    draws, noise = _noise(shape, seed, valid)
    sides = draws.log_uniform((2, int(count), 1), smallest, largest)
    return _mask(families.rectangle_holes(draws, noise, sides=sides, **numbers), noise)


def occlusion_mask(
    flow: _Array,
    reach: float = 0.5,
    jump: float = 1.0,
    widest: int = 12,
    density: float = 1.0,
    seed: int = 0,
    valid: Mask | None = None,
) -> Mask:
    """All pixels, or a random fraction (density) of them, outside bands along the jumps of a flow (H, W, C).

    Forward-backward checks produce such masks. If neighbours differ by more than `jump`, the band extends `reach`
    pixels to either side per pixel of the difference, at most `widest`. Non-finite vectors are not valid.
    """
    numbers = _numbers(reach=(reach, Limit.WEIGHT), density=(density, Limit.SHARE))
    check_number("jump", jump, Limit.POSITIVE)
    check_number("widest", widest, Limit.COUNT)
    field, valid = _flow_batch(flow, valid)
    _, noise = _noise(flow.shape[:2], seed, valid)
    return _mask(families.occlusion(noise, field, jump=jump, widest=int(widest), **numbers), noise)


def mixed_mask(
    image: _Array, flow: _Array, mix: MaskMix | None = None, seed: int = 0, valid: Mask | None = None
) -> Mask:
    """The mask of a training run for an image (H, W, 3) or (H, W) and a flow (H, W, C).

    The default mix has a random density, log-uniform from 0.4 to 15 %. Non-finite vectors are not valid.
    """
    field, valid = _flow_batch(flow, valid)
    picture = _image_batch(image, flow.shape[:2])
    drawn = (mix or MaskMix()).draw(_draws(seed), picture, field, torch.from_numpy(valid)[None, None])
    return drawn[0, 0].numpy()


def _draws(seed: int) -> Draws:
    return Draws(torch.zeros(1, dtype=torch.int64), seed)


def _noise(shape: tuple[int, ...], seed: int, valid: Mask | None) -> tuple[Draws, Tensor]:
    """The random numbers of a seed, and from them the noise (1, 1, H, W) of `families`."""
    _check_shape(shape, valid)
    draws = _draws(seed)
    pixels = torch.ones(1, 1, *shape) if valid is None else torch.from_numpy(valid.copy())[None, None]
    return draws, families.pixel_noise(draws, pixels)


def _mask(known: Tensor, noise: Tensor) -> Mask:
    return families.settle(known, noise)[0, 0].numpy()


def _numbers(**limits: tuple[float, Limit]) -> dict[str, Tensor]:
    """Arguments within their limits as numbers (1, 1, 1, 1) of `families`."""
    for name, (number, limit) in limits.items():
        check_number(name, number, limit)
    return {name: torch.full((1, 1, 1, 1), float(number)) for name, (number, _) in limits.items()}


def _image_batch(image: _Array, size: tuple[int, ...] | None = None) -> Tensor:
    picture, _ = image_of(image)
    checked = check_image(picture, picture.shape[:2] if size is None else size)
    if min(checked.shape[:2]) < 2:
        raise InputError(f"image must have at least 2 x 2 pixels, got {checked.shape[:2]}")
    return torch.from_numpy(np.ascontiguousarray(checked.transpose(2, 0, 1)))[None]


def _flow_batch(flow: _Array, valid: Mask | None) -> tuple[Tensor, Mask]:
    """The flow (1, C, H, W), 0 where not valid, and the valid pixels (H, W): finite, and in valid if passed."""
    check_flow(flow)
    _check_shape(flow.shape[:2], valid)
    finite = np.asarray(np.isfinite(flow).all(axis=2))
    known = finite if valid is None else finite & valid
    field = np.where(known[..., None], flow, 0).astype(np.float32)
    return torch.from_numpy(field.transpose(2, 0, 1))[None], known


def _check_shape(shape: tuple[int, ...], valid: Mask | None) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(f"shape must be (H, W), each at least 1, got {tuple(shape)}")
    if valid is not None and (valid.shape != tuple(shape) or valid.dtype != np.bool_):
        raise InputError(f"valid must be bool {tuple(shape)}, got {valid.dtype} {valid.shape}")
