"""PyTorch backend: differentiable with respect to all inputs, on any device, in the types of model and field.

The steps are those of `method.Reference`, except the FSI cycle, whose own adjoint keeps one field per step, and the
edge weights, which a fused kernel computes on CUDA.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.fsi import fsi_cycle_of
from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.kernels import FSI, kernels_for
from flowinpaint.diffusion.stencil import isotropic_weights
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.config import levels_of
from flowinpaint.neuroexplicit.diffusion_block import BLOCK_TIME_STEP, metric_of
from flowinpaint.neuroexplicit.edge_weights import fused_operator_of, levels_of_maps
from flowinpaint.neuroexplicit.method import Operator, Reference, fill
from flowinpaint.neuroexplicit.reporting import reported
from flowinpaint.progress import Tell
from flowinpaint.result import ProgressCallback

if TYPE_CHECKING:
    from flowinpaint.neuroexplicit.model import Neuroexplicit


class TorchBackend(Reference):
    """The network runs under the caller's autocast, everything else in the type of the field."""

    def __init__(self, model: Neuroexplicit) -> None:
        super().__init__(model.dtm, model.lam, model.config)
        self._model = model
        self._autocast: torch.autocast | None = None

    def __call__(
        self, image: Tensor, data: DataTerm, start: Tensor | None = None, progress: ProgressCallback | None = None
    ) -> Filled:
        """Fill fields f (B, C, H, W) of images (B, 3, H, W)."""
        kind = data.f.device.type
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        self._autocast = torch.autocast(kind, dtype, enabled)
        levels = levels_of(data.f.shape[-2], data.f.shape[-1], self.config)
        with torch.autocast(kind, enabled=False):
            return fill(image.to(data.f.dtype), data, levels, self.config, reported(self, progress), start)

    def network(self, image: Tensor, guess: Tensor | None, data: DataTerm, tell: Tell | None = None) -> list[Tensor]:
        """The maps of the network, under the caller's autocast."""
        assert self._autocast is not None
        with self._autocast:
            return super().network(image, guess, data)

    def edge_weights(self, maps: list[Tensor], image: Tensor, levels: int) -> Iterable[Operator]:
        """As in the reference; with learned kernels (+W) their operators, one per step."""
        for k, (z, level, lam) in enumerate(levels_of_maps(maps, image, self.lam, levels, self.config)):
            if not self.config.learn_kernels:
                yield Operator(*fused_operator_of(z, level, lam, self.config))
                continue
            blocks, metric = self._model.all_blocks()[k], metric_of(*self._model.process(z, level, k))
            steps = range(self.config.steps[k])
            yield Operator([partial(blocks.scaled, step, metric) for step in steps], BLOCK_TIME_STEP)

    def diffuse(self, u: Tensor, data: DataTerm, operator: Operator, steps: int) -> Tensor:
        """One FSI cycle, by the function with its own adjoint."""
        weights, tau = operator
        if isinstance(weights, list):
            return fsi_cycle_of(weights, u, data, tau)
        if weights is None:
            needs_gradient = torch.is_grad_enabled() and (u.requires_grad or data.f.requires_grad)
            if u.is_cuda and data.weight is None and not needs_gradient:
                return kernels_for(FSI, u.device).diffuse(u, data, None, tau, steps)  # type: ignore[no-any-return]
            weights = isotropic_weights(u).expand(len(u), -1, -1, -1)
        return inpainting_cycle(u, data.scaled(tau), weights, steps, self._model.segment)
