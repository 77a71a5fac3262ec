"""CUDA backend with the gradient for the model's weights, but not for image and field.

The network computes in float16, as without gradient: the rounding of bfloat16 would change the gradient by several per
cent. Gradients are bfloat16, because they need its range.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.neuroexplicit.backends.cuda import CudaBackend, cut_to_levels
from flowinpaint.neuroexplicit.edge_weights import fused_operator_of, levels_of_maps
from flowinpaint.neuroexplicit.kernels.dtm_training import TrainableDtm
from flowinpaint.neuroexplicit.method import Operator

if TYPE_CHECKING:
    from flowinpaint.neuroexplicit.model import Neuroexplicit


class CudaTrainingBackend(CudaBackend):
    """A model on CUDA that is being trained."""

    def __init__(
        self, model: Neuroexplicit, dtype: torch.dtype = torch.float16, gradients: torch.dtype = torch.bfloat16
    ) -> None:
        self._model, self._gradients = model, gradients
        super().__init__(model, dtype)

    def repack(self) -> None:
        """Do nothing: the weights are packed in each run."""

    def refine(self, u: Tensor, data: DataTerm) -> Tensor:
        """The initial field of a level; without gradient the coarser field itself, as in `CudaBackend`."""
        return pyramid.refine(u, data) if torch.is_grad_enabled() else u

    def edge_weights(self, maps: list[Tensor], image: Tensor, levels: int) -> Iterable[Operator]:
        """The process of each level."""
        inputs = levels_of_maps(
            cut_to_levels(maps, (image.shape[-2], image.shape[-1])), image, self._model.lam, levels, self.config
        )
        for level in inputs:
            yield Operator(*fused_operator_of(*level, self.config))

    def diffuse(self, u: Tensor, data: DataTerm, operator: Operator, steps: int) -> Tensor:
        """One FSI cycle, differentiable with respect to the edge weights."""
        weights = operator.weights
        if weights is None:
            return super().diffuse(u, data, operator, steps)
        return inpainting_cycle(u, data, weights, steps, self._model.segment)

    def _pack(self, model: Neuroexplicit) -> TrainableDtm:
        return TrainableDtm(model.dtm, self._dtype, self._gradients)
