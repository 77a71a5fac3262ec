"""The steps of an FSI cycle and of its adjoint for CUDA, in Triton: one launch each, the functions of `fsi_reference`.

A step is bound by memory: it reads u_l, u_{l-1} and four weights a pixel, those once for all channels, and writes
u_{l+1}.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from flowinpaint.diffusion.kernels import fsi_gpu_loops

_TILE = 256
_WIDEST = 64
"""Pixels of a tile, and of its rows; wide ones read whole cache lines, several rows share their neighbours."""


def advance(u: Tensor, previous: Tensor, held: Tensor, known: Tensor, weights: Tensor, step: int, out: Tensor) -> None:
    """Write u_{l+1} to `out`, as in `fsi_reference`."""
    _launch_step(u, previous, held, known, weights, None, out, step, step)


def retreat(
    s: Tensor, later: Tensor | None, known: Tensor, weights: Tensor, step: int, out: Tensor, grad_f: Tensor | None
) -> None:
    """Take the gradient from u_{l+1} back to u_l, as in `fsi_reference`.

    A is symmetric, so this is the same kernel. s is zero where known and serves as what is held there.
    """
    _launch_step(s, later, s if step else None, known, weights, grad_f if step else None, out, step, step + 1)


def weight_gradient(ring: Tensor, iterates: Tensor, first: int, out: Tensor, accumulate: bool) -> None:
    """Write, or add, the weights' gradient of several steps to `out`, as in `fsi_reference`."""
    B, C, H, W = ring.shape[1:]
    rows, columns, grid = _tiles(B, H, W)
    fsi_gpu_loops.weight_gradient[grid](
        ring, iterates, out, first, len(iterates), len(ring), B, H, W, C, accumulate, rows, columns
    )


def _launch_step(
    u: Tensor,
    old: Tensor | None,
    held: Tensor | None,
    known: Tensor,
    weights: Tensor,
    grad_f: Tensor | None,
    out: Tensor,
    step: int,
    old_step: int,
) -> None:
    B, C, H, W = u.shape
    rows, columns, grid = _tiles(B, H, W)
    fsi_gpu_loops.take_step[grid](
        u,
        old,
        held,
        known.view(torch.uint8),
        weights,
        grad_f,
        out,
        step,
        old_step,
        H,
        W,
        C,
        old is not None,
        held is not None,
        grad_f is not None,
        rows,
        columns,
    )


def _tiles(B: int, H: int, W: int) -> tuple[int, int, tuple[int, int, int]]:
    """Rows and columns of a tile, and how many tiles there are."""
    columns = min(_WIDEST, triton.next_power_of_2(W))
    rows = min(_TILE // columns, triton.next_power_of_2(H))
    return rows, columns, (triton.cdiv(W, columns), triton.cdiv(H, rows), B)
