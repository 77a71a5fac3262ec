"""Smooth random fields: normal numbers at knots, interpolated by cubic B-splines."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from flowinpaint.counter_rng import normal_field

SPLINE_GAIN = 151 / 315
"""Mean sum of squared weights of a cubic B-spline: the factor by which each dimension reduces the variance."""


class SmoothNoise(nn.Module):
    """Fields (B, C, H, W) of mean 0 and deviation 1 that vary over the spacing of the knots, in pixels."""

    rows: Tensor
    columns: Tensor

    def __init__(self, size: tuple[int, int], spacing: float, channels: int) -> None:
        super().__init__()
        self.channels = channels
        rows, columns = (torch.from_numpy(spline_weights(np.arange(n), spacing)[1]) for n in size)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, key: Tensor) -> Tensor:
        """The fields of keys (B,) of `Draws.key`."""
        knots = normal_field(key, (self.channels, self.rows.shape[1], self.columns.shape[1]))
        return self.rows @ knots @ self.columns.T / SPLINE_GAIN


def spline_weights(places: npt.NDArray[Any], cell: float) -> tuple[int, npt.NDArray[np.float32]]:
    """The first knot near the pixels (n,), and the weights (n, knots) of it and the next, a cell apart."""
    knot, f = np.divmod((places + 0.5) / cell, 1)
    knot = knot.astype(np.int64)
    first, last = (int(knot[0]), int(knot[-1])) if places.size else (0, 0)
    weights = np.zeros((places.size, last - first + 4), np.float32)
    for offset, piece in enumerate(((1 - f) ** 3, 3 * f**3 - 6 * f**2 + 4, 1 + 3 * f * (1 + f - f * f), f**3)):
        weights[np.arange(places.size), knot - first + offset] = piece / 6
    return first, weights
