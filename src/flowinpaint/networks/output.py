"""What a model returns: the field, and how far off it expects to be."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.neuroexplicit.first_guess import RELATIVE_FLOOR, known_statistics

LARGEST_LOGARITHM = 8.0
"""Expected errors lie between e^-8 and e^8 times the scale."""


class Filled(NamedTuple):
    """A dense field (B, C, H, W), and the logarithm of its expected endpoint error, (B, 1, H, W), or None.

    The error is measured in the mean deviation of the known vectors (`error_scale`), so that it scales with the field.
    """

    field: Tensor
    log_error: Tensor | None


def confidence_of(error: Tensor) -> Tensor:
    """The chance that an error is below 1 where so much is expected, as if errors were exponentially distributed."""
    return -torch.expm1(-1 / error)


def error_scale(f: Tensor, c: Tensor) -> Tensor:
    """The mean deviation of the known vectors of f (B, C, H, W), known where c (B, 1, H, W) is 1: (B, 1, 1, 1)."""
    return _mean_and_scale(f, c)[1]


def expected_error(log_error: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """The expected endpoint error (B, 1, H, W) in the field's unit: 0 where known.

    Known vectors that are all alike, one of them or many, tell nothing about how the field varies, and by that errors
    are measured: then it is infinite everywhere else.
    """
    mean, scale = _mean_and_scale(f, c)
    error = scale * torch.exp(log_error.clamp(-LARGEST_LOGARITHM, LARGEST_LOGARITHM))
    alike = scale <= RELATIVE_FLOOR * mean.abs().amax(1, keepdim=True)
    return torch.where(c > 0, 0.0, torch.where(alike, torch.inf, error))


def _mean_and_scale(f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (B, C, 1, 1) and mean deviation (B, 1, 1, 1) of the known vectors."""
    mean, deviation = known_statistics(torch.where(c > 0, f, 0), c)
    return mean, deviation.mean(1, keepdim=True)
