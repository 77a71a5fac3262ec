"""Training objective of probabilistic diffusion: denoising of true fields, without masks."""

from __future__ import annotations

from torch import Tensor

from flowinpaint.baselines.pd.module import PD
from flowinpaint.counter_rng import Draws
from flowinpaint.training.batches import NOISE_SEED, Task
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.distributed import World
from flowinpaint.training.objectives import Objective


class Denoising(Objective):
    """The denoising loss of both U-Nets; the noise is a function of the sample numbers."""

    def __init__(self, config: TrainingConfig, world: World) -> None:
        self._seed = config.data.seed + NOISE_SEED

    def apply(self, model: PD, task: Task) -> Tensor:
        """The loss itself."""
        image, truth, valid = task.batch
        return model.denoising_loss(image, task.given, task.mask, truth, valid, Draws(task.samples, self._seed))

    def loss(self, output: Tensor, task: Task) -> Tensor:
        """The output of `apply`."""
        return output
