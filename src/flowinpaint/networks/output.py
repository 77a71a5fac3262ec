"""Network output: the dense field and its expected error."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import RELATIVE_FLOOR, statistics

LARGEST_LOGARITHM = 8.0
"""Expected errors lie between e^-8 and e^8 times the scale."""


class Filled(NamedTuple):
    """A dense field (B, C, H, W), and the logarithm of its expected endpoint error, (B, 1, H, W), or None.

    The error is in units of the mean deviation of the known vectors (`mean_and_scale`), so it scales with the field.
    """

    field: Tensor
    log_error: Tensor | None


def confidence_of(error: Tensor) -> Tensor:
    """Probability that the actual error is below 1, for exponentially distributed errors with this expectation."""
    return -torch.expm1(-1 / error)


def expected_error(log_error: Tensor, f: Tensor, c: Tensor, exact: Tensor | None = None) -> Tensor:
    """Expected endpoint error (B, 1, H, W) in the unit of the field, 0 where a vector is exact (by default, known).

    It is infinite elsewhere if all known vectors are equal: the unit of the error is the variation of the field, which
    is then unknown.
    """
    mean, scale = mean_and_scale(f, c)
    error = scale * torch.exp(log_error.clamp(-LARGEST_LOGARITHM, LARGEST_LOGARITHM))
    alike = scale <= RELATIVE_FLOOR * mean.abs().amax(1, keepdim=True)
    return torch.where(c > 0 if exact is None else exact, 0.0, torch.where(alike, torch.inf, error))


def mean_and_scale(f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (B, C, 1, 1) and mean deviation (B, 1, 1, 1) of the vectors of f (B, C, H, W) where c (B, 1, H, W) is 1."""
    mean, deviation = statistics(torch.where(c > 0, f, 0), c)
    return mean, deviation.mean(1, keepdim=True)
