"""One FSI cycle of inpainting as a differentiable function with its own adjoint.

The derivative of a step is the step again, A being symmetric. With s_{l+1} = (1 - c) dL/du_{l+1},

    dL/du_l = γ_l (s_{l+1} + A s_{l+1}) + (1 - γ_{l+1}) s_{l+2},    dL/df = c Σ_l dL/du_l,
    dL/dw_pq = Σ_l γ_l Σ_channels (s_p - s_q)(u_q - u_p),

so the backward pass needs the iterates u_0 … u_{L-1} for the weights, nothing for u and f, and no graph. A soft data
term replaces 1 - c by 1 / (1 + γτk) and always needs the iterates (`fsi_reference.SoftAdjoint`). With a segment length
S only the pairs u_{kS-1} and u_{kS} are kept, and the iterates between them are recomputed, to the same bits.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import FSI, fsi_reference, kernels_for
from flowinpaint.diffusion.kernels.fsi_reference import SoftAdjoint
from flowinpaint.diffusion.stencil import EDGES, check_shapes
from flowinpaint.errors import InputError


def inpainting_cycle(u: Tensor, data: DataTerm, weights: Tensor, steps: int, segment: int | None = None) -> Tensor:
    """`fsi.fsi_cycle` with the time step multiplied into the edge weights and the data term (`DataTerm.scaled`)."""
    _check(u, data, weights, steps, segment)
    segment = segment and min(segment, steps)
    u, weights = u.contiguous(), weights.contiguous()
    data = DataTerm(*(None if x is None else x.contiguous() for x in data))  # type: ignore[arg-type]
    # Triton launches on the current device.
    with torch.cuda.device_of(u):  # type: ignore[no-untyped-call]
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (u, weights, *data)):
            end: Tensor = _Cycle.apply(u, weights, steps, segment, *data)  # type: ignore[no-untyped-call]
            return end
        last: Tensor = _kernels(u, data).advance(u, u, data, weights, range(steps))[1]
        return last


class _Cycle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, weights: Tensor, steps: int, segment: int | None, *term: Any) -> Tensor:
        data = DataTerm(*term)
        soft, advance = data.weight is not None, _kernels(u, data).advance
        needs_iterates = ctx.needs_input_grad[1] or soft
        length = (segment if needs_iterates else None) or steps
        pieces = [range(steps)[start : start + length] for start in range(0, steps, length)]
        iterates = u.new_empty(steps - 1, *u.shape) if needs_iterates and not segment else None
        pairs, previous = list[Tensor](), u
        for piece in pieces:
            pairs += previous, u
            previous, u = advance(previous, u, data, weights, piece, iterates)
        kept = term if segment or soft else (None, *term[1:])  # f is only needed to repeat steps
        ctx.save_for_backward(weights, iterates, u if soft else None, *kept, *(pairs if needs_iterates else ()))
        ctx.pieces = pieces
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, iterates, end, f, known, weight, *pairs = ctx.saved_tensors  # type: ignore[attr-defined]
        pieces, data = ctx.pieces, DataTerm(f, known, weight)  # type: ignore[attr-defined]
        needs_u, needs_weights, _, _, needs_f = ctx.needs_input_grad[:5]  # type: ignore[attr-defined]
        g, later = gradients[0].contiguous(), None
        kernels = _kernels(g, data)
        if weight is None:
            soft, retreat = None, kernels.retreat
            grad_f = torch.where(known, g, 0) if needs_f else None
        else:
            soft = SoftAdjoint(f, weight)
            retreat = partial(kernels.retreat, soft=soft)
            g, grad_f = soft.pass_through(g, end, pieces[-1].stop), soft.grad_f
        grad_weights = torch.zeros_like(weights) if needs_weights else None
        u = None
        for n in reversed(range(len(pieces))):
            piece, again = pieces[n], iterates
            if pairs:
                previous, u = pairs[2 * n : 2 * n + 2]
            if u is not None and iterates is None:
                again = u.new_empty(len(piece) - 1, *u.shape)
                kernels.advance(previous, u, data, weights, piece[:-1], again)
            g, later = retreat(g, later, known, weights, piece, u, again, grad_weights, grad_f)
        grad_weight = None if soft is None else soft.grad_weight
        return g if needs_u else None, grad_weights, None, None, grad_f, None, grad_weight


def _kernels(u: Tensor, data: DataTerm) -> ModuleType:
    """The kernels with an adjoint: Triton on CUDA if every given vector is exact, else plain PyTorch."""
    return kernels_for(FSI, u.device) if u.is_cuda and data.weight is None else fsi_reference


def _check(u: Tensor, data: DataTerm, weights: Tensor, steps: int, segment: int | None) -> None:
    if u.ndim != 4 or u.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"u must be torch.float32 or torch.float64 of shape (B, C, H, W), got {u.dtype} {tuple(u.shape)}"
        )
    f, known, weight = data
    check_shapes(u, f=(f, u.shape[1]), c=(known, 1), weights=(weights, len(EDGES)), data_weight=(weight, 1))
    for name, x in {"f": f, "weights": weights, "data_weight": weight}.items():
        if x is not None and x.dtype != u.dtype:
            raise InputError(f"{name} must have the dtype of u, {u.dtype}, got {x.dtype}")
    if steps < 1:
        raise InputError(f"steps must be at least 1, got {steps}")
    if segment is not None and segment < 1:
        raise InputError(f"segment must be None or at least 1, got {segment}")
