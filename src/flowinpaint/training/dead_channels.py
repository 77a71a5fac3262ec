"""Re-initialisation of dead channels, so that a network keeps its width (after Sokar et al., 2023).

A channel whose ReLU output is always zero has no gradient and stays zero. Muon takes large steps even if gradients are
small and mostly noise, and can kill a whole layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from flowinpaint.neuroexplicit.dtm import new_kernel
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.training.batches import Task
from flowinpaint.training.config import DataConfig

DEAD = 0.01
"""A channel is dead if its activity is at most this share of its layer's mean."""
PIXELS_LOOKED_AT, MOST_BATCHES = 2_000_000, 32
"""Amount of data to measure activity on: a selective channel of a coarse layer may be silent on a few small crops."""
REVIVED_UNTIL = 0.5
"""The share of a run in which channels are revived; later ones would have no time to learn."""


def batches_to_look_at(data: DataConfig) -> int:
    """Number of joint batches on which a channel must be inactive to be dead."""
    return min(MOST_BATCHES, math.ceil(PIXELS_LOOKED_AT / (data.batch * data.size[0] * data.size[1])))


@torch.no_grad()
def activities(model: Neuroexplicit, task: Task) -> dict[str, Tensor]:
    """Mean output (channels,) of each hidden layer's ReLUs on a task, by layer."""
    found = dict[str, Tensor]()

    def look(name: str, y: Tensor) -> None:
        found[name] = torch.relu(y).mean((0, 2, 3))

    backend, model.backend, model.dtm.watch = model.backend, "torch", look
    try:
        model.fill(task.batch.image, task.given, task.mask)
    finally:
        model.backend, model.dtm.watch = backend, None
    return found


@torch.no_grad()
def revive(models: Sequence[Neuroexplicit], activity: dict[str, Tensor], seed: int) -> int:
    """Give channels that are dead by their `activities` new kernels, the same in all models; return their number.

    The kernels that read such a channel are set to zero, so predictions do not change at first. A new kernel sums to
    zero, so that the common mean of its inputs, which are ReLU outputs, does not deactivate the channel again.
    """
    generator, count = torch.Generator().manual_seed(seed), 0
    for name, readers in models[0].dtm.readers().items():
        mean = activity[name]
        dead = (mean <= DEAD * mean.mean()).nonzero()[:, 0]
        if not len(dead):
            continue
        count += len(dead)
        alike = models[0].dtm.get_submodule(name)
        drawn = rows_of(alike, new_kernel(alike, generator))
        drawn = (drawn - drawn.mean((1, 2, 3), keepdim=True)).to(dead.device)
        for model in models:
            layer = model.dtm.get_submodule(name)
            rows_of(layer, layer.get_parameter("weight"))[dead] = drawn[dead]
            layer.get_parameter("bias")[dead] = 0
            for reader, start in readers:
                layer = model.dtm.get_submodule(reader)
                rows_of(layer, layer.get_parameter("weight"))[:, start + dead] = 0
    return count


def rows_of(layer: nn.Module, kernel: Tensor) -> Tensor:
    """A view of a layer's kernel: a row for each output channel, a column for each input channel."""
    return kernel.transpose(0, 1) if isinstance(layer, nn.ConvTranspose2d) else kernel
