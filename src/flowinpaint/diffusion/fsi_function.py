"""One FSI cycle of inpainting as a differentiable function with its own adjoint.

The derivative of a step is the step again, A being symmetric. With s_{l+1} = (1 - c) dL/du_{l+1},

    dL/du_l = γ_l (s_{l+1} + A s_{l+1}) + (1 - γ_{l+1}) s_{l+2},    dL/df = c Σ_l dL/du_l,
    dL/dw_pq = Σ_l γ_l Σ_channels (s_p - s_q)(u_q - u_p),

so the way back needs the iterates u_0 … u_{L-1} for the weights, nothing for u and f, and no graph. With a segment
length S only the pairs u_{kS-1}, u_{kS} are kept, and what lies between is computed again, to the same bits.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from flowinpaint.diffusion.kernels import fsi_reference
from flowinpaint.diffusion.stencil import EDGES
from flowinpaint.errors import InputError


def inpainting_cycle(
    u: Tensor, f: Tensor, c: Tensor, weights: Tensor, steps: int, segment: int | None = None
) -> Tensor:
    """`fsi.fsi_cycle` with the time step multiplied into the weights."""
    _check(u, f, c, weights, steps, segment)
    known, segment = c > 0, segment and min(segment, steps)
    u, f, known, weights = (x.contiguous() for x in (u, f, known, weights))
    # Triton launches on the current device.
    with torch.cuda.device_of(u):  # type: ignore[no-untyped-call]
        if torch.is_grad_enabled() and any(x.requires_grad for x in (u, f, weights)):
            end: Tensor = _Cycle.apply(u, f, known, weights, steps, segment)  # type: ignore[no-untyped-call]
            return end
        last: Tensor = kernels_for(u.device).advance(u, u, f, known, weights, range(steps))[1]
        return last


class _Cycle(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, f: Tensor, known: Tensor, weights: Tensor, steps: int, segment: int | None
    ) -> Tensor:
        kernels, needs_weights = kernels_for(u.device), ctx.needs_input_grad[3]
        pieces = _pieces(steps, segment if needs_weights else None)
        iterates = u.new_empty(steps - 1, *u.shape) if needs_weights and not segment else None
        pairs, previous = list[Tensor](), u
        for piece in pieces:
            pairs += previous, u
            previous, u = kernels.advance(previous, u, None if piece.start else f, known, weights, piece, iterates)
        ctx.save_for_backward(known, weights, f if segment else None, iterates, *(pairs if needs_weights else ()))
        ctx.pieces = pieces
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        known, weights, f, iterates, *pairs = ctx.saved_tensors  # type: ignore[attr-defined]
        pieces = ctx.pieces  # type: ignore[attr-defined]
        needs_u, needs_f, _, needs_weights = ctx.needs_input_grad[:4]  # type: ignore[attr-defined]
        g, later = gradients[0].contiguous(), None
        kernels = kernels_for(g.device)
        grad_f = torch.where(known, g, 0) if needs_f else None
        grad_weights = torch.zeros_like(weights) if needs_weights else None
        u = None
        for n in reversed(range(len(pieces))):
            piece = pieces[n]
            if needs_weights:
                previous, u = pairs[2 * n : 2 * n + 2]
            if u is not None and iterates is None:
                again, all_but_last = u.new_empty(len(piece) - 1, *u.shape), piece[:-1]
                kernels.advance(previous, u, None if piece.start else f, known, weights, all_but_last, again)
            else:
                again = iterates
            g, later = kernels.retreat(g, later, known, weights, piece, u, again, grad_weights, grad_f)
        return g if needs_u else None, grad_f, None, grad_weights, None, None


def _pieces(steps: int, segment: int | None) -> list[range]:
    """The steps in segments, from the first on."""
    length = segment or steps
    return [range(start, min(start + length, steps)) for start in range(0, steps, length)]


def kernels_for(device: torch.device) -> ModuleType:
    """The fastest module that has the functions of `fsi_reference` on a device."""
    if device.type == "cuda":
        try:
            return import_module("flowinpaint.diffusion.kernels.fsi_gpu")
        except ImportError:  # Triton comes with PyTorch on Linux only
            pass
    return fsi_reference


def _check(u: Tensor, f: Tensor, c: Tensor, weights: Tensor, steps: int, segment: int | None) -> None:
    if u.ndim != 4 or u.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"u: {u.dtype} of shape {tuple(u.shape)} was given; torch.float32 or torch.float64 of shape (B, C, H, W) "
            "is taken."
        )
    B, C, H, W = u.shape
    for name, x, channels in (("f", f, C), ("c", c, 1), ("weights", weights, len(EDGES))):
        if x.shape != (B, channels, H, W):
            raise InputError(
                f"{name}: shape {tuple(x.shape)} was given; {(B, channels, H, W)} is taken beside u's {tuple(u.shape)}."
            )
        if name != "c" and x.dtype != u.dtype:
            raise InputError(f"{name}: {x.dtype} was given; u's {u.dtype} is taken.")
    if steps < 1:
        raise InputError(f"steps: {steps} was given; a count from 1 is taken.")
    if segment is not None and segment < 1:
        raise InputError(f"segment: {segment} was given; a count of steps from 1, or None, is taken.")
