"""Diffusion blocks: the scheme with learned derivative kernels, the ablation +W (supplement B.1 and B.2).

Each step has its own four 2×2 kernels per channel, W_x¹, W_x², W_y¹, W_y². They are initialised as finite differences
(Table 5), for which A u = -Wᵀ H W u is the stencil's operator.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.diffusion.tensor import SymmetricTensor

BLOCK_TIME_STEP = 0.25
"""Stable for constrained kernels: ‖H‖ ≤ 1/2 for eigenvalues up to 1, and four kernels of norm 2 give ρ(A) ≤ 8."""

MOST_COMPILED = 64
"""Limit on compiled variants of a step: each level, with and without gradient, for each image size.

PyTorch's default limit is 8; beyond it code runs uncompiled, with only a log message.
"""

Metric = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""The entries of H, which all steps of a level share, in cells (B, 1, H-1, W-1).

W_x¹ with W_x¹, W_x¹ with W_x², W_y¹ with W_y¹, W_y¹ with W_y², W_x¹ with W_y¹, W_x¹ with W_y²; 1 and 2 may be swapped.
"""


def metric_of(tensor: SymmetricTensor, alpha: Tensor, beta: Tensor) -> Metric:
    """H of a tensor (a b; b c) and the parameters of its discretisation."""
    a, b, c = tensor
    near, far = (1 - alpha) / 2, alpha / 2
    return a * near, a * far, c * near, c * far, (1 - beta) / 4 * b, (1 + beta) / 4 * b


def apply_kernels(kernels: Tensor, metric: Metric, u: Tensor) -> Tensor:
    """A u = -Wᵀ H W u, for kernels (4, C, 2, 2) and u (B, C, H, W).

    Written as sums over the corners of cells, which compilers fuse; convolutions of two channels are slow.
    """
    corners = [(p, q) for p in (0, 1) for q in (0, 1)]
    height, width = u.shape[-2] - 1, u.shape[-1] - 1
    seen = [u[..., p : p + height, q : q + width] for p, q in corners]
    weights = [[kernel[:, p, q, None, None] for p, q in corners] for kernel in kernels]
    x1, x2, y1, y2 = (sum(w * v for w, v in zip(own, seen, strict=True)) for own in weights)
    x_near, x_far, y_near, y_far, same, other = metric
    fluxes = (
        x_near * x1 + x_far * x2 + same * y1 + other * y2,
        x_far * x1 + x_near * x2 + other * y1 + same * y2,
        same * x1 + other * x2 + y_near * y1 + y_far * y2,
        other * x1 + same * x2 + y_far * y1 + y_near * y2,
    )
    Au = torch.zeros_like(u)
    for k, (p, q) in enumerate(corners):
        back = sum(own[k] * flux for own, flux in zip(weights, fluxes, strict=True))
        Au = Au - F.pad(back, (q, 1 - q, p, 1 - p))
    return Au


class DiffusionBlocks(nn.Module):
    """The kernels of all steps of one level: weight (steps, 4, channels, 2, 2)."""

    def __init__(self, steps: int, channels: int) -> None:
        super().__init__()
        x1, x2 = [[-1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [-1.0, 1.0]]
        y1, y2 = [[-1.0, 0.0], [1.0, 0.0]], [[0.0, -1.0], [0.0, 1.0]]
        kernels = torch.tensor([x1, x2, y1, y2])
        self.weight = nn.Parameter(kernels[None, :, None].repeat(steps, 1, channels, 1, 1))
        self._apply_kernels: Callable[[Tensor, Metric, Tensor], Tensor] = apply_kernels

    def forward(self, step: int, metric: Metric, u: Tensor) -> Tensor:
        """A u of one step, (B, channels, H, W)."""
        return self._apply_kernels(self.weight[step].to(u.dtype), metric, u)

    def scaled(self, step: int, metric: Metric, u: Tensor) -> Tensor:
        """τA u of one step, with the stable time step."""
        return BLOCK_TIME_STEP * self(step, metric, u)  # type: ignore[no-any-return]

    def compile_parts(self) -> None:
        """Compile a step, in place; every new size is compiled again."""
        config = torch._dynamo.config
        config.recompile_limit = max(config.recompile_limit, MOST_COMPILED)
        self._apply_kernels = torch.compile(apply_kernels, dynamic=False)

    @torch.no_grad()
    def constrain_(self) -> None:
        """Scale kernels back to the norm of the finite differences; call it after each optimiser step.

        The supplement bounds the eigenvalues of the convolution K by 1 and rescales kernels by √C ‖W‖², which changes
        the finite differences and does not converge when repeated. Here the bound is that of the finite differences, 2:
        the sum of a kernel's absolute values is never below its largest eigenvalue; kernels within it are unchanged.
        """
        norm = self.weight.abs().sum((-2, -1), keepdim=True)
        self.weight.mul_(2 / norm.clamp(min=2))
