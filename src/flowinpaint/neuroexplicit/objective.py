"""Training objective of the neuroexplicit networks: the error of the filled field, and of its expected error."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.networks.output import LARGEST_LOGARITHM, Filled, mean_and_scale
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.training.batches import Task
from flowinpaint.training.objectives import FIELD_LOSSES, Objective

LARGEST_ERROR = 100.0
"""Errors are clipped at this many mean deviations of the known vectors when the expected error is trained."""


class Supervised(Objective):
    """`optimiser.loss` of the field, plus `optimiser.error_weight` times the loss of the expected error."""

    def apply(self, model: Neuroexplicit, task: Task) -> Filled:
        """The filled field and its expected error."""
        return model.fill(task.batch.image, task.given, task.mask)

    def loss(self, output: Filled, task: Task) -> Tensor:
        """The configured loss."""
        options = self.config.optimiser
        total = FIELD_LOSSES[options.loss](output.field, task.batch.flow, task.batch.valid)
        return total if output.log_error is None else total + options.error_weight * expected_error_loss(output, task)


def expected_error_loss(filled: Filled, task: Task) -> Tensor:
    """The mean of r e^-ς + ς over valid unknown pixels, where r is the error and ς its predicted logarithm.

    This is the negative log-likelihood of exponentially distributed errors. For any distribution it is minimal if e^ς
    is the mean error of similar pixels. The field itself gets no gradient.
    """
    assert filled.log_error is not None
    _, scale = mean_and_scale(task.given, task.mask)
    error = torch.linalg.vector_norm(filled.field.detach() - task.batch.flow, dim=1, keepdim=True)
    r = (error / scale.clamp(min=torch.finfo(scale.dtype).tiny)).clamp(max=LARGEST_ERROR)
    log_error = filled.log_error.clamp(-LARGEST_LOGARITHM, LARGEST_LOGARITHM)
    counted = task.batch.valid * (1 - task.mask) * (scale > 0)
    likelihood: Tensor = (r * torch.exp(-log_error) + log_error) * counted
    return likelihood.sum() / counted.sum().clamp(min=1)
