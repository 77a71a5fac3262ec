"""Checks of arguments and configuration values before any computation."""

from __future__ import annotations

import math
import numbers
from enum import Enum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.errors import InputError, warn_user
from flowinpaint.forked import check_fork
from flowinpaint.io.flow import in_every_channel

Array = npt.NDArray[Any]
Range = tuple[float, float]
Counts = tuple[int, int]
"""A pair (low, high)."""

UNKNOWN = 1e9
"""Values above this, in any channel, mark an unknown vector, as in .flo files."""
_LARGEST = float(np.finfo(np.float32).max)
_FEW_BITS = 12
"""Cameras store 10 or 12 bits in 16; an image that uses at most 12 bits is probably not meant to be nearly black."""


def check_flow(flow: Array) -> npt.NDArray[np.floating[Any]]:
    """The flow; InputError unless it has a non-empty shape (H, W, C) and a floating type."""
    if flow.ndim != 3 or min(flow.shape) < 1:
        raise InputError(f"flow must have a non-empty shape (H, W, C), got {flow.shape}")
    if not np.issubdtype(flow.dtype, np.floating):
        how = {
            "u": "if 0 is unknown, pass np.where(flow > 0, flow * np.float32(unit), np.nan)",
            "c": "pass np.stack([flow.real, flow.imag], -1)",
        }.get(flow.dtype.kind, "pass flow.astype(np.float32), NaN where unknown")
        raise InputError(f"flow must have a floating type, NaN where unknown, got {flow.dtype}; {how}")
    return flow


