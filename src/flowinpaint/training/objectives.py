"""Training objectives (the output of a network for a task, and its loss), and the losses of a field."""

from __future__ import annotations

from abc import abstractmethod
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from flowinpaint.networks.registry import registered
from flowinpaint.training.batches import Task
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.distributed import World

LOSS_EPSILON = 1e-6
"""Added to the squared error under the root, whose slope is infinite at 0."""
LOG_FLOOR = 0.02
"""Pixels added to the error under the logarithm: smaller errors hardly matter."""


class Objective:
    """Base class of the training objectives that models register. No method may synchronise with the device."""

    def __init__(self, config: TrainingConfig, world: World) -> None:
        self.config, self.world = config, world

    @abstractmethod
    def apply(self, model: Any, task: Task) -> Any:
        """The network's output for a task, with gradients; called under autocast."""

    @abstractmethod
    def loss(self, output: Any, task: Task) -> Tensor:
        """The loss () of that output; other modules that the objective trains take their step here."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of other modules for the next step."""

    def compile_parts(self) -> None:
        """Compile the loss, in place."""
        self.loss = torch.compile(self.loss, dynamic=False)  # type: ignore[method-assign]

    def state(self) -> dict[str, Tensor]:
        """Tensors of other modules by name; the tensors themselves, not copies."""
        return {}


def objective_of(config: TrainingConfig, world: World) -> Objective:
    """The objective that the model of a configuration has registered."""
    module, _, name = registered(config.model.kind).objective.partition(":")
    objective: Objective = getattr(import_module(module), name)(config, world)
    return objective


def epe_loss(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The endpoint error of (B, C, H, W), averaged over each sample's valid pixels (B, 1, H, W), then over samples."""
    return _sample_errors(prediction, truth, valid).mean()


def log_loss(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The mean over samples of the logarithm of the endpoint error over each one's valid pixels.

    Its gradient is that of the relative error: samples with large motion or few known pixels do not dominate.
    """
    return torch.log(_sample_errors(prediction, truth, valid) + LOG_FLOOR).mean()


FIELD_LOSSES = {"epe": epe_loss, "log": log_loss}
"""Losses by their name in a configuration."""


def _sample_errors(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The mean endpoint error (B,) of (B, C, H, W) over each sample's valid pixels (B, 1, H, W)."""
    squared = (prediction - truth).square().sum(1, keepdim=True)
    error = torch.sqrt(squared + LOSS_EPSILON) * valid
    return error.sum((1, 2, 3)) / valid.sum((1, 2, 3)).clamp(min=1)
