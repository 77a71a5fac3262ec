"""What training makes small: the error of the field, and how badly that error was foreseen."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowinpaint.neural.filled import LARGEST_LOGARITHM, Filled, error_scale
from flowinpaint.training.config import OptimiserConfig
from flowinpaint.training.task import Task

LOSS_EPSILON = 1e-6
"""Beside the squared error under the root, whose slope is infinite at 0."""
LOG_FLOOR = 0.02
"""Pixels beside the error under the logarithm: below, a sample's error hardly matters."""
LARGEST_ERROR = 100.0
"""Errors beyond this many deviations of the known vectors count as this many where errors are foreseen."""

Loss = Callable[[Filled, Task], Tensor]
"""Of what a model makes of a task."""


def loss_of(config: OptimiserConfig) -> Loss:
    """The loss of a configuration."""
    field_loss = {"epe": epe_loss, "log": log_loss}[config.loss]

    def loss(filled: Filled, task: Task) -> Tensor:
        total = field_loss(filled.field, task.batch.flow, task.batch.valid)
        return total if filled.log_error is None else total + config.error_weight * foresight_loss(filled, task)

    return loss


def epe_loss(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The endpoint error of (B, C, H, W) over each sample's valid pixels (B, 1, H, W), then over samples."""
    return _sample_errors(prediction, truth, valid).mean()


def log_loss(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The mean over samples of the logarithm of the endpoint error over each one's valid pixels.

    Its gradient is that of the relative error: a sample with much motion or few known pixels does not outweigh others.
    """
    return torch.log(_sample_errors(prediction, truth, valid) + LOG_FLOOR).mean()


def foresight_loss(filled: Filled, task: Task) -> Tensor:
    """The mean of r e^-ς + ς over what is valid and not given: r is the error, ς the logarithm that was foreseen.

    This is the likelihood of exponentially distributed errors. It is least where e^ς is the mean error of pixels that
    look alike, however errors are distributed. The field itself does not learn from it.
    """
    assert filled.log_error is not None
    scale = error_scale(task.given, task.mask)
    error = torch.linalg.vector_norm(filled.field.detach() - task.batch.flow, dim=1, keepdim=True)
    r = (error / scale.clamp(min=torch.finfo(scale.dtype).tiny)).clamp(max=LARGEST_ERROR)
    log_error = filled.log_error.clamp(-LARGEST_LOGARITHM, LARGEST_LOGARITHM)
    counted = task.batch.valid * (1 - task.mask) * (scale > 0)
    likelihood: Tensor = (r * torch.exp(-log_error) + log_error) * counted
    return likelihood.sum() / counted.sum().clamp(min=1)


def _sample_errors(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The mean endpoint error (B,) of (B, C, H, W) over each sample's valid pixels (B, 1, H, W)."""
    squared = (prediction - truth).square().sum(1, keepdim=True)
    error = torch.sqrt(squared + LOSS_EPSILON) * valid
    return error.sum((1, 2, 3)) / valid.sum((1, 2, 3)).clamp(min=1)