def is_known(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    """Where values are finite and do not mean unknown."""
    return np.asarray(np.abs(values) <= min(UNKNOWN, float(np.finfo(values.dtype).max)))


def check_mask(mask: Array | None, flow: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    """The mask (H, W), or the vectors that are not `UNKNOWN` if it is None.

    Raises InputError unless the mask is bool, has a True, and every known vector is finite and at most 1e9.
    """
    size = flow.shape[:2]
    finite = in_every_channel(is_known(flow))
    known = finite
    if mask is not None:
        if mask.shape != size:
            raise InputError(f"mask must be bool of shape {size}, got {mask.dtype} {mask.shape}")
        if mask.dtype != np.bool_:
            raise InputError(
                f"mask must be bool of shape {size}, True where known, got {mask.dtype}; pass mask > 0, or mask == 0 "
                "if it marks what is unknown"
            )
        known = mask
    if not known.any():
        name, what = ("flow", "finite vector") if mask is None else ("mask", "known pixel")
        raise InputError(f"{name} must have at least one {what}, got none")
    if (bad := known & ~finite).any():
        row, column = np.argwhere(bad)[0]
        inverted = not (known & finite).any()
        raise InputError(
            f"flow must be finite and at most 1e9 where known, got {int(bad.sum())} other vectors, the first at row "
            f"{row}, column {column}"
            + ("; mask must be True where known: pass ~mask if it is inverted" if inverted else "")
        )
    return known


def warn_of_suspicious(
    flow: npt.NDArray[np.floating[Any]], known: npt.NDArray[np.bool_], has_mask: bool, judged: bool
) -> None:
    """Warn of a field (H, W, C) and its known pixels (H, W) that are valid but probably a mistake.

    has_mask: the caller passed a mask. judged: the vectors may be wrong, so a dense field is fine.
    """
    count = int(np.count_nonzero(known))
    zeros = int(np.count_nonzero(flow[..., 0][known] == 0))
    zeros = zeros if 2 * zeros <= count else int((flow[known] == 0).all(-1).sum())
    found = f"{100 * zeros / count:.0f} % of the known vectors are exactly zero"
    if 2 * zeros > count and has_mask:
        others = flow[~known]
        if others.size and (is_known(others) & (others != 0)).any(-1).mean() > 0.5:
            warn_user(f"mask looks inverted: {found}, most others are not; it must be True where known.")
    elif 2 * zeros > count:
        remedy = "mask=flow != 0" if flow.shape[2] == 1 else "mask=(flow != 0).any(-1)"
        warn_user(f"flow: {found}; if zero means unknown, pass {remedy}.")
    elif count == known.size and not judged:
        name, remedy = ("mask", "it must be False where unknown") if has_mask else ("flow", "mark unknown ones by NaN")
        warn_user(f"{name}: every vector is known, so there is nothing to fill; {remedy}.")


def check_image(image: Array, size: tuple[int, ...], name: str = "image") -> npt.NDArray[np.float32]:
    """Any accepted image as (H, W, 3) float32 in [0, 1]; grey becomes three equal channels."""
    picture = check_picture(image, size, name)
    scaled = picture.astype(np.float32, copy=False) / np.float32(full_scale(picture))
    return np.broadcast_to(scaled, (*size, 3))


def check_picture(image: Array, size: tuple[int, ...], name: str = "image") -> npt.NDArray[Any]:
    """Any accepted image as (H, W, 3) or (H, W, 1): uint8 and uint16 unchanged, others float32 in [0, 1].

    size: (H, W), or the shape (H, W, C) of the flow. name: the argument that errors name.
    """
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3)):
        raise InputError(f"{name} must have shape (H, W, 3) or (H, W), got {image.shape}")
    if image.shape[:2] != size[:2]:
        if image.shape[:2] == size[1:]:
            raise InputError(f"flow must have shape (H, W, C), got {size}; pass np.moveaxis(flow, 0, -1)")
        raise InputError(f"{name} must have the size of the flow, {tuple(size[:2])}, got {image.shape[:2]}")
    if np.issubdtype(image.dtype, np.floating):
        if not np.isfinite(image).all():
            raise InputError(f"{name} must have values in [0, 1], got NaN or infinity")
        # Tolerates the small overshoot of filters but not an image in 0..255.
        if image.min() < -0.01 or image.max() > 1.01:
            raise InputError(
                f"{name} must have values in [0, 1] if float and 0..255 if uint8, got {image.dtype} from "
                f"{image.min():.4g} to {image.max():.4g}"
            )
        image = np.clip(image, 0, 1).astype(np.float32)
    elif image.dtype not in (np.uint8, np.uint16):
        how = f"; pass {name}.astype(np.uint8) if its values are 0..255" if image.dtype.kind in "iu" else ""
        raise InputError(f"{name} must be uint8, uint16 or float in [0, 1], got {image.dtype}{how}")
    elif image.dtype == np.uint8 and image.max(initial=0) == 1:
        warn_user(f"{name}: the largest uint8 value is 1, so the image is nearly black; uint8 is 0..255, float [0, 1].")
    elif image.dtype == np.uint16 and 0 < (brightest := int(image.max(initial=0))) < 2**_FEW_BITS:
        bits = next(bits for bits in (8, 10, _FEW_BITS) if brightest < 2**bits)
        warn_user(
            f"{name}: the largest uint16 value is {brightest}, so the image is nearly black. If it is {bits}-bit, pass "
            f"{name} / {2**bits - 1}."
        )
    return image if image.ndim == 3 else image[..., None]


def full_scale(picture: npt.NDArray[Any]) -> int:
    """The value that represents 1 in an array of this type."""
    return 1 if picture.dtype == np.float32 else int(np.iinfo(picture.dtype).max)


def check_device(device: object) -> torch.device:
    """The torch device; "auto" is CUDA if available, else the CPU. InputError if it cannot be used."""
    try:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        chosen = torch.device(device)  # type: ignore[call-overload]
    except (RuntimeError, TypeError):
        chosen = None
    if not isinstance(chosen, torch.device) or chosen.type not in ("cpu", "cuda"):
        raise InputError(f'device must be "auto", "cpu", "cuda" or "cuda:0", got {device!r}')
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"device must be cpu or one of PyTorch's {count} CUDA devices, got {str(device)!r}")
    check_fork(chosen)
    return chosen


