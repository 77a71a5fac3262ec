"""The multigrid kernels for CUDA, in Triton: one launch each, a program to a line or to a block of pixels.

A line's recurrences y_t = b_t + a_t y_{t-1} are solved by an associative scan over (a, b), so the pixels of a line work
in parallel as well as the lines.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flowinpaint.diffusion.grid import Level
from flowinpaint.diffusion.kernels import reference
from flowinpaint.diffusion.kernels.reference import SMALLEST_PIVOT

_BLOCK = 256
_LONGEST_SCAN = 4096
"""Pixels of all its lines that a program scans at once."""


def half_sweep(level: Level, u: Tensor, f: Tensor, axis: int, parity: int, fresh: bool = False) -> None:
    """Zebra line relaxation in place, as in `reference`."""
    H, W = level.size
    count, length = ((W if axis else H) - parity + 1) // 2, H if axis else W
    if count == 0:
        return
    # Neighbouring columns are neighbours in memory, so a program takes several at once where they are long.
    lines = 1 if axis == 0 or length <= 128 else 4 if length <= 256 else 8
    block = min(triton.next_power_of_2(length), _LONGEST_SCAN // lines)
    B, C, rows, row = u.shape
    _sweep[triton.cdiv(count, lines), B * C](
        u,
        f,
        level.w,
        level.pivots,
        parity,
        count,
        length,
        C,
        rows * row,
        row,
        axis,
        fresh,
        block,
        lines,
        num_warps=4 if block * lines <= 1024 else 8,
    )


def residual(level: Level, u: Tensor, f: Tensor, out: Tensor) -> None:
    """Write f - A u to `out`."""
    B, C = u.shape[:2]
    H, W = level.size
    _residual[triton.cdiv(H * W, _BLOCK), B * C](u, f, out, level.d, level.w, H, W, C, True, _BLOCK)


def restrict(level: Level, r: Tensor, out: Tensor) -> None:
    """Write Pᵀ r, on the coarser grid, to `out`."""
    B, C, rows, row = out.shape
    h, w = rows - 2, row - 2
    _restrict[triton.cdiv(h * w, _BLOCK), B * C](r, out, level.p, *level.size, h, w, C, _BLOCK)


def prolong_add(level: Level, e: Tensor, u: Tensor) -> None:
    """Add P e, from the coarser grid, to u."""
    B, C, _, row = e.shape
    H, W = level.size
    _prolong_add[triton.cdiv(H * W, _BLOCK), B * C](e, u, level.p, H, W, row, C, _BLOCK)


for_each = reference.for_each
dot, scale_add, add_scaled = reference.dot, reference.scale_add, reference.add_scaled


def interpolation(d: Tensor, w: Tensor) -> Tensor:
    """The interpolation weights of `reference.interpolation`."""
    p = torch.zeros_like(w)
    H, W = d.shape[-2] - 2, d.shape[-1] - 2
    grid = (triton.cdiv(H * W, _BLOCK), d.shape[0])
    _between_two[grid](d, w, p, H, W, _BLOCK)
    _amid_four[grid](d, w, p, H, W, _BLOCK)
    return p


def galerkin(d: Tensor, w: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Diagonal and edges of Pᵀ A P, as in `reference`, from all nine fields at once."""
    B, _, rows, row = d.shape
    H, W = rows - 2, row - 2
    h, v = (H + 1) // 2, (W + 1) // 2
    fine = Level(d, w, d, p)
    image, applied = d.new_zeros(B, 9, rows, row), d.new_zeros(B, 9, rows, row)
    product, coarse_d = d.new_zeros(B, 9, h + 2, v + 2), d.new_zeros(B, 1, h + 2, v + 2)
    coarse_w = d.new_zeros(B, 4, h + 2, v + 2)
    _interpolated_fields[triton.cdiv(H * W, _BLOCK), B](p, image, H, W, _BLOCK)
    _residual[triton.cdiv(H * W, _BLOCK), B * 9](image, image, applied, d, w, H, W, 9, False, _BLOCK)
    restrict(fine, applied, product)
    _galerkin_entries[triton.cdiv(h * v, _BLOCK), B](product, coarse_d, coarse_w, h, v, _BLOCK)
    return coarse_d, coarse_w


