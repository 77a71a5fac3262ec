"""Objectives: what training computes with a network on a task, and the loss it minimises."""

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
        """Compile, in place, the loss."""
        self.loss = torch.compile(self.loss, dynamic=False)  # type: ignore[method-assign]

    def state(self) -> dict[str, Tensor]:
        """Tensors of other modules by name; the tensors themselves, not copies."""
        return {}


def objective_of(config: TrainingConfig, world: World) -> Objective:
    """The objective that the model of a configuration has registered."""
    module, _, name = registered(config.model.kind).objective.partition(":")
    objective: Objective = getattr(import_module(module), name)(config, world)
    return objective