class Limit(Enum):
    """The rule for a finite number: its words in error messages, and its test."""

    ANY = "a finite number", lambda x: True
    WEIGHT = "a finite number of at least 0", lambda x: x >= 0
    SHARE = "a number above 0 and at most 1", lambda x: 0 < x <= 1
    PART = "a number of at least 0 and below 1", lambda x: 0 <= x < 1
    CHANCE = "a number from 0 to 1", lambda x: 0 <= x <= 1
    POSITIVE = "a finite number above 0", lambda x: x > 0
    LENGTH = "a finite number of at least 1", lambda x: x >= 1
    COUNT = "an integer from 1 to 10000", lambda x: 1 <= x <= 10_000 and x == int(x)
    WHOLE = "an integer from 0 to 10000", lambda x: 0 <= x <= 10_000 and x == int(x)


def check_whole(name: str, value: float, least: int) -> int:
    """The value as int; InputError unless it is an integer of at least `least`."""
    if not least <= value < math.inf or value % 1:
        raise InputError(f"{name} must be an integer of at least {least}, got {value}")
    return int(value)


def check_number(name: str, value: object, limit: Limit) -> None:
    """Raise InputError unless the value is a finite number within the limit."""
    if not _passes(value, limit):
        raise InputError(f"{name} must be {limit.value[0]}, got {value!r}")


def check_range(name: str, value: object, limit: Limit) -> None:
    """Raise InputError unless the value is a pair low <= high of finite numbers within the limit."""
    fits = isinstance(value, tuple) and len(value) == 2 and all(_passes(x, limit) for x in value)
    if not fits or value[0] > value[1]:  # type: ignore[index]
        raise InputError(f"{name} must be a pair low <= high, each {limit.value[0]}, got {value!r}")


def check_point_values(
    name: str, value: object, known: npt.NDArray[np.bool_], limit: Limit
) -> npt.NDArray[np.float32] | None:
    """A number, or an array (H, W) with a value within the limit at each known pixel, as float32 (H, W), 0 elsewhere.

    None stays None.
    """
    if value is None:
        return None
    if not isinstance(value, np.ndarray):
        if not _passes(value, limit) or float(value) > _LARGEST:  # type: ignore[arg-type]
            raise InputError(
                f"{name} must be {limit.value[0]}, or an array of them of shape {known.shape}, got {value!r:.60}"
            )
        return np.where(known, np.float32(value), np.float32(0))  # type: ignore[arg-type]
    if (
        value.shape != known.shape
        or value.dtype == np.bool_
        or not np.isrealobj(value)
        or value.dtype.kind not in "iuf"
    ):
        raise InputError(f"{name} must be an array of numbers of shape {known.shape}, got {value.dtype} {value.shape}")
    given = value[known].astype(np.float64)
    if not (np.abs(given).max() <= _LARGEST and limit.value[1](given.min()) and limit.value[1](given.max())):
        bad = next(x for x in given if not (abs(x) <= _LARGEST and limit.value[1](x)))
        raise InputError(f"{name} must be {limit.value[0]} at each known vector, got {bad}")
    return np.where(known, value, 0).astype(np.float32)


def _passes(value: object, limit: Limit) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value) and limit.value[1](float(value))


def check_fields(config: Any) -> None:
    """Check a frozen dataclass of numbers, pairs (low, high) and tuples: Annotated[type, Limit], else Limit.WEIGHT.

    Lists, as in TOML, become tuples, and the numbers of integer fields become int.
    """
    for name, kind in get_type_hints(type(config), include_extras=True).items():
        kind, limit = get_args(kind) if get_origin(kind) is Annotated else (kind, Limit.WEIGHT)
        value, parts = getattr(config, name), get_args(kind)
        if isinstance(value, list):
            value = tuple(value)
        if parts and parts[-1] is not Ellipsis:
            check_range(name, value, limit)
        else:
            for number in value if parts and isinstance(value, tuple) else (value,):
                check_number(name, number, limit)
        if kind is int or int in parts:
            value = tuple(map(int, value)) if parts else int(value)
        object.__setattr__(config, name, value)
