"""Diffusion blocks: the scheme with learned derivative kernels, the ablation +W (supplement B.1 and B.2).

Each step owns four 2×2 kernels per channel, W_x¹, W_x², W_y¹, W_y². They start as finite differences (Table 5), and
then A u = -Wᵀ H W u is the stencil's operator.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.diffusion.tensor import SymmetricTensor

BLOCK_TIME_STEP = 0.25
"""Stable for constrained kernels: ‖H‖ ≤ 1/2 for eigenvalues up to 1, and four kernels of norm 2 give ρ(A) ≤ 8."""


class DiffusionBlocks(nn.Module):
    """The kernels of all steps of one level: weight (steps, 4, channels, 2, 2)."""

    def __init__(self, steps: int, channels: int) -> None:
        super().__init__()
        x1, x2 = [[-1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [-1.0, 1.0]]
        y1, y2 = [[-1.0, 0.0], [1.0, 0.0]], [[0.0, -1.0], [0.0, 1.0]]
        kernels = torch.tensor([x1, x2, y1, y2])
        self.weight = nn.Parameter(kernels[None, :, None].repeat(steps, 1, channels, 1, 1))

    def forward(self, step: int, tensor: SymmetricTensor, alpha: Tensor, beta: Tensor, u: Tensor) -> Tensor:
        """A u of one step, (B, channels, H, W)."""
        channels = u.shape[1]
        a, b, c = tensor
        kernels = self.weight[step].to(u.dtype).unsqueeze(2)
        x1, x2, y1, y2 = (F.conv2d(u, kernel, groups=channels) for kernel in kernels)
        near, far = (1 - alpha) / 2, alpha / 2
        same, other = (1 - beta) / 4 * b, (1 + beta) / 4 * b
        fluxes = (
            a * (near * x1 + far * x2) + same * y1 + other * y2,
            a * (far * x1 + near * x2) + other * y1 + same * y2,
            same * x1 + other * x2 + c * (near * y1 + far * y2),
            other * x1 + same * x2 + c * (far * y1 + near * y2),
        )
        Au = torch.zeros_like(u)
        for kernel, flux in zip(kernels, fluxes, strict=True):
            Au = Au - F.conv_transpose2d(flux, kernel, groups=channels)
        return Au

    @torch.no_grad()
    def constrain_(self) -> None:
        """Scale kernels back to the norm the finite differences have; to be called after each optimiser step.

        The supplement bounds the eigenvalues of the convolution K by 1 and rescales kernels by √C ‖W‖², which neither
        keeps the finite differences nor settles when repeated. Here the bound is theirs, 2: the sum of a kernel's
        absolute values is never below its largest eigenvalue, and kernels within it stay as they are.
        """
        norm = self.weight.abs().sum((-2, -1), keepdim=True)
        self.weight.mul_(2 / norm.clamp(min=2))
