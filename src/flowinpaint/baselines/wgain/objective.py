"""Training objective of WGAIN: endpoint error and a Wasserstein critic with gradient penalty."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.baselines.wgain.config import WGAINConfig
from flowinpaint.baselines.wgain.module import WGAIN
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.networks.network import PAIR, by_pixel, normalised_colours
from flowinpaint.training.batches import NOISE_SEED, Task
from flowinpaint.training.config import TrainingConfig, of_table
from flowinpaint.training.distributed import World
from flowinpaint.training.objectives import Objective, epe_loss
from flowinpaint.training.optimiser import Optimiser

PENALTY = 10.0
"""Weight of the gradient penalty."""
SLOPE = 0.3
"""Slope of the critic's leaky ReLU below zero."""
KERNEL = 5
WIDTHS = (64, 128, 256, 256, 512)
FEWEST = 2
"""Minimum rows and columns of each layer's output: instance norm of a single number is undefined."""


class Adversarial(Objective):
    """The endpoint error and the critic's score, with equal weight; the critic is trained in the same step.

    The critic is that of a Wasserstein GAN with gradient penalty (Gulrajani et al., 2017).

    The penalty holds the critic's slope at 1, with the root mean square difference in pixels as the distance of two
    fields. Its score is then in pixels, like the endpoint error. With the plain norm of its input the score would weigh
    several times as much as the error, more in larger images, and a short training would mostly follow an untrained
    critic.
    """

    def __init__(self, config: TrainingConfig, world: World) -> None:
        super().__init__(config, world)
        assert isinstance(config.model, WGAINConfig)
        self._scale, self._seed = config.model.scale, config.data.seed + NOISE_SEED
        with torch.random.fork_rng(devices=[]), of_table("data"):
            torch.manual_seed(config.data.seed + 1)
            self.critic = Critic(config.data.size).to(world.device)
        self._optimiser = Optimiser(self.critic, None, dataclasses.replace(config.optimiser, kernels="adam"))

    def apply(self, model: WGAIN, task: Task) -> Tensor:
        """The generator's field for new noise."""
        noise = Draws(task.samples, self._seed).normal(tuple(task.given.shape[1:]))
        return model.generate(task.batch.image, task.given, task.mask, noise)

    def loss(self, output: Tensor, task: Task) -> Tensor:
        """Train the critic for one step; then the generator's loss."""
        self.train_critic(output.detach().float(), task)
        return self.generator_loss(output.float(), task)

    def train_critic(self, made: Tensor, task: Task) -> None:
        """Train the critic to distinguish a generated field (B, 2, H, W), without gradient, from the true one."""
        self.critic.requires_grad_(True)
        real, fake = task.batch.flow / self._scale, made / self._scale
        share = Draws(task.samples, self._seed + 1).uniform((1, 1, 1))
        between = torch.lerp(real, fake, share).requires_grad_(True)
        self._optimiser.forget_gradients()
        difference = self._score(fake, task).mean() - self._score(real, task).mean()
        slope = torch.autograd.grad(self._score(between, task).sum(), between, create_graph=True)[0]
        steepness = slope.float().flatten(1).norm(dim=1) * (math.sqrt(slope[0].numel()) / self._scale)
        loss = difference + PENALTY * (steepness - 1).square().mean()
        loss.backward()
        with torch.no_grad():
            self._optimiser.advance(self.world.mean(loss.detach()), task.samples[0], join=self.world.mean)

    def generator_loss(self, made: Tensor, task: Task) -> Tensor:
        """The negative score plus the endpoint error of a generated field (B, 2, H, W)."""
        self.critic.requires_grad_(False)
        return epe_loss(made, task.batch.flow, task.batch.valid) - self._score(made / self._scale, task).mean()

    def set_rate(self, rate: float) -> None:
        """The critic has the generator's learning rate."""
        self._optimiser.rate.fill_(rate)

    def compile_parts(self) -> None:
        """Compile the critic's optimiser, in place.

        The critic is not compiled: its gradient penalty needs double backward, which torch.compile does not support.
        """
        self._optimiser.compile_parts()

    def state(self) -> dict[str, Tensor]:
        """The critic and its optimiser, by name."""
        return {f"critic.{name}": value for name, value in self._optimiser.state().items()}

    def _score(self, field: Tensor, task: Task) -> Tensor:
        score: Tensor = self.critic(task.batch.image, field, task.mask)
        return score.float()


class Critic(nn.Module):
    """Score (B,) of how true a field looks: image (B, 3, H, W), field (B, 2, H, W), mask (B, 1, H, W).

    For images of one size; at 384 x 384 it has 5,992,705 parameters, and for small images fewer layers. Instance norm,
    since a gradient penalty requires samples to be independent.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        sides, widths = list(size), [3 + PAIR + 1]
        for outputs in WIDTHS:
            if min(halved := [(side - KERNEL) // 2 + 1 for side in sides]) < FEWEST:
                break
            sides = halved
            widths.append(outputs)
        if len(widths) == 1:
            raise InputError(f"size must have sides of at least {KERNEL + 2} for a critic, got {list(size)}")
        pairs = list(pairwise(widths))
        self.layers = nn.ModuleList(nn.Conv2d(i, o, KERNEL, stride=2, bias=False) for i, o in pairs)
        self.norms = nn.ModuleList(nn.InstanceNorm2d(o, affine=True) for _, o in pairs)
        self.score = nn.Linear(widths[-1] * math.prod(sides), 1)

    def forward(self, image: Tensor, field: Tensor, mask: Tensor) -> Tensor:
        """`field` is in the generator's units: divided by its scale."""
        x = by_pixel(torch.cat([normalised_colours(image.to(self.score.weight.dtype)), field, mask], 1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.leaky_relu(norm(layer(x)), SLOPE)
        score: Tensor = self.score(x.flatten(1))[:, 0]
        return score
