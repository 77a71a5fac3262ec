"""The network's gradient in float64, rounded where half precision rounds it: a bound on a kernel's accuracy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.neuroexplicit import dtm as module
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule


class _Round(torch.autograd.Function):
    """To one type on the way there, and to another on the way back, or as it came."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype, gradients: torch.dtype | None) -> Tensor:
        ctx.gradients = gradients
        return x.to(dtype).double()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0] if ctx.gradients is None else grads[0].to(ctx.gradients).double(), None, None


def _round(x: Tensor, dtype: torch.dtype, gradients: torch.dtype | None = None) -> Tensor:
    rounded: Tensor = _Round.apply(x, dtype, gradients)  # type: ignore[no-untyped-call]
    return rounded


def rounded_gradients(
    dtm: DiffusionTensorModule, x: Tensor, dz: list[Tensor], dtype: torch.dtype, gradients: torch.dtype
) -> tuple[Tensor, ...]:
    """Those of the parameters of a float64 module, weights and activations in dtype there, in `gradients` back."""

    def rounding(convolve: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def convolve_rounded(x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
            y = convolve(x.detach(), _round(weight, dtype), bias, *rest)
            back = convolve(x, weight.detach().to(gradients).double(), None, *rest)
            return y + (back - back.detach())

        return convolve_rounded

    relu = F.relu
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "conv2d", rounding(F.conv2d))
        patch.setattr(F, "conv_transpose2d", rounding(F.conv_transpose2d))
        patch.setattr(module, "relu", lambda y: _round(relu(y), dtype, gradients))
        maps = dtm(x.to(dtype).double())
        return torch.autograd.grad(maps, list(dtm.parameters()), [z.to(gradients).double() for z in dz])
