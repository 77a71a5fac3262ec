"""Smooth random fields: normal numbers at knots, joined by cubic B-splines."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flowinpaint.draws import Draws

_GAIN = 151 / 315
"""The mean sum of squares of a cubic B-spline's weights, by which a dimension lessens the variance."""


class SmoothNoise(nn.Module):
    """Fields (B, C, H, W) of mean 0 and deviation 1 that vary over a number of pixels, the spacing of the knots."""

    rows: Tensor
    columns: Tensor

    def __init__(self, size: tuple[int, int], spacing: float) -> None:
        super().__init__()
        self.register_buffer("rows", _spline_weights(size[0], spacing), persistent=False)
        self.register_buffer("columns", _spline_weights(size[1], spacing), persistent=False)

    def forward(self, draws: Draws, channels: int) -> Tensor:
        """Fields (B, channels, H, W)."""
        knots = draws.normal((channels, self.rows.shape[1], self.columns.shape[1]))
        return self.rows @ knots @ self.columns.T / _GAIN


def _spline_weights(length: int, spacing: float) -> Tensor:
    """Weights (length, knots) of the four knots around each pixel."""
    place = (torch.arange(length, dtype=torch.float64) + 0.5) / spacing
    first = place.floor().long()
    t = place - first
    values = torch.stack(
        [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3],
        1,
    )
    weights = torch.zeros(length, int(first[-1]) + 4, dtype=torch.float64)
    weights.scatter_(1, first[:, None] + torch.arange(4), values / 6)
    return weights.float()
