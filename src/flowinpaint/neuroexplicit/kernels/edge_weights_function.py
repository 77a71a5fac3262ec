"""The edge weights of one level as a differentiable function, for training on CUDA: one launch each way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from flowinpaint.neuroexplicit.kernels import edge_weights_gpu


def quarter_edge_weights(z: Tensor, lam: Tensor, direction_floor: float) -> Tensor:
    """1/4 of the edge weights (B, 4, h, w) float32 of z (B, 5, h, w), best in channels-last, and its λ, a scalar.

    z is of any floating type, float64 excepted: what is computed is computed in float32.
    """
    weights: Tensor = _EdgeWeights.apply(z, lam, direction_floor)
    return weights


class _EdgeWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, lam: Tensor, direction_floor: float) -> Tensor:
        ctx.save_for_backward(z, lam)
        ctx.direction_floor = direction_floor
        size = (z.shape[-2], z.shape[-1])
        (weights,) = edge_weights_gpu.edge_weights(
            [z.permute(0, 2, 3, 1)], lam.view(1), size, 1, direction_floor, torch.float32
        )
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        z, lam = ctx.saved_tensors
        grad_z, grad_lam = edge_weights_gpu.gradients(z.permute(0, 2, 3, 1), lam, gradients[0], ctx.direction_floor)
        return grad_z.permute(0, 3, 1, 2), grad_lam, None
