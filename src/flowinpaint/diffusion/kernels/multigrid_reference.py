"""The multigrid kernels in plain PyTorch: run anywhere, read like the maths, slow for long lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flowinpaint.diffusion.multigrid import Level, inner, neighbour
from flowinpaint.diffusion.stencil import EDGES

SMALLEST_PIVOT = {torch.float32: 1e-6, torch.float64: 1e-13}
"""Relative to the diagonal: keeps a line that is cut off from all known pixels solvable."""


def half_sweep(level: Level, u: Tensor, f: Tensor, axis: int, parity: int, fresh: bool = False) -> None:
    """Zebra line relaxation in place: solve A u = f on every second line, with the lines between them fixed.

    axis 0: rows, axis 1: columns; parity 0: lines 0, 2, …, parity 1: lines 1, 3, … fresh: treat u as zero.
    A line is a tridiagonal system; its pivots are in `level.pivots`.
    """
    E, S, SE, SW = (level.w[:, k : k + 1] for k in range(4))
    across = (
        neighbour(SE * u, -1, -1)
        + inner(SE) * neighbour(u, 1, 1)
        + neighbour(SW * u, -1, 1)
        + inner(SW) * neighbour(u, 1, -1)
    )
    if axis == 0:
        across = across + neighbour(S * u, -1, 0) + inner(S) * neighbour(u, 1, 0)
        along, inverse = E, level.pivots[:, 0:1]
    else:
        across = across + neighbour(E * u, 0, -1) + inner(E) * neighbour(u, 0, 1)
        along, inverse = S, level.pivots[:, 1:2]
    right = inner(f) if fresh else inner(f) + across
    # From here on lines run along the last axis, so that a step of the recurrence is one column.
    if axis == 1:
        u, right, along, inverse = (x.transpose(-1, -2) for x in (u, right, along, inverse))
    lines = slice(1 + parity, u.shape[-2] - 1, 2)
    right, along, inverse = right[..., parity::2, :], along[..., lines, :], inverse[..., lines, :]
    steps = right.shape[-1]
    y = torch.zeros_like(u[..., lines, :])
    for x in range(1, steps + 1):
        y[..., x] = (right[..., x - 1] + along[..., x - 1] * y[..., x - 1]) * inverse[..., x]
    for x in range(steps, 0, -1):
        y[..., x] += along[..., x] * inverse[..., x] * y[..., x + 1]
    u[..., lines, 1:-1] = y[..., 1:-1]


def residual(level: Level, u: Tensor, f: Tensor, out: Tensor) -> None:
    """Write f - A u to `out`."""
    E, S, SE, SW = (level.w[:, k : k + 1] for k in range(4))
    inner(out).copy_(
        inner(f)
        - inner(level.d) * inner(u)
        + inner(E) * neighbour(u, 0, 1)
        + neighbour(E * u, 0, -1)
        + inner(S) * neighbour(u, 1, 0)
        + neighbour(S * u, -1, 0)
        + inner(SE) * neighbour(u, 1, 1)
        + neighbour(SE * u, -1, -1)
        + inner(SW) * neighbour(u, 1, -1)
        + neighbour(SW * u, -1, 1)
    )


def restrict(level: Level, r: Tensor, out: Tensor) -> None:
    """Write Pᵀ r, on the coarser grid, to `out`."""
    assert level.p is not None
    h, w = out.shape[-2] - 2, out.shape[-1] - 2
    out.zero_()
    for k, (dy, dx) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        weighted = level.p[:, k : k + 1] * r
        # Fine pixel (y, x) adds to coarse pixel (y//2 + dy, x//2 + dx); beyond the grid the weight is zero.
        for py in (0, 1):
            for px in (0, 1):
                part = weighted[..., 1 + py : -1 : 2, 1 + px : -1 : 2][..., : h - dy, : w - dx]
                out[..., 1 + dy : 1 + dy + part.shape[-2], 1 + dx : 1 + dx + part.shape[-1]] += part


def prolong_add(level: Level, e: Tensor, u: Tensor) -> None:
    """Add P e, from the coarser grid, to u."""
    assert level.p is not None
    for k, (dy, dx) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        for py in (0, 1):
            for px in (0, 1):
                target = u[..., 1 + py : -1 : 2, 1 + px : -1 : 2]
                weight = level.p[:, k : k + 1, 1 + py : -1 : 2, 1 + px : -1 : 2]
                source = e[..., 1 + dy : 1 + dy + target.shape[-2], 1 + dx : 1 + dx + target.shape[-1]]
                target += weight * source


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The product of each channel of each image, (B, C, 1, 1)."""
    product: Tensor = torch.linalg.vecdot(a.flatten(2), b.flatten(2))
    return product[..., None, None]


def scale_add(a: Tensor, factor: Tensor, b: Tensor) -> None:
    """Set a to factor · a + b, in place; factor is (B, C, 1, 1)."""
    a.mul_(factor).add_(b)


def add_scaled(a: Tensor, factor: Tensor, b: Tensor) -> None:
    """Set a to a + factor · b, in place; factor is (B, C, 1, 1)."""
    a.addcmul_(factor, b)


def for_each(work: Callable[[Any], object], parts: Sequence[Any]) -> None:
    """Call `work` on every part."""
    for part in parts:
        work(part)


