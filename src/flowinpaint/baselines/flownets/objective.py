"""Training objective of FlowNetS: endpoint errors of the predictions at all scales."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.baselines.flownets.module import FlowNetS
from flowinpaint.networks.network import repeated, to_pairs
from flowinpaint.training.batches import Task
from flowinpaint.training.objectives import Objective, epe_loss

SCALE_WEIGHTS = (0.32, 0.08, 0.04, 0.02, 0.01)
"""Weights of the predictions, fine to coarse."""


class DeeplySupervised(Objective):
    """The weighted loss of the predictions at all scales."""

    def apply(self, model: FlowNetS, task: Task) -> list[Tensor]:
        """The predictions, fine to coarse."""
        return model.predictions(task.batch.image, task.given, task.mask)

    def loss(self, output: list[Tensor], task: Task) -> Tensor:
        """FlowNet's deep supervision: weighted endpoint errors of predictions (B·P, 2, h, w), each half the one before.

        The truth of a coarse pixel is the mean of its valid fine pixels. The finest prediction has the largest weight,
        as in the authors' code (in the paper's text it is the coarsest).
        """
        truth, valid = to_pairs(task.batch.flow), repeated(task.batch.valid, task.batch.flow.shape[1])
        H, W = output[0].shape[-2:]
        room = (0, W - truth.shape[-1], 0, H - truth.shape[-2])
        shares = F.pad(valid.to(truth.dtype), room)
        sums = F.pad(truth, room) * shares
        total = torch.zeros((), device=truth.device)
        for k, (prediction, weight) in enumerate(zip(output, SCALE_WEIGHTS, strict=True)):
            if k:
                sums, shares = F.avg_pool2d(sums, 2), F.avg_pool2d(shares, 2)
            mean = sums / shares.clamp(min=torch.finfo(shares.dtype).tiny)
            total = total + weight * epe_loss(prediction.float(), mean, (shares > 0).to(truth.dtype))
        return total
