"""An FSI cycle for inference on the CPU, compiled by numba.

A step reads and writes more than a cache holds, so several steps move down the rows together as a wave. Each thread has
a strip of rows, which shrinks by one row per step where it meets another strip; when all strips are done, the wedges
missing between them are filled, growing by one row per step. Nothing is computed twice, and two buffers suffice.

A pixel is a sum over fifteen rows. The compiler vectorises a loop only if it can check beforehand that its output
overlaps none of its inputs, and it gives up at more than eight such checks; so a row is summed in two loops.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numba import float32, uintp
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import fsi_reference
from flowinpaint.diffusion.kernels.compiled import compiled, inner
from flowinpaint.diffusion.kernels.cpu_strips import bounds_of, threads_for, together

_CACHE = 1 << 20
"""Bytes of the rows that a wave of steps works on: a typical second-level cache."""
_LONGEST_WAVE = 8
"""Steps of a wave; more give no speed-up and larger wedges."""


def diffuse(u: Tensor, data: DataTerm, weights: Tensor | None, tau: Tensor | float, steps: int) -> Tensor:
    """One FSI cycle from u, as in `fsi_reference`, which computes types other than float32.

    weights (B, 4, H, W): edges that leave the image weigh zero; None for 1/4 between any two neighbours.
    """
    if u.dtype != torch.float32:
        return fsi_reference.diffuse(u, data, weights, tau, steps)
    B, C, H, W = u.shape
    known, f = data.exact.contiguous(), data.f.contiguous()
    w = u.new_zeros(B, 4, 1, 1) if weights is None else weights.contiguous()
    soft = data.weight is not None
    stiffness = (
        torch.where(known, 0, tau * data.weight).contiguous() if data.weight is not None else u.new_zeros(B, 1, 1, 1)
    )
    threads = threads_for(H // 2, u.numel())
    bytes_of_row = W * (2 * 4 * C + 4 * 4 + 1)
    longest = max(1, min(_LONGEST_WAVE, H // (2 * threads), _CACHE // bytes_of_row))
    now, before = (u.clone(memory_format=torch.contiguous_format) for _ in range(2))
    for first in range(0, steps, longest):
        count = min(longest, steps - first)
        arrays = [x.numpy() for x in (now, before, known, f, w, stiffness)]
        work = partial(_sweep, *arrays, first, count, weights is None, soft)
        strips = bounds_of(H, threads)
        together(work, [(top, bottom, int(top > 0), -int(bottom < H)) for top, bottom in strips])
        if count > 1:
            together(work, [(seam, seam, -1, 1) for seam, _ in strips[1:]])
        if count % 2:
            now, before = before, now
    return now


@inner
def _at_end(x, u, north, south, E, S, SE, SW, Sn, SEn, SWn):
    """(A u) at the first or last pixel of a row."""
    total = S[x] * (south[x] - u[x]) + Sn[x] * (north[x] - u[x])
    if x + 1 < u.shape[0]:
        total += E[x] * (u[x + 1] - u[x]) + SE[x] * (south[x + 1] - u[x]) + SWn[x + 1] * (north[x + 1] - u[x])
    if x > 0:
        total += E[x - 1] * (u[x - 1] - u[x]) + SW[x] * (south[x - 1] - u[x]) + SEn[x - 1] * (north[x - 1] - u[x])
    return total


@inner
def _step(p, u, Au, known, gamma):
    """u_{l+1} from p = u_{l-1}, u and A u at a pixel."""
    new = p + gamma * (u + Au - p)
    return u if known else new


@inner
def _weighted_row(p, u, north, south, E, S, SE, SW, Sn, SEn, SWn, known, gamma, Au):
    """Overwrite p = u_{l-1} with u_{l+1} in a row.

    `north` and `south` are the rows above and below u; Sn, SEn, SWn the weights stored in the row above; Au a buffer.
    """
    one, last = uintp(1), u.shape[0] - 1  # unsigned: signed indices need a check for negative values
    for x in range(one, uintp(max(last, 1))):
        Au[x] = (
            E[x] * (u[x + one] - u[x])
            + E[x - one] * (u[x - one] - u[x])
            + S[x] * (south[x] - u[x])
            + SE[x] * (south[x + one] - u[x])
            + SW[x] * (south[x - one] - u[x])
        )
    for x in range(one, uintp(max(last, 1))):
        total = (
            Au[x]
            + Sn[x] * (north[x] - u[x])
            + SEn[x - one] * (north[x - one] - u[x])
            + SWn[x + one] * (north[x + one] - u[x])
        )
        p[x] = _step(p[x], u[x], total, known[x], gamma)
    for x in range(0, last + 1, max(last, 1)):
        p[x] = _step(p[x], u[x], _at_end(x, u, north, south, E, S, SE, SW, Sn, SEn, SWn), known[x], gamma)


@inner
def _isotropic_row(p, u, north, south, known, gamma):
    """The same with weight 1/4 on every edge; at the image border, and only there, `north` or `south` is u itself."""
    one, last, quarter = uintp(1), u.shape[0] - 1, float32(0.25)
    for x in range(one, uintp(max(last, 1))):
        total = (u[x + one] - u[x]) + (u[x - one] - u[x]) + (south[x] - u[x]) + (north[x] - u[x])
        p[x] = _step(p[x], u[x], quarter * total, known[x], gamma)
    for x in range(0, last + 1, max(last, 1)):
        left, right = u[max(x - 1, 0)], u[min(x + 1, last)]
        total = (right - u[x]) + (left - u[x]) + (south[x] - u[x]) + (north[x] - u[x])
        p[x] = _step(p[x], u[x], quarter * total, known[x], gamma)


@inner
def _bind_row(p, held, stiffness, gamma):
    """The implicit step of a soft data term: p = held + (p - held) / (1 + γτk)."""
    for x in range(uintp(p.shape[0])):
        p[x] = held[x] + (p[x] - held[x]) / (float32(1) + gamma * stiffness[x])


@compiled("aakaaaiibbr")
def _sweep(even, odd, known, held, weights, stiffness, first, count, isotropic, soft, rows):
    """Steps first … first + count - 1 of a cycle, as a wave down the rows, which stay in the cache from step to step.

    On entry `even` holds u_first and `odd` its predecessor; step t overwrites the older of its two iterates. rows is
    (top, bottom, top_slope, bottom_slope): step t computes the rows from top + t · top_slope to bottom + t ·
    bottom_slope, and needs the result of step t - 1 in the adjacent rows.
    Step 0 of a cycle writes `held` where known, later steps keep the values there. soft: pixels elsewhere are bound to
    `held` with stiffness τk.
    """
    (B, C, H, W), (top, bottom, top_slope, bottom_slope) = even.shape, rows
    Au, nothing = np.empty(W, np.float32), np.zeros(W, np.float32)
    start = max(0, min(top, top + top_slope * (count - 1)))
    stop = min(H, max(bottom, bottom + bottom_slope * (count - 1)))
    for b in range(B):
        E, S, SE, SW = weights[b, 0], weights[b, 1], weights[b, 2], weights[b, 3]
        for front in range(start, stop + count - 1):
            for t in range(count):
                y = front - t
                if y < max(0, top + top_slope * t) or y >= min(H, bottom + bottom_slope * t):
                    continue
                l = first + t  # noqa: E741  (the paper's index)
                gamma = float32((4 * l + 2) / (2 * l + 3))
                for c in range(C):
                    u, p = (even[b, c], odd[b, c]) if t % 2 == 0 else (odd[b, c], even[b, c])
                    north, south = u[max(y - 1, 0)], u[min(y + 1, H - 1)]
                    if isotropic:
                        _isotropic_row(p[y], u[y], north, south, known[b, 0, y], gamma)
                    else:
                        Sn, SEn, SWn = (S[y - 1], SE[y - 1], SW[y - 1]) if y > 0 else (nothing, nothing, nothing)
                        _weighted_row(
                            p[y], u[y], north, south, E[y], S[y], SE[y], SW[y], Sn, SEn, SWn, known[b, 0, y], gamma, Au
                        )
                    if soft:
                        _bind_row(p[y], held[b, c, y], stiffness[b, 0, y], gamma)
                    if l == 0:
                        for x in range(W):
                            if known[b, 0, y, x]:
                                p[y, x] = held[b, c, y, x]