def interpolation(d: Tensor, w: Tensor) -> Tensor:
    """The weights p (B, 4, H+2, W+2) of `multigrid.Level` that follow the operator d, w."""
    E, S, SE, SW = (w[:, k : k + 1] for k in range(4))
    e, west, s, north = inner(E), neighbour(E, 0, -1), inner(S), neighbour(S, -1, 0)
    se, nw, sw, ne = inner(SE), neighbour(SE, -1, -1), inner(SW), neighbour(SW, -1, 1)
    held = (inner(d) - (e + west + s + north + se + nw + sw + ne)).clamp(min=0)
    left, right = west.abs() + nw.abs() + sw.abs(), e.abs() + ne.abs() + se.abs()
    up, down = north.abs() + nw.abs() + ne.abs(), s.abs() + sw.abs() + se.abs()
    across, along = left + right + held, up + down + held
    p = torch.zeros_like(w)
    ul, ur, ll, lr = (inner(p[:, k : k + 1]) for k in range(4))
    odd, even = slice(1, None, 2), slice(0, None, 2)
    ul[..., even, even] = 1
    ul[..., even, odd] = _share(left, across)[..., even, odd]
    ur[..., even, odd] = _share(right, across)[..., even, odd]
    ul[..., odd, even] = _share(up, along)[..., odd, even]
    ll[..., odd, even] = _share(down, along)[..., odd, even]
    # A pixel between four coarse ones interpolates them directly and through the four pixels between them.
    p0, p1, p2 = (p[:, k : k + 1] for k in range(3))
    corners = [
        nw + west * neighbour(p0, 0, -1) + north * neighbour(p0, -1, 0),
        ne + north * neighbour(p1, -1, 0) + e * neighbour(p0, 0, 1),
        sw + west * neighbour(p2, 0, -1) + s * neighbour(p0, 1, 0),
        se + e * neighbour(p2, 0, 1) + s * neighbour(p1, 1, 0),
    ]
    corners = [x.clamp(min=0) for x in corners]
    total = torch.maximum(inner(d), sum(corners[1:], corners[0]))
    for target, x in zip((ul, ur, ll, lr), corners, strict=True):
        target[..., odd, odd] = _share(x, total)[..., odd, odd]
    return p


def _share(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / whole, 0)


def galerkin_by(
    prolong_add: Callable[..., None],
    residual: Callable[..., None],
    restrict: Callable[..., None],
    d: Tensor,
    w: Tensor,
    p: Tensor,
) -> tuple[Tensor, Tensor]:
    """Diagonal (B, 1, ·, ·) and edges (B, 4, ·, ·) of Pᵀ A P on the coarser grid, computed with the given kernels.

    They are read from its action on the nine fields that are one on every third pixel of every third row. No pixel has
    two neighbours of the same field, so each value of a product is a single entry of the operator. Processing three
    fields at a time limits the memory.
    """
    B, _, H, W = d.shape
    h, v = (H - 1) // 2, (W - 1) // 2
    fine = Level(d, w, d, p)
    y, x = torch.arange(h, device=d.device)[:, None], torch.arange(v, device=d.device)
    of_column = x % 3 == torch.arange(3, device=d.device)[:, None, None]
    products = d.new_zeros(B, 9, h + 2, v + 2)
    probe, zero = d.new_zeros(B, 3, h + 2, v + 2), d.new_zeros(B, 3, H, W)
    image, applied, product = torch.zeros_like(zero), torch.zeros_like(zero), torch.zeros_like(probe)
    for row in range(3):
        inner(probe).copy_(of_column & (y % 3 == row))
        prolong_add(fine, probe, image.zero_())
        residual(fine, image, zero, applied)
        restrict(fine, applied, product)
        products[:, 3 * row : 3 * row + 3] = -product
    coarse_d, coarse_w = torch.zeros_like(products[:, :1]), torch.zeros_like(products[:, :4])
    for k, (dy, dx) in enumerate(((0, 0), *EDGES)):
        field = ((y + dy) % 3 * 3 + (x + dx) % 3).expand(B, 1, h, v)
        entry = torch.gather(inner(products), 1, field)
        if k == 0:
            inner(coarse_d).copy_(torch.where(entry > 0, entry, 1))
        else:
            stays = (y + dy < h) & (x + dx < v) & (x + dx >= 0)
            inner(coarse_w[:, k - 1 : k]).copy_(torch.where(stays, -entry, 0))
    return coarse_d, coarse_w


galerkin = partial(galerkin_by, prolong_add, residual, restrict)


def invert_pivots(d: Tensor, w: Tensor) -> Tensor:
    """The inverse pivots of every row and every column, (B, 2, H+2, W+2)."""
    out = torch.zeros_like(w[:, :2])
    for along in (0, 1):
        D, edge, inverse = d[:, 0], w[:, along], out[:, along]
        if along == 1:
            D, edge, inverse = (x.transpose(-1, -2) for x in (D, edge, inverse))
        for x in range(1, D.shape[-1] - 1):
            pivot = D[..., x] - edge[..., x - 1] ** 2 * inverse[..., x - 1]
            inverse[..., 1:-1, x] = (1 / torch.maximum(pivot, SMALLEST_PIVOT[d.dtype] * D[..., x]))[..., 1:-1]
    return out
