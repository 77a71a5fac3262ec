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

_CHUNK = 8
"""Steps whose weight gradients are summed in one pass, which spares a reading and a writing of the sum at each step. At
least three: a step of the adjoint reads two fields and writes a third."""


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
        return _run(u, u, f, known, weights, range(steps), {})


class _Cycle(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, f: Tensor, known: Tensor, weights: Tensor, steps: int, segment: int | None
    ) -> Tensor:
        kept = _kept(steps, segment) if ctx.needs_input_grad[3] else []
        iterates = u.new_empty(len(kept), *u.shape)
        end = _run(u, u, f, known, weights, range(steps), dict(zip(kept, iterates, strict=True)))
        ctx.save_for_backward(u, f if segment else None, known, weights, iterates)
        ctx.plan = steps, segment, kept
        return end

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        u, f, known, weights, iterates = ctx.saved_tensors  # type: ignore[attr-defined]
        steps, segment, kept = ctx.plan  # type: ignore[attr-defined]
        needs_u, needs_f, _, needs_weights = ctx.needs_input_grad[:4]  # type: ignore[attr-defined]
        (g,), kernels, zero = gradients, _kernels_for(u.device), u.new_zeros(())
        grad_f = torch.where(known, g, zero) if needs_f else None
        grad_weights = torch.empty_like(weights) if needs_weights else None
        ring = u.new_empty(min(_CHUNK, steps), *u.shape)  # s_l, in slot l mod its length
        torch.where(known, zero, g, out=ring[steps % len(ring)])
        pairs = dict(zip([0, *kept], [u, *iterates], strict=True))
        grad_u = torch.empty_like(u) if needs_u else None
        again = u.new_empty(segment - 1, *u.shape) if segment and needs_weights else iterates
        for start, stop in _pieces(0, steps, segment or steps):
            if segment and needs_weights:
                places = {start + 1 + i: place for i, place in enumerate(again[: stop - start - 1])}
                _run(pairs[max(start - 1, 0)], pairs[start], f, known, weights, range(start, stop - 1), places)
            for a, b in [*_pieces(start + 1, stop, _CHUNK), (start, start + 1)]:
                for l in range(b - 1, a - 1, -1):  # noqa: E741  (the paper's index)
                    if l == a and grad_weights is not None:
                        u_l = pairs[start][None] if a == start else again[a - start - 1 : b - start - 1]
                        kernels.weight_gradient(ring, u_l, a, grad_weights, accumulate=b < steps)
                    out = ring[l % len(ring)] if l else grad_u
                    if out is not None:
                        later = ring[(l + 2) % len(ring)] if l + 2 <= steps else None
                        kernels.retreat(ring[(l + 1) % len(ring)], later, known, weights, l, out, grad_f)
        return grad_u, grad_f, None, grad_weights, None, None


def _run(
    previous: Tensor, u: Tensor, f: Tensor, known: Tensor, weights: Tensor, steps: range, places: dict[int, Tensor]
) -> Tensor:
    """From u_{l-1} and u_l, l being the first of the steps, on to the last; u_l goes to places[l] where there is one.

    The others share two buffers: a step may overwrite what it reads of u_{l-1}, pixel by pixel.
    """
    kernels, spare = _kernels_for(u.device), dict[int, Tensor]()
    for l in steps:  # noqa: E741  (the paper's index)
        out = places.get(l + 1)
        if out is None:
            if l % 2 not in spare:
                spare[l % 2] = torch.empty_like(u)
            out = spare[l % 2]
        # After the first step u is f where known, and f need not be read.
        kernels.advance(u, previous, u if l else f, known, weights, l, out)
        previous, u = u, out
    return u


def _kept(steps: int, segment: int | None) -> list[int]:
    """The numbers of the iterates to keep, besides u_0."""
    if segment is None:
        return list(range(1, steps))
    return sorted({n for start in range(segment, steps, segment) for n in (start - 1, start) if n > 0})


def _pieces(start: int, stop: int, length: int) -> list[tuple[int, int]]:
    """The numbers from start up to stop in pieces of that length, the last piece first."""
    return [(a, min(a + length, stop)) for a in reversed(range(start, stop, length))]


def _kernels_for(device: torch.device) -> ModuleType:
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
