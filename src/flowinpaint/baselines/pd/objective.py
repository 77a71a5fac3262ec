"""Training objective of probabilistic diffusion: denoising of true fields, without masks."""

from __future__ import annotations

from torch import Tensor

from flowinpaint.baselines.pd.module import PD
from flowinpaint.counter_rng import Draws
from flowinpaint.training.batches import NOISE_SEED, Task
from flowinpaint.training.objectives import Objective


class Denoising(Objective):
    """The denoising loss of both U-Nets; the noise is a function of the sample numbers."""

    def apply(self, model: PD, task: Task) -> Tensor:
        """The loss itself."""
        image, truth, valid = task.batch
        draws = Draws(task.samples, self.config.data.seed + NOISE_SEED)
        return model.denoising_loss(image, task.given, task.mask, truth, valid, draws)

    def loss(self, output: Tensor, task: Task) -> Tensor:
        """The output of `apply`."""
        return output

    def compile_parts(self) -> None:
        """Nothing to compile."""
