"""`Hints`: what the caller of `inpaint` knows about the given vectors, and its checks."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint.arguments.arrays import image_of, map_of
from flowinpaint.arguments.spaces import Space, noise_in_space
from flowinpaint.checks import Limit, check_image, check_point_values
from flowinpaint.errors import InputError
from flowinpaint.methods.method import Method
from flowinpaint.methods.registry import all_methods


class Hints(NamedTuple):
    """What the caller knows about the vectors; on the CPU.

    noise, confidence (1, 1, H, W): standard deviations in the field's unit, and probabilities that a vector is correct.
    second (1, 3, H, W): the image that the vectors point to. estimate: judge the vectors, with the others as priors;
    otherwise noise and confidence are final, and vectors without a confidence are correct.
    """

    noise: Tensor | None = None
    confidence: Tensor | None = None
    second: Tensor | None = None
    estimate: bool = True


def check_hints(
    robust: bool | np.bool_,
    noise: object,
    confidence: object,
    second: object,
    flow: npt.NDArray[np.floating[Any]],
    known: npt.NDArray[np.bool_],
    space: Space | None = None,
) -> Hints:
    """The hints from the arguments of `inpaint`; InputError unless they fit the field (H, W, C) and its mask.

    space: the noise is converted to it.
    """
    sigma = check_point_values("noise", _array_or_number("noise", noise), known, Limit.WEIGHT)
    p = check_point_values("confidence", _array_or_number("confidence", confidence), known, Limit.CHANCE)
    if sigma is not None and space is not None:
        sigma = noise_in_space(space, sigma, flow, known)
    if p is not None and not p.any():
        raise InputError("confidence must be above 0 for at least one known vector, got 0 everywhere")
    other = None
    if second is not None:
        if flow.shape[2] != 2:
            raise InputError(f"second needs a flow of 2 channels, displacements in px, got {flow.shape[2]}")
        other = torch.from_numpy(
            np.array(check_image(image_of(second, "second")[0], flow.shape[:2], "second"))
        ).movedim(-1, 0)[None]
    maps = [None if x is None else torch.from_numpy(x)[None, None] for x in (sigma, p)]
    return Hints(maps[0], maps[1], other, bool(robust) or second is not None)


def _array_or_number(name: str, value: object) -> object:
    """Arrays of any kind as numpy arrays (H, W); numbers and None unchanged."""
    return value if value is None or isinstance(value, numbers.Real | str) else map_of(name, value)


def check_takes_weights(method: Method) -> None:
    """Raise InputError unless a method can fill from vectors that may be wrong."""
    if not method.takes_weights:
        fit = ", ".join(m.name for m in all_methods() if m.takes_weights)
        raise InputError(f"method must support robust, noise, confidence and second, as {fit} do, got {method.name}")
