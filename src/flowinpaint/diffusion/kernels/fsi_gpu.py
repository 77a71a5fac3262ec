"""The steps of an FSI cycle and of its adjoint for CUDA, in Triton: the functions of `fsi_reference`.

A single step is limited by memory bandwidth, or by launch overhead if the image is small, so a launch computes several
steps on tiles that stay in registers. A tile exceeds the region it writes by a halo of one pixel per step: with more
steps per launch, memory is read less often but more pixels are computed twice. The gradient of the weights is summed by
a separate kernel, over many steps at once: one kernel for both would run out of registers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import fsi_reference, fsi_triton
from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.integers import ceil_div


class _Tile(NamedTuple):
    """Tile shape: pixels of a thread (a column); warps, 32 threads wide and stacked vertically; steps of a launch.

    registers: the limit per thread, chosen so that several tiles fit on a multiprocessor without spilling.
    """

    rows: int
    warps: int
    steps: int
    registers: int


_WIDTH = 32
_KEEPING = _Tile(8, 8, 4, 128)
"""Tile of forward or backward steps that keep their iterates."""
_SUMMING = _Tile(2, 8, 23, 128)
"""Tile of the weight gradient, which needs no halo and sums more steps per launch."""


def diffuse(u: Tensor, data: DataTerm, weights: Tensor | None, tau: Tensor | float, steps: int) -> Tensor:
    """One FSI cycle, as in `fsi_reference`; weights may be float16.

    u (B, C, H, W) holds f where known, or is the field (B, C, ceil(H/2), ceil(W/2)) of the next coarser level; then the
    cycle starts from the result of `pyramid.refine`. A soft data term runs in plain PyTorch.
    """
    f, known, _ = data
    coarse = u.contiguous() if u.shape[-2:] != known.shape[-2:] else None
    if data.weight is not None:
        u = u if coarse is None else pyramid.refine(u, data)
        return fsi_reference.diffuse(u, data, None if weights is None else weights.to(u.dtype), tau, steps)
    u, known = (u if coarse is None else f).contiguous(), known.contiguous()
    weights = None if weights is None else weights.contiguous()
    with torch.cuda.device_of(u):  # Triton launches on the current device
        plan = _Plan(u, known, weights, _inference_tile(u, weights), steps)
        return _take_all(plan, u, u, range(steps), None, coarse, both=False)[1]


def advance(
    previous: Tensor,
    u: Tensor,
    data: DataTerm,
    weights: Tensor | None,
    steps: range,
    iterates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Take steps forwards from exact vectors, as in `fsi_reference`."""
    if not steps:
        return previous, u
    known, f = data.known, None if steps.start else data.f
    if iterates is None:
        plan = _Plan(u, known, weights, _inference_tile(u, weights), len(steps))
        return _take_all(plan, previous, u, steps, f, None, both=True)
    plan = _Plan(u, known, weights, _KEEPING, len(steps))
    for piece in plan.pieces(steps):
        n = piece[-1] - steps.start
        out, before = iterates[n] if n < len(iterates) else torch.empty_like(u), iterates[n - 1] if n else u
        plan.take_steps(u, previous, piece, out, None, f=f, kept=iterates, origin=steps.start)
        previous, u, f = before, out, None
    return previous, u


def _take_all(
    plan: _Plan, previous: Tensor, u: Tensor, steps: range, f: Tensor | None, coarse: Tensor | None, *, both: bool
) -> tuple[Tensor, Tensor]:
    """All steps from u, without keeping iterates: the last two or, unless both are wanted, the last one twice.

    f and coarse are for the first launch, as in `_Plan.take_steps`.
    """
    pieces = plan.pieces(steps)
    fields = [torch.empty_like(u) for _ in range(min(4, 2 * len(pieces) - (not both)))]
    for i, piece in enumerate(pieces):
        # This launch reads the output of the last one and overwrites that of the one before.
        at = 2 * i % 4
        out, before = fields[at], fields[at + 1] if both or i < len(pieces) - 1 else None
        plan.take_steps(u, previous, piece, out, before, f=f, coarse=coarse)
        previous, u, f, coarse = out if before is None else before, out, None, None
    return previous, u


