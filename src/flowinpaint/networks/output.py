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

    It is e^ς times the mean deviation of the known vectors, ς being the network's logarithm. If the vectors are all
    equal it is max(1, e^ς) times `scale_of_equal`: networks are not trained on fields without a deviation, so they may
    only raise it. Always finite, and positive where no vector is exact.
    """
    mean, scale = mean_and_scale(f, c)
    factor = torch.exp(log_error.clamp(-LARGEST_LOGARITHM, LARGEST_LOGARITHM))
    equal = scale <= RELATIVE_FLOOR * mean.abs().amax(1, keepdim=True)
    of_equal = scale_of_equal(mean, c.sum((2, 3), keepdim=True))
    error = torch.where(equal, of_equal * factor.clamp(min=1), scale * factor)
    limits = torch.finfo(error.dtype)
    return torch.where(c > 0 if exact is None else exact, 0.0, error.clamp(limits.tiny, limits.max))


def scale_of_equal(mean: Tensor, count: Tensor) -> Tensor:
    """The expected endpoint error of a field whose n = `count` known vectors all equal `mean`, (B, 1, 1, 1).

    If a share p of the field differs, n vectors miss it with probability (1 - p)^n, about e^(-pn). So n equal vectors
    rule out shares well above 1/n, and 1/n is the share to expect. Where the field differs, it differs by about its own
    length, as objects at rest do from a moving background: the error is |mean| / n, with the mean of |mean| over the
    channels. It scales with the field. A field of zeros has no length, and the difference counts as 1, the unit of
    `confidence_of`: a pixel, for flow.
    """
    length = mean.abs().mean(1, keepdim=True)
    return torch.where(length > 0, length, 1) / count.clamp(min=1)


def mean_and_scale(f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (B, C, 1, 1) and mean deviation (B, 1, 1, 1) of the vectors of f (B, C, H, W) where c (B, 1, H, W) is 1."""
    mean, deviation = statistics(torch.where(c > 0, f, 0), c)
    return mean, deviation.mean(1, keepdim=True)
