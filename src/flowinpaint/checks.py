"""Checks of arguments and configuration values, before anything is computed."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.errors import InputError

_FEW_BITS = 12
"""Cameras give 10 or 12 bits in 16: an image that uses no more is probably not as dark as it says."""


def check_flow(flow: object) -> npt.NDArray[np.floating[Any]]:
    """An (H, W, C) array of a floating type, none of the sizes 0."""
    if not isinstance(flow, np.ndarray):
        raise InputError(f"flow: {type(flow).__name__} was given; a numpy array (H, W, C) is taken.")
    if flow.ndim == 2:
        raise InputError(f"flow: shape {flow.shape} was given; (H, W, C) is taken: pass flow[..., None].")
    if flow.ndim != 3 or min(flow.shape) < 1:
        raise InputError(f"flow: shape {flow.shape} was given; (H, W, C), none of them 0, is taken.")
    if not np.issubdtype(flow.dtype, np.floating):
        raise InputError(f"flow: {flow.dtype} was given; a floating type is taken.")
    return flow


def check_mask(mask: object, flow: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    """An (H, W) bool array with at least one True, every vector it calls known being finite in float32.

    None stands for the finite vectors.
    """
    size = flow.shape[:2]
    with np.errstate(over="ignore"):
        finite = np.isfinite(flow[..., 0].astype(np.float32, copy=False))
        for k in range(1, flow.shape[2]):  # all(axis=2) takes many times as long
            finite &= np.isfinite(flow[..., k].astype(np.float32, copy=False))
    if mask is None:
        known = finite
    else:
        if not isinstance(mask, np.ndarray):
            raise InputError(f"mask: {type(mask).__name__} was given; a numpy bool array (H, W) is taken.")
        if mask.shape != size:
            raise InputError(f"mask: shape {mask.shape} was given; {size} is taken beside a flow of {flow.shape}.")
        if mask.dtype != np.bool_:
            raise InputError(f"mask: {mask.dtype} was given; bool, True where known, is taken: pass mask > 0.")
        known = mask
    if not known.any():
        where = "flow: no vector is finite" if mask is None else "mask: no pixel is known"
        raise InputError(f"{where}; at least one is needed.")
    if (bad := known & ~finite).any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"flow: {int(bad.sum())} vectors that the mask calls known are NaN or infinite, the first at row {row}, "
            f"column {column}; known vectors must be finite."
        )
    return known


def check_image(image: object, size: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Any accepted image as (H, W, 3) float32 in [0, 1]; grey becomes three equal channels."""
    picture = check_picture(image, size)
    scaled = picture.astype(np.float32, copy=False) / np.float32(full_scale(picture))
    return np.broadcast_to(scaled, (*size, 3))


def check_picture(image: object, size: tuple[int, ...]) -> npt.NDArray[Any]:
    """Any accepted image as (H, W, 3) or (H, W, 1): uint8 and uint16 as they are, others float32 in [0, 1].

    size: (H, W), or the shape (H, W, C) of the flow.
    """
    if not isinstance(image, np.ndarray):
        raise InputError(f"image: {type(image).__name__} was given; a numpy array (H, W, 3) or (H, W) is taken.")
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3)):
        raise InputError(f"image: shape {image.shape} was given; (H, W, 3) or (H, W) is taken.")
    if image.shape[:2] != size[:2]:
        if image.shape[:2] == size[1:]:
            raise InputError(f"flow: shape {size} was given; (H, W, C) is taken: pass np.moveaxis(flow, 0, -1).")
        raise InputError(f"image: size {image.shape[:2]} was given; {tuple(size[:2])} is taken, the size of the flow.")
    if np.issubdtype(image.dtype, np.floating):
        if not np.isfinite(image).all():
            raise InputError("image: NaN or infinite values were given; values in [0, 1] are taken.")
        # Filters overshoot a little; an image in 0..255 does not pass.
        if image.min() < -0.01 or image.max() > 1.01:
            raise InputError(
                f"image: values from {image.min():.4g} to {image.max():.4g} were given; [0, 1] is taken "
                "for a float image, 0..255 for uint8."
            )
        image = np.clip(image, 0, 1).astype(np.float32)
    elif image.dtype not in (np.uint8, np.uint16):
        raise InputError(f"image: {image.dtype} was given; uint8, uint16 or a float in [0, 1] is taken.")
    elif image.dtype == np.uint16 and 0 < (brightest := int(image.max(initial=0))) < 2**_FEW_BITS:
        bits = next(bits for bits in (8, 10, _FEW_BITS) if brightest < 2**bits)
        warnings.warn(
            f"image: uint16 up to {brightest} was given, which is dark; if it has {bits} bits, give it as a float: "
            f"image / {2**bits - 1}.",
            stacklevel=3,
        )
    return image if image.ndim == 3 else image[..., None]


def full_scale(picture: npt.NDArray[Any]) -> int:
    """The value that stands for 1 in an array of this type."""
    return 1 if picture.dtype == np.float32 else int(np.iinfo(picture.dtype).max)


def check_device(device: object) -> torch.device:
    """The torch device; "auto" is CUDA where there is one and the CPU elsewhere."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)  # type: ignore[call-overload]
    except (RuntimeError, TypeError):
        chosen = None
    if not isinstance(chosen, torch.device) or chosen.type not in ("cpu", "cuda"):
        raise InputError(f'device: {device!r} was given; "auto", "cpu", "cuda" or "cuda:0" is taken.')
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(
            f"device: {str(device)!r} was given, but PyTorch sees {count} CUDA devices; one of these, or cpu, is taken."
        )
    return chosen


class Limit(Enum):
    """A rule for one number; the value is how a message puts it."""

    ANY = "of any sign"
    WEIGHT = "of at least 0"
    SHARE = "above 0 and up to 1"
    PART = "of at least 0 and below 1"
    CHANCE = "from 0 to 1"
    POSITIVE = "above 0"
    LENGTH = "of at least 1"
    COUNT = "that is whole and from 1 to 10000"
    WHOLE = "that is whole and from 0 to 10000"


_RULES: dict[Limit, Callable[[float], bool]] = {
    Limit.ANY: lambda x: True,
    Limit.WEIGHT: lambda x: x >= 0,
    Limit.SHARE: lambda x: 0 < x <= 1,
    Limit.PART: lambda x: 0 <= x < 1,
    Limit.CHANCE: lambda x: 0 <= x <= 1,
    Limit.POSITIVE: lambda x: x > 0,
    Limit.LENGTH: lambda x: x >= 1,
    Limit.COUNT: lambda x: 1 <= x <= 10_000 and x == int(x),
    Limit.WHOLE: lambda x: 0 <= x <= 10_000 and x == int(x),
}


def check_number(name: str, value: object, limit: Limit) -> None:
    """Raise InputError unless the value is a finite number within the limit."""
    if not _passes(value, limit):
        raise InputError(f"{name} is {value!r}; a finite number {limit.value} is taken.")


def check_range(name: str, value: object, limit: Limit) -> None:
    """Raise InputError unless the value is a pair (low, high) of finite numbers within the limit."""
    fits = isinstance(value, tuple) and len(value) == 2 and all(_passes(x, limit) for x in value)
    if not fits or value[0] > value[1]:  # type: ignore[index]
        raise InputError(f"{name} is {value!r}; two finite numbers {limit.value} are taken, the lower one first.")


def _passes(value: object, limit: Limit) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value) and _RULES[limit](float(value))
