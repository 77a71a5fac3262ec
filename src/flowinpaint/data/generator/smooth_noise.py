"""Smooth random fields: normal numbers at knots, joined by cubic B-splines."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from flowinpaint.counter_rng import normal_field
from flowinpaint.data.spline import spline_weights

SPLINE_GAIN = 151 / 315
"""The mean sum of squares of a cubic B-spline's weights, by which a dimension lessens the variance."""


class SmoothNoise(nn.Module):
    """Fields (B, C, H, W) of mean 0 and deviation 1 that vary over a number of pixels, the spacing of the knots."""

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
