"""What training asks of each kind of network: what it computes of a task, and what is made small of that."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from flowinpaint.baselines.flownets.module import FlowNetS
from flowinpaint.baselines.wgain.module import WGAIN, noise_for
from flowinpaint.counter_rng import Draws
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.training.adversary import NOISE_SEED, Adversary
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.distributed import World
from flowinpaint.training.losses import loss_of, multiscale_loss
from flowinpaint.training.task import Task


class Objective:
    """A strategy of the training step. Nothing in it may wait for the device."""

    @abstractmethod
    def apply(self, model: Any, task: Task) -> Any:
        """What the network makes of a task, with gradients; called under autocast."""

    @abstractmethod
    def loss(self, output: Any, task: Task) -> Tensor:
        """What is made small, (), of that; whatever else the objective trains takes its own step here."""

    def set_rate(self, rate: float) -> None:
        """Take the learning rate of the step to come, for what else is trained."""

    def compile_parts(self) -> None:
        """Compile, in place, what a step calls."""

    def state(self) -> dict[str, Tensor]:
        """What it has learned itself, by name; the tensors themselves, not copies."""
        return {}


class Supervised(Objective):
    """The error of a filled field: for the neuroexplicit networks."""

    def __init__(self, config: TrainingConfig) -> None:
        self._loss = loss_of(config.optimiser)

    def apply(self, model: Neuroexplicit, task: Task) -> Filled:
        """The dense field."""
        return model.fill(task.batch.image, task.given, task.mask)

    def loss(self, output: Filled, task: Task) -> Tensor:
        """The configuration's loss."""
        return self._loss(output, task)

    def compile_parts(self) -> None:
        """Compile, in place, the loss."""
        self._loss = torch.compile(self._loss, dynamic=False)


class DeeplySupervised(Objective):
    """The errors of the predictions of all scales: for FlowNetS."""

    def __init__(self) -> None:
        self._loss = multiscale_loss

    def apply(self, model: FlowNetS, task: Task) -> list[Tensor]:
        """The predictions, from fine to coarse."""
        return model.predictions(task.batch.image, task.given, task.mask)

    def loss(self, output: list[Tensor], task: Task) -> Tensor:
        """Their errors, weighted."""
        return self._loss(output, task)

    def compile_parts(self) -> None:
        """Compile, in place, the loss."""
        self._loss = torch.compile(self._loss, dynamic=False)


class Adversarial(Objective):
    """The error, and what a critic thinks, which learns beside the network: for WGAIN."""

    def __init__(self, config: TrainingConfig, world: World) -> None:
        self.adversary = Adversary(config, world)
        self._seed = config.data.seed + NOISE_SEED

    def apply(self, model: WGAIN, task: Task) -> Tensor:
        """What the generator makes of new noise."""
        noise = noise_for(task.given, Draws(task.samples, self._seed))
        return model.generate(task.batch.image, task.given, task.mask, noise)

    def loss(self, output: Tensor, task: Task) -> Tensor:
        """The critic takes a step; then what it thinks of the field, and the endpoint error, count alike."""
        self.adversary.step(output.detach().float(), task)
        return self.adversary.loss(output.float(), task)

    def set_rate(self, rate: float) -> None:
        """The critic learns as fast as the generator."""
        self.adversary.optimiser.rate.fill_(rate)

    def compile_parts(self) -> None:
        """Compile, in place, the critic's optimiser; not the critic, whose slope has a slope of its own."""
        self.adversary.optimiser.compile_parts()

    def state(self) -> dict[str, Tensor]:
        """The critic and its optimiser."""
        return self.adversary.state()


class Denoising(Objective):
    """How well noise is taken off a field: for probabilistic diffusion, which learns without masks."""

    def __init__(self, config: TrainingConfig) -> None:
        self._seed = config.data.seed + NOISE_SEED

    def apply(self, model: Any, task: Task) -> Tensor:
        """The loss itself, of a `PD`; its noise is a function of the sample numbers."""
        image, truth, valid = task.batch
        draws = Draws(task.samples, self._seed)
        loss: Tensor = model.denoising_loss(image, task.given, task.mask, truth, valid, draws)
        return loss

    def loss(self, output: Tensor, task: Task) -> Tensor:
        """What `apply` has computed."""
        return output


def objective_of(model: Network, config: TrainingConfig, world: World) -> Objective:
    """The objective of a network."""
    match model:
        case Neuroexplicit():
            return Supervised(config)
        case FlowNetS():
            return DeeplySupervised()
        case WGAIN():
            return Adversarial(config, world)
    return Denoising(config)
