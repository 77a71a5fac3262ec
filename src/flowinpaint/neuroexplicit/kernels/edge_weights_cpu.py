"""Edge weights from a map of the network, for inference on the CPU, compiled by numba."""

from __future__ import annotations

import numpy as np
import torch
from numba import float32, uintp
from torch import Tensor

from flowinpaint.diffusion.kernels.compiled import compiled, inner
from flowinpaint.diffusion.kernels.cpu_strips import in_strips
from flowinpaint.neuroexplicit import edge_weights
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.edge_weights import LAMBDA_FLOOR, predicts_all, time_step_of


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
    in_strips(_edge_weights, H, z.numel(), *operands)
    return out, tau


@inner
def _diffusivity(g, z, per_square):
    for x in range(uintp(g.shape[0])):
        g[x] = float32(1) / (float32(1) + z[x] * z[x] * per_square)


@inner
def _tensor(a, b, c, mu1, mu2, vx, vy, fade):
    """D = (a b; b c) in a row of cells; fade: the floor added to ‖v‖²."""
    half = float32(0.5)
    for x in range(uintp(a.shape[0])):
        inverse = float32(1) / (vx[x] * vx[x] + vy[x] * vy[x] + fade)
        cos2, sin2 = (vx[x] * vx[x] - vy[x] * vy[x]) * inverse, float32(2) * vx[x] * vy[x] * inverse
        mean, radius = half * (mu1[x] + mu2[x]), half * (mu1[x] - mu2[x])
        a[x], b[x], c[x] = mean + radius * cos2, radius * sin2, mean - radius * cos2


@inner
def _cell_weights(a, b, c, alpha, tau, last):
    """Overwrite a, b, c and α with (a-δ), (b+δ), (c-δ), (δ-b) times τ/2; zero in the column after the last cell."""
    half = float32(0.5) * tau
    for x in range(uintp(a.shape[0])):
        delta = alpha[x] * (a[x] + c[x]) + (float32(1) - float32(2) * alpha[x]) * abs(b[x])
        alpha[x] = half * (delta - b[x])
        a[x] = half * (a[x] - delta)
        b[x] = half * (b[x] + delta)
        c[x] = half * (c[x] - delta)
    alpha[last], a[last], b[last], c[last] = 0, 0, 0, 0


@compiled("aaaffaii")
def _edge_weights(alpha, z, tau, per_square, fade, out, start, stop):
    """z: the last four channels are μ₁, μ₂ and v; tau (B, 1, 1, 1); per_square: 1 / λ²."""
    B, _, H, W = out.shape
    first, one = z.shape[1] - 4, uintp(1)
    mu1, mu2 = np.empty(W, np.float32), np.empty(W, np.float32)
    a, b, c, d = np.empty(W, np.float32), np.empty(W, np.float32), np.empty(W, np.float32), np.empty(W, np.float32)
    above = np.zeros(W, np.float32)
    for k in range(B):
        for y in range(max(start - 1, 0), stop):  # from the row before, whose cells add to the first
            if y < H - 1:
                _diffusivity(mu1, z[k, first, y], per_square)
                _diffusivity(mu2, z[k, first + 1, y], per_square)
                _tensor(a, b, c, mu1, mu2, z[k, first + 2, y], z[k, first + 3, y], fade)
                d[:] = alpha[k, 0, y]
                _cell_weights(a, b, c, d, tau[k, 0, 0, 0], W - 1)
            else:
                a[:], b[:], c[:], d[:] = 0, 0, 0, 0
            if y >= start:
                east, south, south_east, south_west = out[k, 0, y], out[k, 1, y], out[k, 2, y], out[k, 3, y]
                if y == 0:
                    above[:] = 0
                for x in range(uintp(W)):
                    east[x] = a[x] + above[x]
                    south_east[x] = b[x]
                south[0], south_west[0] = c[0], 0
                for x in range(one, uintp(W)):
                    south[x] = c[x] + c[x - one]
                    south_west[x] = d[x - one]
            above[:] = a
