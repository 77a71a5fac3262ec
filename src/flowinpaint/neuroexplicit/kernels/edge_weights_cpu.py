"""From a map of the network to edge weights, for inference on the CPU, compiled by numba."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.cpu_strips import in_strips
from flowinpaint.neuroexplicit import edge_weights
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.edge_weights import LAMBDA_FLOOR, predicts_all, time_step_of
from flowinpaint.neuroexplicit.kernels import edge_weights_numba


def operator_of(z: Tensor, image: Tensor, lam: Tensor, config: NeuroexplicitConfig) -> tuple[Tensor, Tensor | float]:
    """`edge_weights.operator_of` of z (B, predicted, h, w) float32, fused if all of the process is predicted."""
    if not predicts_all(config):
        return edge_weights.operator_of(z, image, lam, config)
    B, _, H, W = z.shape
    alpha = torch.sigmoid(z[:, :1]).div_(2)
    tau = time_step_of(alpha[..., :-1, :-1], config)
    per_square = 1 / (float(lam) ** 2 + LAMBDA_FLOOR)
    steps = tau if isinstance(tau, Tensor) else z.new_full((B, 1, 1, 1), tau)
    out = z.new_empty(B, 4, H, W)
    operands = alpha, z.contiguous(), steps, per_square, config.direction_floor, out
    in_strips(edge_weights_numba.edge_weights, H, z.numel(), *operands)
    return out, tau
