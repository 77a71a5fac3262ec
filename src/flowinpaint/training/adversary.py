"""The critic that WGAIN is trained against: a Wasserstein GAN with gradient penalty (Gulrajani et al., 2017)."""

from __future__ import annotations

import copy
import dataclasses
import math

import torch
from torch import Tensor

from flowinpaint.baselines.wgain.module import Critic, WGAINConfig
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.distributed import World
from flowinpaint.training.losses import epe_loss
from flowinpaint.training.optimiser import Optimiser
from flowinpaint.training.tally import Counters
from flowinpaint.training.task import Task

NOISE_SEED = 104_729
"""Added to the seed: noise must not repeat the numbers of scenes and masks."""
PENALTY = 10.0
"""Weight of the gradient penalty."""


class Adversary:
    """A critic for pictures of one size, and the optimiser that advances it.

    How far fields are from each other is the root of their mean squared difference, in pixels, and the critic's slope
    is held at 1 by that measure: its judgement is then in pixels, as the endpoint error is. By the plain norm of what
    it sees it would weigh several times as much as the error, more in larger pictures, and with few steps of training
    the network would learn to please a critic that has not learned anything yet.
    """

    def __init__(self, config: TrainingConfig, world: World) -> None:
        assert isinstance(config.model, WGAINConfig)
        self._scale, self._world = config.model.scale, world
        self._options, self._seed = config.optimiser, config.data.seed + NOISE_SEED
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.data.seed + 1)
            try:
                self.critic = Critic(config.data.size).to(world.device)
            except InputError as error:
                raise InputError(f"data.{error}") from error
        adam = dataclasses.replace(config.optimiser, kernels="adam")
        self.optimiser = Optimiser(self.critic, copy.deepcopy(self.critic), adam)
        self._counters = Counters(world.device)

    def step(self, made: Tensor, task: Task) -> None:
        """Teach the critic to tell a made field (B, 2, H, W), without gradient, from the true one."""
        self.critic.requires_grad_(True)
        real, fake = task.batch.flow / self._scale, made / self._scale
        share = Draws(task.samples, self._seed + 1).uniform((1, 1, 1))
        between = torch.lerp(real, fake, share).requires_grad_(True)
        self.optimiser.forget_gradients()
        image, mask = task.batch.image, task.mask
        verdict = self._judged(image, fake, mask).mean() - self._judged(image, real, mask).mean()
        slope = torch.autograd.grad(self._judged(image, between, mask).sum(), between, create_graph=True)[0]
        steepness = slope.float().flatten(1).norm(dim=1) * (math.sqrt(slope[0].numel()) / self._scale)
        loss = verdict + PENALTY * (steepness - 1).square().mean()
        loss.backward()
        with torch.no_grad():
            norm = self.optimiser.gather_gradients(self._world.mean)
            decision = self._counters.judge(self._world.mean(loss.detach()), norm, task.samples[0], self._options)
            self.optimiser.step(decision)

    def loss(self, made: Tensor, task: Task) -> Tensor:
        """What the generator makes small: the critic's doubts, and the endpoint error with weight 1."""
        self.critic.requires_grad_(False)
        doubts = -self._judged(task.batch.image, made / self._scale, task.mask).mean()
        return doubts + epe_loss(made, task.batch.flow, task.batch.valid)

    def state(self) -> dict[str, Tensor]:
        """The critic, its optimiser and its counts, by name."""
        tensors = self.optimiser.state() | self._counters.state()
        return {f"critic.{name}": value for name, value in tensors.items()}

    def _judged(self, image: Tensor, field: Tensor, mask: Tensor) -> Tensor:
        verdicts: Tensor = self.critic(image, field, mask)
        return verdicts.float()
