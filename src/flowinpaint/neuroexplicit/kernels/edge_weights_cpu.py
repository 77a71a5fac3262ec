"""From a map of the network to edge weights, for inference on the CPU: compiled by numba where that is installed.

The functions of `process.process_of` and `stencil.edge_weights` for a model that predicts α, the eigenvalues and the
eigenvectors, with the stable β; any other model takes those.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.cpu_strips import in_strips, loops_of
from flowinpaint.diffusion.stencil import paper_time_step
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.edge_weights import LAMBDA_FLOOR, QUARTER, edge_weights_of, predicts_all

loops = loops_of("flowinpaint.neuroexplicit.kernels.edge_weights_numba")


def edge_weights(z: Tensor, image: Tensor | None, lam: Tensor, config: NeuroexplicitConfig) -> Tensor:
    """`process.edge_weights_of` of z (B, predicted, h, w) float32; the image is read only if not all is predicted."""
    if loops is None or not predicts_all(config):
        return edge_weights_of(z, z[:, :3] if image is None else image, lam, config)
    B, _, H, W = z.shape
    alpha = torch.sigmoid(z[:, :1]).div_(2)
    tau = paper_time_step(alpha[..., :-1, :-1]) if config.time_step == "bound" else z.new_full((B, 1, 1, 1), QUARTER)
    per_square = 1 / (float(lam) ** 2 + LAMBDA_FLOOR)
    out = z.new_empty(B, 4, H, W)
    in_strips(loops.edge_weights, H, z.numel(), alpha, z.contiguous(), tau, per_square, config.direction_floor, out)
    return out
