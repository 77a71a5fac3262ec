"""Masks for numpy arrays: bool (H, W), True where a vector is given.

All but `random_mask` are the families of a training run, for a batch of one. With valid (H, W) bool, only its True
pixels are taken, and always at least one of them if there are any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint.checks import Limit, check_flow, check_image, check_number
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.masks import families
from flowinpaint.masks.mix import MaskMix

Mask = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]


def random_mask(shape: tuple[int, int], density: float, seed: int = 0, valid: Mask | None = None) -> Mask:
    """Mark a fraction of the pixels of a picture of shape (H, W), uniformly at random and without repeats.

    The count is exact, max(1, round(density * H * W)), and the same seed gives the same mask. With valid (H, W) the
    same count, a share of all pixels, is drawn from the valid ones: the paper's rule for KITTI.
    """
    _check_shape(shape, valid)
    check_number("density", density, Limit.SHARE)
    height, width = shape
    count = drawn_count(density, height * width)
    places = np.arange(height * width) if valid is None else np.flatnonzero(valid)
    if count > places.size:
        raise InputError(
            f"density is {density}, {count} of {height * width} pixels; up to the {places.size} valid ones are taken."
        )
    # Drawn by place in the list: without valid these are the masks of the same seed in earlier versions.
    chosen = places[np.random.default_rng(seed).choice(places.size, size=count, replace=False, shuffle=False)]
    mask = np.zeros(height * width, dtype=np.bool_)
    mask[chosen] = True
    return mask.reshape(height, width)


def drawn_count(density: float, pixels: int) -> int:
    """How many of the pixels `random_mask` marks."""
    return max(1, round(density * pixels))


def bernoulli_mask(shape: tuple[int, int], density: float, seed: int = 0, valid: Mask | None = None) -> Mask:
    """Each pixel by itself, with a probability: the count varies, unlike that of `random_mask`."""
    check_number("density", density, Limit.SHARE)
    _, noise = _noise(shape, seed, valid)
    return _mask(families.bernoulli(noise, _amount(density)), noise)


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
    """The points that a spinning laser scanner sees: curved lines, closer to each other toward the horizon.

    Nothing is seen above the horizon, a share of the height. Points are `spacing` pixels apart along a line; a share
    of them is lost one by one, and what lies in gaps, which cover a share of the picture. focal is the focal length in
    widths of the picture: the shorter, the more the lines are curved.
    """
    check_number("lines", lines, Limit.COUNT)
    check_number("spacing", spacing, Limit.LENGTH)
    check_number("focal", focal, Limit.POSITIVE)
    for name, part in (("horizon", horizon), ("lost", lost), ("gaps", gaps)):
        check_number(name, part, Limit.PART)
    draws, noise = _noise(shape, seed, valid)
    known = families.lidar(
        draws,
        noise,
        lines=_amount(lines),
        spacing=_amount(spacing),
        horizon=_amount(horizon),
        focal=_amount(focal),
        lost=_amount(lost),
        gaps=_amount(gaps),
    )
    return _mask(known, noise)


def corner_mask(image: _Array, density: float = 0.005, distance: int = 3, valid: Mask | None = None) -> Mask:
    """The strongest corners of an image, as feature trackers find them, up to a share of all pixels; nothing is random.

    image is (H, W, 3) or (H, W) as `inpaint` takes it, of 2 x 2 pixels or more. A corner is the only one within a
    distance of whole pixels. There are fewer than asked for where the image has no more; and where it has none at all,
    one pixel is drawn.
    """
    check_number("density", density, Limit.SHARE)
    check_number("distance", distance, Limit.COUNT)
    picture = _image_batch(image)
    _, noise = _noise(image.shape[:2], 0, valid)
    return _mask(families.corners(picture, noise, _amount(density), density, int(distance)), noise)


def grid_mask(
    shape: tuple[int, int], spacing: int = 8, jitter: float = 0.0, seed: int = 0, valid: Mask | None = None
) -> Mask:
    """One pixel in each square of spacing x spacing pixels: at its centre, as the motion vectors of a video are.

    With jitter 1 it is anywhere in its square, and in between for less.
    """
    check_number("spacing", spacing, Limit.COUNT)
    check_number("jitter", jitter, Limit.CHANCE)
    draws, noise = _noise(shape, seed, valid)
    shift = torch.zeros(1, 2, 1, 1)
    known = families.grid(
        draws, noise, spacing=_amount(spacing), closest=int(spacing), jitter=_amount(jitter), shift=shift
    )
    return _mask(known, noise)


def blob_hole_mask(
    shape: tuple[int, int],
    share: float = 0.3,
    size: float = 60.0,
    density: float = 1.0,
    seed: int = 0,
    valid: Mask | None = None,
) -> Mask:
    """All pixels, or a density of them at random, outside of round holes.

    These are about `size` pixels in diameter and cover a share of the picture on average.
    """
    check_number("share", share, Limit.PART)
    check_number("size", size, Limit.LENGTH)
    check_number("density", density, Limit.SHARE)
    draws, noise = _noise(shape, seed, valid)
    known = families.blob_holes(draws, noise, share=_amount(share), size=_amount(size), density=_amount(density))
    return _mask(known, noise)


def rectangle_hole_mask(
    shape: tuple[int, int],
    count: int = 4,
    smallest: float = 20.0,
    largest: float = 120.0,
    density: float = 1.0,
    seed: int = 0,
    valid: Mask | None = None,
) -> Mask:
    """All pixels, or a density of them at random, outside of a count of rectangles.

    The rectangles may overlap and be cut by the border; their sides are the smallest to the largest number of pixels.
    """
    check_number("count", count, Limit.COUNT)
    check_number("smallest", smallest, Limit.LENGTH)
    check_number("largest", largest, Limit.LENGTH)
    check_number("density", density, Limit.SHARE)
    if smallest > largest:
        raise InputError(f"smallest and largest are {smallest} and {largest}; the smaller number first is taken.")
    draws, noise = _noise(shape, seed, valid)
    sides = draws.log_uniform((2, int(count), 1), smallest, largest)
    known = families.rectangle_holes(draws, noise, count=_amount(count), sides=sides, density=_amount(density))
    return _mask(known, noise)


def occlusion_mask(
    flow: _Array,
    reach: float = 0.5,
    jump: float = 1.0,
    widest: int = 12,
    density: float = 1.0,
    seed: int = 0,
    valid: Mask | None = None,
) -> Mask:
    """All pixels, or a density of them at random, outside of bands along the jumps of a flow (H, W, C).

    That is what a forward-backward check leaves. Where neighbours differ by more than `jump`, the band goes `reach`
    pixels to either side for each pixel of the difference, and no further than `widest`. Vectors that are not finite
    are not valid.
    """
    check_number("reach", reach, Limit.WEIGHT)
    check_number("jump", jump, Limit.POSITIVE)
    check_number("widest", widest, Limit.COUNT)
    check_number("density", density, Limit.SHARE)
    field, valid = _flow_batch(flow, valid)
    _, noise = _noise(flow.shape[:2], seed, valid)
    known = families.occlusion(
        noise, field, reach=_amount(reach), jump=jump, widest=int(widest), density=_amount(density)
    )
    return _mask(known, noise)


def mixed_mask(
    image: _Array, flow: _Array, mix: MaskMix | None = None, seed: int = 0, valid: Mask | None = None
) -> Mask:
    """What a training run draws for an image (H, W, 3) or (H, W) and a flow (H, W, C).

    By default that is a random density, log-uniform from 0.4 to 15 %. Vectors that are not finite are not valid.
    """
    field, valid = _flow_batch(flow, valid)
    picture = _image_batch(image, flow.shape[:2])
    drawn = (mix or MaskMix()).draw(_draws(seed), picture, field, torch.from_numpy(valid)[None, None])
    return drawn[0, 0].numpy()


def _draws(seed: int) -> Draws:
    return Draws(torch.zeros(1, dtype=torch.int64), seed)


def _noise(shape: tuple[int, ...], seed: int, valid: Mask | None) -> tuple[Draws, Tensor]:
    """The random numbers of a seed and the noise (1, 1, H, W) of `families` that they make."""
    _check_shape(shape, valid)
    draws = _draws(seed)
    taken = torch.ones(1, 1, *shape) if valid is None else torch.from_numpy(valid.copy())[None, None]
    return draws, families.pixel_noise(draws, taken)


def _mask(known: Tensor, noise: Tensor) -> Mask:
    return families.settle(known, noise)[0, 0].numpy()


def _amount(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), float(value))


def _image_batch(image: _Array, size: tuple[int, ...] | None = None) -> Tensor:
    checked = check_image(image, np.shape(image)[:2] if size is None else size)
    if min(checked.shape[:2]) < 2:
        raise InputError(f"image: size {checked.shape[:2]} was given; at least 2 x 2 pixels are taken.")
    return torch.from_numpy(np.ascontiguousarray(checked.transpose(2, 0, 1)))[None]


def _flow_batch(flow: _Array, valid: Mask | None) -> tuple[Tensor, Mask]:
    """A flow as (1, C, H, W), 0 where a vector is not valid, and which are (H, W): finite, and in valid if given."""
    check_flow(flow)
    _check_shape(flow.shape[:2], valid)
    finite = np.asarray(np.isfinite(flow).all(axis=2))
    taken = finite if valid is None else finite & valid
    field = np.where(taken[..., None], flow, 0).astype(np.float32)
    return torch.from_numpy(field.transpose(2, 0, 1))[None], taken


def _check_shape(shape: tuple[int, ...], valid: Mask | None) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(f"shape is {tuple(shape)}; a height and a width of at least 1 are taken.")
    if valid is not None and (valid.shape != tuple(shape) or valid.dtype != np.bool_):
        raise InputError(f"valid is {valid.dtype} {valid.shape}; bool of the shape {tuple(shape)} is taken.")
