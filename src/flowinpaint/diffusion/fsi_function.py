"""One FSI cycle of inpainting as a differentiable function with its own adjoint.

The derivative of a step is the step again, A being symmetric. With s_{l+1} = (1 - c) dL/du_{l+1},

    dL/du_l = γ_l (s_{l+1} + A s_{l+1}) + (1 - γ_{l+1}) s_{l+2},    dL/df = c Σ_l dL/du_l,
    dL/dw_pq = Σ_l γ_l Σ_channels (s_p - s_q)(u_q - u_p),

so the backward pass needs the iterates u_0 … u_{L-1} for the weights, nothing for u and f, and no graph. A soft data
term replaces 1 - c by 1 / (1 + γτk) (`fsi_reference.SoftAdjoint`). With a segment length S only the pairs u_{kS-1} and
u_{kS} are kept, and the iterates between them are recomputed, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from flowinpaint.diffusion.kernels import FSI, fsi_reference, kernels_for
from flowinpaint.diffusion.kernels.fsi_reference import SoftAdjoint
from flowinpaint.diffusion.stencil import EDGES, check_shapes
from flowinpaint.errors import InputError


def inpainting_cycle(
    u: Tensor,
    f: Tensor,
    c: Tensor,
    weights: Tensor,
    steps: int,
    segment: int | None = None,
    stiffness: Tensor | None = None,
) -> Tensor:
    """`fsi.fsi_cycle` with the time step multiplied into the edge weights and into the data weights (stiffness)."""
    _check(u, f, c, weights, steps, segment, stiffness)
    known, segment = c > 0, segment and min(segment, steps)
    u, f, known, weights = (x.contiguous() for x in (u, f, known, weights))
    # Triton launches on the current device.
    with torch.cuda.device_of(u):  # type: ignore[no-untyped-call]
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (u, f, weights, stiffness)):
            end: Tensor = _Cycle.apply(u, f, known, weights, steps, segment, stiffness)  # type: ignore[no-untyped-call]
            return end
        last: Tensor = _advance_of(u, stiffness)(u, u, f, known, weights, range(steps))[1]
        return last


class _Cycle(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        f: Tensor,
        known: Tensor,
        weights: Tensor,
        steps: int,
        segment: int | None,
        stiffness: Tensor | None,
    ) -> Tensor:
        soft, advance = stiffness is not None, _advance_of(u, stiffness)
        needs_iterates = ctx.needs_input_grad[3] or soft
        length = (segment if needs_iterates else None) or steps
        pieces = [range(steps)[start : start + length] for start in range(0, steps, length)]
        iterates = u.new_empty(steps - 1, *u.shape) if needs_iterates and not segment else None
        pairs, previous = list[Tensor](), u
        for piece in pieces:
            pairs += previous, u
            given = None if piece.start and not soft else f
            previous, u = advance(previous, u, given, known, weights, piece, iterates)
        kept = f if segment or soft else None
        end = u if soft else None
        ctx.save_for_backward(known, weights, kept, iterates, stiffness, end, *(pairs if needs_iterates else ()))
        ctx.pieces = pieces
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        known, weights, f, iterates, stiffness, end, *pairs = ctx.saved_tensors  # type: ignore[attr-defined]
        pieces = ctx.pieces  # type: ignore[attr-defined]
        needs_u, needs_f, _, needs_weights = ctx.needs_input_grad[:4]  # type: ignore[attr-defined]
        g, later = gradients[0].contiguous(), None
        if stiffness is None:
            soft, retreat = None, _kernels(g, None).retreat
            grad_f = torch.where(known, g, 0) if needs_f else None
        else:
            soft = SoftAdjoint(f, stiffness)
            retreat = partial(fsi_reference.retreat, soft=soft)
            g, grad_f = soft.pass_through(g, end, pieces[-1].stop), soft.grad_f
        grad_weights = torch.zeros_like(weights) if needs_weights else None
        u = None
        for n in reversed(range(len(pieces))):
            piece = pieces[n]
            if pairs:
                previous, u = pairs[2 * n : 2 * n + 2]
            if u is not None and iterates is None:
                again, all_but_last = u.new_empty(len(piece) - 1, *u.shape), piece[:-1]
                given = None if piece.start and soft is None else f
                _advance_of(u, stiffness)(previous, u, given, known, weights, all_but_last, again)
            else:
                again = iterates
            g, later = retreat(g, later, known, weights, piece, u, again, grad_weights, grad_f)
        grad_stiffness = None if soft is None else soft.grad_stiffness
        return g if needs_u else None, grad_f, None, grad_weights, None, None, grad_stiffness


def _kernels(u: Tensor, stiffness: Tensor | None) -> ModuleType:
    """The kernels with an adjoint: Triton on CUDA if every given vector is exact, else plain PyTorch."""
    return kernels_for(FSI, u.device) if u.is_cuda and stiffness is None else fsi_reference


def _advance_of(u: Tensor, stiffness: Tensor | None) -> Callable[..., tuple[Tensor, Tensor]]:
    """`advance` of these kernels; only the reference supports a soft data term."""
    advance: Callable[..., tuple[Tensor, Tensor]] = _kernels(u, stiffness).advance
    return advance if stiffness is None else partial(advance, stiffness=stiffness)


def _check(
    u: Tensor, f: Tensor, c: Tensor, weights: Tensor, steps: int, segment: int | None, stiffness: Tensor | None
) -> None:
    if u.ndim != 4 or u.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"u must be torch.float32 or torch.float64 of shape (B, C, H, W), got {u.dtype} {tuple(u.shape)}"
        )
    fields = {"f": f, "weights": weights, "data_weight": stiffness}
    check_shapes(u, f=(f, u.shape[1]), c=(c, 1), weights=(weights, len(EDGES)), data_weight=(stiffness, 1))
    for name, x in fields.items():
        if x is not None and x.dtype != u.dtype:
            raise InputError(f"{name} must have the dtype of u, {u.dtype}, got {x.dtype}")
    if steps < 1:
        raise InputError(f"steps must be at least 1, got {steps}")
    if segment is not None and segment < 1:
        raise InputError(f"segment must be None or at least 1, got {segment}")
