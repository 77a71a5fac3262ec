"""Losses of a field: the endpoint error, and its logarithm."""

from __future__ import annotations

import torch
from torch import Tensor

LOSS_EPSILON = 1e-6
"""Added to the squared error under the root, whose slope is infinite at 0."""
LOG_FLOOR = 0.02
"""Pixels added to the error under the logarithm: smaller errors hardly matter."""


def epe_loss(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The endpoint error of (B, C, H, W), averaged over each sample's valid pixels (B, 1, H, W), then over samples."""
    return _sample_errors(prediction, truth, valid).mean()


def log_loss(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The mean over samples of the logarithm of the endpoint error over each one's valid pixels.

    Its gradient is that of the relative error: samples with much motion or few known pixels do not outweigh others.
    """
    return torch.log(_sample_errors(prediction, truth, valid) + LOG_FLOOR).mean()


FIELD_LOSSES = {"epe": epe_loss, "log": log_loss}
"""Losses by their name in a configuration."""


def _sample_errors(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The mean endpoint error (B,) of (B, C, H, W) over each sample's valid pixels (B, 1, H, W)."""
    squared = (prediction - truth).square().sum(1, keepdim=True)
    error = torch.sqrt(squared + LOSS_EPSILON) * valid
    return error.sum((1, 2, 3)) / valid.sum((1, 2, 3)).clamp(min=1)
