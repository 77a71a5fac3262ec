"""Triton kernels of `multigrid_gpu`."""

import triton
import triton.language as tl


@triton.jit
def _chain(a1, b1, a2, b2):
    """Compose two affine steps: x to b1 + a1 x, then y to b2 + a2 y."""
    return a1 * a2, a2 * b1 + b2


@triton.jit
def sweep(
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
def residual(u, f, out, d, w, H, W, C, has_f: tl.constexpr, BLOCK: tl.constexpr):
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
def restrict(r, out, p, H, W, h, w, C, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, row = n < h * w, W + 2
    plane = (H + 2) * row
    i, j = n // w, n % w
    at = (2 * i + 1) * row + 2 * j + 1
    r += tl.program_id(1).to(tl.int64) * plane
    p += (tl.program_id(1) // C).to(tl.int64) * 4 * plane
    # If the fine grid ends on a coarse pixel, the pixels below or to the right lie on the border or beyond it.
    below, beside = inside & (2 * i + 1 < H), inside & (2 * j + 1 < W)
    total = _taken(p, r, at, plane, 0, inside)
    total += _taken(p, r, at - 1, plane, 1, inside) + _taken(p, r, at + 1, plane, 0, beside)
    total += _taken(p, r, at - row, plane, 2, inside) + _taken(p, r, at + row, plane, 0, below)
    total += _taken(p, r, at - row - 1, plane, 3, inside) + _taken(p, r, at - row + 1, plane, 2, beside)
    total += _taken(p, r, at + row - 1, plane, 1, below) + _taken(p, r, at + row + 1, plane, 0, below & beside)
    tl.store(out + tl.program_id(1).to(tl.int64) * (h + 2) * (w + 2) + (i + 1) * (w + 2) + j + 1, total, inside)


@triton.jit
def prolong_add(e, u, p, H, W, coarse_row, C, BLOCK: tl.constexpr):
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
def between_two(d, w, p, H, W, BLOCK: tl.constexpr):
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
def amid_four(d, w, p, H, W, BLOCK: tl.constexpr):
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
def interpolated_fields(p, image, H, W, BLOCK: tl.constexpr):
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
def galerkin_entries(product, d, w, h, v, BLOCK: tl.constexpr):
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
def invert_pivots(
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