def invert_pivots(d: Tensor, w: Tensor) -> Tensor:
    """The inverse pivots of every row and every column, (B, 2, H+2, W+2)."""
    out = torch.zeros_like(w[:, :2])
    B, _, rows, row = d.shape
    lines = 32
    for axis in (0, 1):
        count, length = (row - 2, rows - 2) if axis else (rows - 2, row - 2)
        _invert_pivots[triton.cdiv(count, lines), B](
            d, w, out, count, length, rows * row, row, axis, SMALLEST_PIVOT[d.dtype], lines, num_warps=1
        )
    return out


@triton.jit
def _chain(a1, b1, a2, b2):
    """Two steps, x to b1 + a1 x and on to b2 + a2 times that, as one."""
    return a1 * a2, a2 * b1 + b2


@triton.jit
def _sweep(
    u,
    f,
    w,
    pivots,
    parity,
    count,
    length,
    C,
    plane,
    row,
    axis: tl.constexpr,
    fresh: tl.constexpr,
    BLOCK: tl.constexpr,
    LINES: tl.constexpr,
):
    number = tl.program_id(0) * LINES + tl.arange(0, LINES)[None, :]
    line, image = 1 + parity + 2 * number, tl.program_id(1) // C
    u += tl.program_id(1).to(tl.int64) * plane
    f += tl.program_id(1).to(tl.int64) * plane
    w += image.to(tl.int64) * 4 * plane
    inverse = pivots + (image.to(tl.int64) * 2 + axis) * plane
    diagonal, anti = w + 2 * plane, w + 3 * plane
    if axis == 0:
        along, beside, step, stride = w, w + plane, 1, row
    else:
        along, beside, step, stride = w + plane, w, row, 1
    lanes = tl.arange(0, BLOCK)[:, None]
    blocks = tl.cdiv(length, BLOCK)
    carry = tl.zeros([1, LINES], u.dtype.element_ty)
    for i in range(blocks):
        t = 1 + i * BLOCK + lanes
        inside = (t <= length) & (number < count)
        p = line * stride + t * step
        right = tl.load(f + p, inside, 0.0)
        if not fresh:
            right += tl.load(beside + p - stride, inside, 0.0) * tl.load(u + p - stride, inside, 0.0)
            right += tl.load(beside + p, inside, 0.0) * tl.load(u + p + stride, inside, 0.0)
            right += tl.load(diagonal + p - row - 1, inside, 0.0) * tl.load(u + p - row - 1, inside, 0.0)
            right += tl.load(diagonal + p, inside, 0.0) * tl.load(u + p + row + 1, inside, 0.0)
            right += tl.load(anti + p - row + 1, inside, 0.0) * tl.load(u + p - row + 1, inside, 0.0)
            right += tl.load(anti + p, inside, 0.0) * tl.load(u + p + row - 1, inside, 0.0)
        scale = tl.load(inverse + p, inside, 0.0)
        a, b = tl.associative_scan((scale * tl.load(along + p - step, inside, 0.0), scale * right), 0, _chain)
        y = b + a * carry
        carry = tl.sum(tl.where(lanes == BLOCK - 1, y, 0.0), 0)[None, :]
        tl.store(u + p, y, inside)
    tl.debug_barrier()
    carry = tl.zeros([1, LINES], u.dtype.element_ty)
    for i in range(blocks):
        t = 1 + (blocks - 1 - i) * BLOCK + lanes
        inside = (t <= length) & (number < count)
        p = line * stride + t * step
        factor = tl.load(along + p, inside, 0.0) * tl.load(inverse + p, inside, 0.0)
        a, b = tl.associative_scan((factor, tl.load(u + p, inside, 0.0)), 0, _chain, reverse=True)
        y = b + a * carry
        carry = tl.sum(tl.where(lanes == 0, y, 0.0), 0)[None, :]
        tl.store(u + p, y, inside)