def retreat(
    g: Tensor,
    later: Tensor | None,
    known: Tensor,
    weights: Tensor,
    steps: range,
    u: Tensor | None,
    iterates: Tensor | None,
    grad_weights: Tensor | None,
    grad_f: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Take steps backwards, as in `fsi_reference`."""
    plan = _Plan(g, known, weights, _KEEPING, len(steps))
    chunks = _split(steps, _SUMMING.steps)
    # s_l is stored at slot l mod its length. It holds the results of a chunk and the two fields the chunk starts from.
    ring = g.new_empty(max(map(len, chunks)) + 2, *g.shape)
    s = torch.where(known, g.new_zeros(()), g, out=ring[steps.stop % len(ring)])
    later = torch.zeros_like(g) if later is None else later
    for chunk in reversed(chunks):
        for piece in reversed(plan.pieces(chunk)):
            out = ring[piece.start % len(ring)] if piece.start else torch.empty_like(g)
            plan.take_steps(s, later, piece[::-1], out, None, grad_f=grad_f, kept=ring)
            s, later = out, ring[(piece.start + 1) % len(ring)]
        if grad_weights is not None:
            _add_weight_gradient(ring, chunk, u, iterates, steps.start, grad_weights)
    return s, later


def _inference_tile(u: Tensor, weights: Tensor | None) -> _Tile:
    """The fastest tile (on an H200) for fields like u; all sizes share one shape, so that none needs a new compilation.

    Small images are limited by launch overhead and need few launches, especially outside a CUDA graph. On larger ones a
    wide halo costs more than it saves; the largest are limited by memory bandwidth, and weights are half of the data
    read.
    """
    pixels = u.shape[0] * u.shape[2] * u.shape[3]
    if pixels <= 1 << 19 and u.is_cuda and not torch.cuda.is_current_stream_capturing():
        return _Tile(4, 8, 8, 64)
    if pixels <= 1 << 16:
        return _Tile(4, 8, 8 if pixels <= 1 << 14 else 6, 64)
    return _Tile(4, 8, 4 if weights is None or pixels <= 1 << 19 else 5, 64)


def _add_weight_gradient(
    ring: Tensor, chunk: range, u: Tensor | None, iterates: Tensor | None, start: int, grad_weights: Tensor
) -> None:
    B, C, H, W = ring.shape[1:]
    rows, warps = _SUMMING.rows, _SUMMING.warps
    grid = ceil_div(W + 1, _WIDTH - 1), ceil_div(H, rows * warps), B
    for channel in range(0, C, 2):
        launch(
            fsi_triton.weight_gradient,
            grid,
            ring,
            u,
            iterates,
            grad_weights,
            channel,
            C,
            chunk.start,
            len(chunk),
            start,
            len(ring),
            H,
            W,
            min(2, C - channel),
            rows,
            warps,
            num_warps=warps,
            num_stages=1,
        )


class _Plan:
    """Split of at most `count` steps on fields like u into launches, and of each launch into tiles."""

    def __init__(self, u: Tensor, known: Tensor, weights: Tensor | None, tile: _Tile, count: int) -> None:
        B, C, H, W = u.shape
        height, self.most = tile.rows * tile.warps, tile.steps
        if height - 2 >= H and _WIDTH - 2 >= W:
            self.halo, self.most = 1, count  # one ring of zeros around the image keeps every step valid
        else:
            self.halo = self.most = min(self.most, count)
        self.grid = ceil_div(W, _WIDTH - 2 * self.halo), ceil_div(H, height - 2 * self.halo), B
        self.pages = u.new_empty(self.grid[0] * self.grid[1] * B, 2, 2, min(C, 2), tile.warps, _WIDTH)
        self.tile, self.known, self.weights = tile, known.view(torch.uint8), weights
        self.limit = {"maxnreg": tile.registers} if u.dtype == torch.float32 else {}

    def pieces(self, steps: range) -> list[range]:
        """The steps of each launch."""
        return _split(steps, self.most)

    def take_steps(
        self,
        u: Tensor,
        previous: Tensor,
        steps: range,
        out: Tensor,
        before: Tensor | None,
        f: Tensor | None = None,
        grad_f: Tensor | None = None,
        kept: Tensor | None = None,
        coarse: Tensor | None = None,
        origin: int = 0,
    ) -> None:
        """One launch per two channels; descending steps are those of the adjoint."""
        C, H, W = u.shape[1:]
        for channel in range(0, C, 2):
            launch(
                fsi_triton.take_steps,
                self.grid,
                u,
                previous,
                coarse,
                f,
                grad_f,
                self.known,
                self.weights,
                kept,
                out,
                before,
                self.pages,
                channel,
                C,
                self.halo,
                steps[0],
                len(steps),
                origin,
                1 if kept is None else max(1, len(kept)),
                H,
                W,
                steps.step < 0,
                min(2, C - channel),
                self.tile.rows,
                self.tile.warps,
                num_warps=self.tile.warps,
                num_stages=1,
                **self.limit,
            )


def _split(steps: range, most: int) -> list[range]:
    """Split the steps into pieces of nearly equal length, each of at most `most`."""
    count = ceil_div(len(steps), most)
    bounds = [len(steps) * n // count for n in range(count + 1)]
    return [steps[a:b] for a, b in pairwise(bounds)]
