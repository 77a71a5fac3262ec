"""The edge weights of one level as a differentiable function, for training on CUDA: one launch each way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from flowinpaint.neural.kernels import edge_weights_gpu


def quarter_edge_weights(z: Tensor, lam: Tensor) -> Tensor:
    """1/4 of the edge weights (B, 4, h, w) float32 of z (B, 5, h, w), best in channels-last, and its λ, a scalar.

    z is of any floating type, float64 excepted: what is computed is computed in float32.
    """
    weights: Tensor = _EdgeWeights.apply(z, lam)
    return weights


class _EdgeWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, lam: Tensor) -> Tensor:
        ctx.save_for_backward(z, lam)
        size = (z.shape[-2], z.shape[-1])
        (weights,) = edge_weights_gpu.edge_weights(
            [z.permute(0, 2, 3, 1)], lam.view(1), size, levels=1, dtype=torch.float32
        )
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        z, lam = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_z, grad_lam = edge_weights_gpu.gradients(z.permute(0, 2, 3, 1), lam, gradients[0])
        return grad_z.permute(0, 3, 1, 2), grad_lam
