"""What training makes small: the error of the field, and how badly that error was foreseen."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.networks.channel_pairs import repeated, to_pairs
from flowinpaint.networks.output import LARGEST_LOGARITHM, Filled, error_scale
from flowinpaint.training.config import OptimiserConfig
from flowinpaint.training.task import Task

LOSS_EPSILON = 1e-6
"""Beside the squared error under the root, whose slope is infinite at 0."""
LOG_FLOOR = 0.02
"""Pixels beside the error under the logarithm: below, a sample's error hardly matters."""
LARGEST_ERROR = 100.0
"""Errors beyond this many deviations of the known vectors count as this many where errors are foreseen."""

SCALE_WEIGHTS = (0.32, 0.08, 0.04, 0.02, 0.01)
"""Of the predictions of FlowNetS, from fine to coarse."""

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


def multiscale_loss(predictions: list[Tensor], task: Task) -> Tensor:
    """FlowNet's deep supervision: endpoint errors of predictions (B·P, 2, h, w) of ever half the size, weighted.

    The truth of a coarser pixel is the mean of the valid ones in it. The finest has the largest weight, as in the
    authors' code (in the paper's text it is the coarsest).
    """
    truth, valid = to_pairs(task.batch.flow), repeated(task.batch.valid, task.batch.flow.shape[1])
    H, W = predictions[0].shape[-2:]
    room = (0, W - truth.shape[-1], 0, H - truth.shape[-2])
    shares = F.pad(valid.to(truth.dtype), room)
    sums = F.pad(truth, room) * shares
    total = torch.zeros((), device=truth.device)
    for k, (prediction, weight) in enumerate(zip(predictions, SCALE_WEIGHTS, strict=True)):
        if k:
            sums, shares = F.avg_pool2d(sums, 2), F.avg_pool2d(shares, 2)
        mean = sums / shares.clamp(min=torch.finfo(shares.dtype).tiny)
        total = total + weight * epe_loss(prediction.float(), mean, (shares > 0).to(truth.dtype))
    return total


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