@triton.jit
def _residual(u, f, out, d, w, H, W, C, has_f: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, row = n < H * W, W + 2
    plane = (H + 2) * row
    p = (n // W + 1) * row + n % W + 1
    image = (tl.program_id(1) // C).to(tl.int64)
    field = tl.program_id(1).to(tl.int64) * plane
    u, E = u + field, w + image * 4 * plane
    S, SE, SW = E + plane, E + 2 * plane, E + 3 * plane
    r = -tl.load(d + image * plane + p, inside, 0.0) * tl.load(u + p, inside, 0.0)
    if has_f:
        r += tl.load(f + field + p, inside, 0.0)
    r += tl.load(E + p, inside, 0.0) * tl.load(u + p + 1, inside, 0.0)
    r += tl.load(E + p - 1, inside, 0.0) * tl.load(u + p - 1, inside, 0.0)
    r += tl.load(S + p, inside, 0.0) * tl.load(u + p + row, inside, 0.0)
    r += tl.load(S + p - row, inside, 0.0) * tl.load(u + p - row, inside, 0.0)
    r += tl.load(SE + p, inside, 0.0) * tl.load(u + p + row + 1, inside, 0.0)
    r += tl.load(SE + p - row - 1, inside, 0.0) * tl.load(u + p - row - 1, inside, 0.0)
    r += tl.load(SW + p, inside, 0.0) * tl.load(u + p + row - 1, inside, 0.0)
    r += tl.load(SW + p - row + 1, inside, 0.0) * tl.load(u + p - row + 1, inside, 0.0)
    tl.store(out + field + p, r, inside)


@triton.jit
def _taken(p, r, at, plane, which: tl.constexpr, inside):
    return tl.load(p + which * plane + at, inside, 0.0) * tl.load(r + at, inside, 0.0)


@triton.jit
def _restrict(r, out, p, H, W, h, w, C, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, row = n < h * w, W + 2
    plane = (H + 2) * row
    i, j = n // w, n % w
    at = (2 * i + 1) * row + 2 * j + 1
    r += tl.program_id(1).to(tl.int64) * plane
    p += (tl.program_id(1) // C).to(tl.int64) * 4 * plane
    # The pixels below and to the right are the border's or beyond it where the fine grid ends on a coarse pixel.
    below, beside = inside & (2 * i + 1 < H), inside & (2 * j + 1 < W)
    total = _taken(p, r, at, plane, 0, inside)
    total += _taken(p, r, at - 1, plane, 1, inside) + _taken(p, r, at + 1, plane, 0, beside)
    total += _taken(p, r, at - row, plane, 2, inside) + _taken(p, r, at + row, plane, 0, below)
    total += _taken(p, r, at - row - 1, plane, 3, inside) + _taken(p, r, at - row + 1, plane, 2, beside)
    total += _taken(p, r, at + row - 1, plane, 1, below) + _taken(p, r, at + row + 1, plane, 0, below & beside)
    tl.store(out + tl.program_id(1).to(tl.int64) * (h + 2) * (w + 2) + (i + 1) * (w + 2) + j + 1, total, inside)


@triton.jit
def _prolong_add(e, u, p, H, W, coarse_row, C, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, row = n < H * W, W + 2
    plane = (H + 2) * row
    y, x = n // W, n % W
    at = (y + 1) * row + x + 1
    coarse = (y // 2 + 1) * coarse_row + x // 2 + 1
    e += tl.program_id(1).to(tl.int64) * ((H + 1) // 2 + 2) * coarse_row
    u += tl.program_id(1).to(tl.int64) * plane
    p += (tl.program_id(1) // C).to(tl.int64) * 4 * plane
    total = tl.load(u + at, inside, 0.0)
    total += tl.load(p + at, inside, 0.0) * tl.load(e + coarse, inside, 0.0)
    total += tl.load(p + plane + at, inside, 0.0) * tl.load(e + coarse + 1, inside, 0.0)
    total += tl.load(p + 2 * plane + at, inside, 0.0) * tl.load(e + coarse + coarse_row, inside, 0.0)
    total += tl.load(p + 3 * plane + at, inside, 0.0) * tl.load(e + coarse + coarse_row + 1, inside, 0.0)
    tl.store(u + at, total, inside)


@triton.jit
def _between_two(d, w, p, H, W, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y, x, row = n // W, n % W, W + 2
    plane, at = (H + 2) * row, (y + 1) * row + x + 1
    image = tl.program_id(1).to(tl.int64)
    d, w, p = d + image * plane, w + image * 4 * plane, p + image * 4 * plane
    inside, odd_row, odd_column = n < H * W, y % 2 == 1, x % 2 == 1
    e, west = tl.load(w + at, inside, 0.0), tl.load(w + at - 1, inside, 0.0)
    s, north = tl.load(w + plane + at, inside, 0.0), tl.load(w + plane + at - row, inside, 0.0)
    se, nw = tl.load(w + 2 * plane + at, inside, 0.0), tl.load(w + 2 * plane + at - row - 1, inside, 0.0)
    sw, ne = tl.load(w + 3 * plane + at, inside, 0.0), tl.load(w + 3 * plane + at - row + 1, inside, 0.0)
    held = tl.maximum(tl.load(d + at, inside, 0.0) - (e + west + s + north + se + nw + sw + ne), 0.0)
    here = tl.where(odd_row, tl.abs(north) + tl.abs(ne), tl.abs(west) + tl.abs(sw)) + tl.abs(nw)
    there = tl.where(odd_row, tl.abs(s) + tl.abs(sw), tl.abs(e) + tl.abs(ne)) + tl.abs(se)
    total = here + there + held
    share = tl.where(total > 0, 1 / tl.where(total > 0, total, 1.0), 0.0)
    on_coarse = (odd_row == 0) & (odd_column == 0)
    tl.store(p + at, tl.where(on_coarse, 1.0, here * share), inside & ((odd_row == 0) | (odd_column == 0)))
    between = inside & (odd_row != odd_column)
    tl.store(p + tl.where(odd_row, 2, 1) * plane + at, there * share, between)


@triton.jit
def _amid_four(d, w, p, H, W, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y, x, row = n // W, n % W, W + 2
    plane, at = (H + 2) * row, (y + 1) * row + x + 1
    image = tl.program_id(1).to(tl.int64)
    d, w, p = d + image * plane, w + image * 4 * plane, p + image * 4 * plane
    inside = (n < H * W) & (y % 2 == 1) & (x % 2 == 1)
    e, west = tl.load(w + at, inside, 0.0), tl.load(w + at - 1, inside, 0.0)
    s, north = tl.load(w + plane + at, inside, 0.0), tl.load(w + plane + at - row, inside, 0.0)
    ul = tl.load(w + 2 * plane + at - row - 1, inside, 0.0)
    ul += west * tl.load(p + at - 1, inside, 0.0) + north * tl.load(p + at - row, inside, 0.0)
    ur = tl.load(w + 3 * plane + at - row + 1, inside, 0.0)
    ur += north * tl.load(p + plane + at - row, inside, 0.0) + e * tl.load(p + at + 1, inside, 0.0)
    ll = tl.load(w + 3 * plane + at, inside, 0.0)
    ll += west * tl.load(p + 2 * plane + at - 1, inside, 0.0) + s * tl.load(p + at + row, inside, 0.0)
    lr = tl.load(w + 2 * plane + at, inside, 0.0)
    lr += e * tl.load(p + 2 * plane + at + 1, inside, 0.0) + s * tl.load(p + plane + at + row, inside, 0.0)
    ul, ur, ll, lr = tl.maximum(ul, 0.0), tl.maximum(ur, 0.0), tl.maximum(ll, 0.0), tl.maximum(lr, 0.0)
    total = tl.maximum(tl.load(d + at, inside, 1.0), ul + ur + ll + lr)
    share = tl.where(total > 0, 1 / tl.where(total > 0, total, 1.0), 0.0)
    tl.store(p + at, ul * share, inside)
    tl.store(p + plane + at, ur * share, inside)
    tl.store(p + 2 * plane + at, ll * share, inside)
    tl.store(p + 3 * plane + at, lr * share, inside)


@triton.jit
def _interpolated_fields(p, image, H, W, BLOCK: tl.constexpr):
    """P times the nine coarse fields that are one on every third pixel of every third row."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, row = n < H * W, W + 2
    y, x = n // W, n % W
    plane, at = (H + 2) * row, (y + 1) * row + x + 1
    b = tl.program_id(1).to(tl.int64)
    p, image = p + b * 4 * plane, image + b * 9 * plane
    for k in tl.static_range(4):
        field = (y // 2 + k // 2) % 3 * 3 + (x // 2 + k % 2) % 3
        weight = tl.load(p + k * plane + at, inside, 0.0)
        tl.store(image + field * plane + at, weight, inside)


@triton.jit
def _galerkin_entries(product, d, w, h, v, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y, x, row = n // v, n % v, v + 2
    plane, at = (h + 2) * row, (y + 1) * row + x + 1
    image = tl.program_id(1).to(tl.int64)
    product, d, w = product + image * 9 * plane, d + image * plane, w + image * 4 * plane
    inside, right, below, left = n < h * v, x + 1 < v, y + 1 < h, x > 0
    own = -tl.load(product + (y % 3 * 3 + x % 3) * plane + at, inside, 0.0)
    tl.store(d + at, tl.where(own > 0, own, 1.0), inside)
    east = tl.load(product + (y % 3 * 3 + (x + 1) % 3) * plane + at, inside & right, 0.0)
    tl.store(w + at, east, inside)
    south = tl.load(product + ((y + 1) % 3 * 3 + x % 3) * plane + at, inside & below, 0.0)
    tl.store(w + plane + at, south, inside)
    south_east = tl.load(product + ((y + 1) % 3 * 3 + (x + 1) % 3) * plane + at, inside & below & right, 0.0)
    tl.store(w + 2 * plane + at, south_east, inside)
    south_west = tl.load(product + ((y + 1) % 3 * 3 + (x + 2) % 3) * plane + at, inside & below & left, 0.0)
    tl.store(w + 3 * plane + at, south_west, inside)


@triton.jit
def _invert_pivots(
    d,
    w,
    out,
    count,
    length,
    plane,
    row,
    axis: tl.constexpr,
    smallest: tl.constexpr,
    LINES: tl.constexpr,
):
    line = 1 + tl.program_id(0) * LINES + tl.arange(0, LINES)
    inside, image = line <= count, tl.program_id(1).to(tl.int64)
    d, along, out = d + image * plane, w + (image * 4 + axis) * plane, out + (image * 2 + axis) * plane
    if axis == 0:
        step, stride = 1, row
    else:
        step, stride = row, 1
    before = tl.zeros([LINES], d.dtype.element_ty)
    for t in range(1, length + 1):
        p = line * stride + t * step
        diagonal, edge = tl.load(d + p, inside, 1.0), tl.load(along + p - step, inside, 0.0)
        before = 1 / tl.maximum(diagonal - edge * edge * before, smallest * diagonal)
        tl.store(out + p, before, inside)
