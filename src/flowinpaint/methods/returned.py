"""Checks of what the fill function of a method returns; each message names the method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.errors import InputError
from flowinpaint.result import Solution

if TYPE_CHECKING:
    from torch import Tensor

Field = npt.NDArray[np.floating[Any]]


def solution_of(name: str, returned: Any, flow: Tensor) -> Solution:
    """The returned `Solution`, or that of a returned tensor; InputError unless it fits the flow (B, C, H, W)."""
    solution = Solution(returned) if isinstance(returned, torch.Tensor) else returned
    if getattr(solution, "u", None) is None or not hasattr(solution, "status"):
        hint = "; adapt a function of arrays by fi.numpy_method" if isinstance(returned, np.ndarray) else ""
        raise InputError(f"method {name!r} must return a Solution or a tensor, got {_kind(returned)}{hint}")
    found: Solution = solution
    _check_tensor(name, "a field", found.u, tuple(flow.shape))
    if found.expected_error is not None:
        _check_tensor(name, "an expected error", found.expected_error, (flow.shape[0], 1, *flow.shape[2:]))
    return found


def check_filled(name: str, u: Tensor, mask: Tensor) -> None:
    """Raise InputError unless a field (B, C, H, W) is finite where the mask (B, 1, H, W) is 0."""
    unknown = mask <= 0
    if bad := int((unknown & ~u.isfinite().all(1, keepdim=True)).sum()):
        raise InputError(
            f"method {name!r} must fill all unknown pixels, got NaN or infinity at {bad} of {int(unknown.sum())}"
        )


def field_of(name: str, returned: Any, given: Field) -> Field:
    """The returned array in the type of the given field (H, W, C); InputError unless it is one, or (H, W) for C = 1."""
    rule = f"method {name!r} must return a floating array of shape {given.shape}"
    if not isinstance(returned, np.ndarray):
        raise InputError(f"{rule}, got {_kind(returned)}")
    filled = returned[..., None] if returned.shape == given.shape[:2] and given.shape[2] == 1 else returned
    if filled.shape != given.shape or not np.issubdtype(filled.dtype, np.floating):
        raise InputError(f"{rule}, got {returned.dtype} {returned.shape}")
    if isinstance(filled, np.ma.MaskedArray):
        filled = filled.filled(np.nan)
    with np.errstate(over="ignore"):
        return np.array(filled, given.dtype, order="C")


def _check_tensor(name: str, what: str, x: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(x, torch.Tensor):
        raise InputError(f"method {name!r} must return {what} that is a tensor, got {_kind(x)}")
    if tuple(x.shape) != shape:
        raise InputError(f"method {name!r} must return {what} of shape {shape}, got {tuple(x.shape)}")
    if not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        raise InputError(f"method {name!r} must return {what} of a floating type, got {kind}")


def _kind(value: object) -> str:
    return "None" if value is None else f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
