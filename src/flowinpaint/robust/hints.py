"""`Hints`: what the caller of `inpaint` knows about the given vectors, and its checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
) -> Hints:
    """The hints from the arguments of `inpaint`; InputError unless they fit the field (H, W, C) and its mask."""
    sigma = check_point_values("noise", noise, known, Limit.WEIGHT)
    p = check_point_values("confidence", confidence, known, Limit.CHANCE)
    if p is not None and not p.any():
        raise InputError("confidence must be above 0 for at least one known vector, got 0 everywhere")
    other = None
    if second is not None:
        if flow.shape[2] != 2:
            raise InputError(f"second needs a flow of 2 channels, displacements in px, got {flow.shape[2]}")
        other = torch.from_numpy(np.array(check_image(second, flow.shape[:2], "second"))).movedim(-1, 0)[None]
    maps = [None if x is None else torch.from_numpy(x)[None, None] for x in (sigma, p)]
    return Hints(maps[0], maps[1], other, bool(robust) or second is not None)


def check_takes_weights(method: Method) -> None:
    """Raise InputError unless a method can fill from vectors that may be wrong."""
    if not method.takes_weights:
        fit = ", ".join(m.name for m in all_methods() if m.takes_weights)
        raise InputError(f"method must support robust, noise, confidence and second, as {fit} do, got {method.name}")
