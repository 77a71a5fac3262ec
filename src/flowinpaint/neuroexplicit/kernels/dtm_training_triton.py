"""Triton kernels of `dtm_training`: the gradients of the kernels of `dtm_triton`.

A gradient is zero where its activation is zero (ReLU).
"""

import triton
import triton.language as tl

from flowinpaint.neuroexplicit.kernels.dtm_triton import _half, _multiply, _multiply_taps


@triton.jit
def _store_active(out, active, sums, program, at, active_at, value, mask, n, N):
    """Write the value where active, and its sum over pixels (the bias gradient) to this program's row of sums."""
    value = tl.where((tl.load(active + active_at, mask, 0.0) > 0) & mask, value, 0.0)
    tl.store(out + at, _half(value, out.dtype.element_ty), mask)
    tl.store(sums + program * N + n, tl.sum(value, 0), n < N)


@triton.jit(do_not_specialize=["pixels", "H", "W"])
def head_gradient(
    dz,
    weight,
    active,
    out,
    sums,
    pixels,
    H,
    W,
    N: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradient for the input of the 3×3 to z: dz (B, H, W, 8) to out (B, H, W, N)."""
    start = tl.program_id(0) * PIXELS
    m = tl.arange(0, PIXELS)
    y, x = (start + m) // W % H, (start + m) % W
    inside = start + m < pixels
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    dz += tl.cast(start, tl.int64) * 8
    acc = _multiply_taps(acc, dz, m, y, x, inside, weight, n, H, W, N, 0, 64)
    acc = _multiply_taps(acc, dz, m, y, x, inside, weight, n, H, W, N, 64, 16)
    at = tl.cast(start, tl.int64) * N + m[:, None] * N + n[None, :]
    _store_active(out, active, sums, tl.program_id(0), at, at, acc, inside[:, None] & (n < N)[None, :], n, N)


@triton.jit(do_not_specialize=["pixels", "H", "W"])
def convolution_gradient(
    g,
    weight,
    active,
    out,
    sums,
    pixels,
    H,
    W,
    C: tl.constexpr,
    N: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradient of a 3×3 of stride 1: g (B, H, W, C) to out (B, H, W, N); the weight has its taps in reverse order."""
    start = tl.program_id(0) * PIXELS
    m = tl.arange(0, PIXELS)
    inside = start + m < pixels
    y, x = (start + m) // W % H, (start + m) % W
    g += tl.cast(start, tl.int64) * C
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    STEP: tl.constexpr = HEAD + TAIL
    PARTS: tl.constexpr = C // STEP
    for i in range(9 * PARTS):
        tap, first = i // PARTS, i % PARTS * STEP
        dy, dx = tap // 3 - 1, tap % 3 - 1
        valid = inside & (y + dy >= 0) & (y + dy < H) & (x + dx >= 0) & (x + dx < W)
        near = (m + dy * W + dx) * C
        acc = _multiply(acc, g, near, valid, weight, tap * C, n, N, first, HEAD)
        if TAIL:
            acc = _multiply(acc, g, near, valid, weight, tap * C, n, N, first + HEAD, TAIL)
    at = tl.cast(start, tl.int64) * N + m[:, None] * N + n[None, :]
    _store_active(out, active, sums, tl.program_id(0), at, at, acc, inside[:, None] & (n < N)[None, :], n, N)


@triton.jit(do_not_specialize=["pixels", "h", "w"])
def strided_gradient(
    g,
    weight,
    skipped,
    active,
    out,
    sums,
    pixels,
    h,
    w,
    C: tl.constexpr,
    N: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    ROW: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradient of a 3×3 of stride 2: g (B, h, w, C) to out (B, 2 h, 2 w, N), plus `skipped` from the skip connection.

    Pixels of `skipped` and `active` are ROW values apart. A program computes one of the four pixels under each of its
    pixels; these see 1, 2, 2 and 4 taps.
    """
    start = tl.program_id(0) * PIXELS
    below, right = tl.program_id(2) // 2, tl.program_id(2) % 2
    m = tl.arange(0, PIXELS)
    inside = start + m < pixels
    y, x = (start + m) // w % h, (start + m) % w
    g += tl.cast(start, tl.int64) * C
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    STEP: tl.constexpr = HEAD + TAIL
    PARTS: tl.constexpr = C // STEP
    for i in range((1 + below) * (1 + right) * PARTS):
        first = i % PARTS * STEP
        row, column = i // PARTS // (1 + right), i // PARTS % (1 + right)
        # An even row is the middle of one window; an odd one is the last of one window and the first of the next.
        dy, dx = below * (1 - row), right * (1 - column)
        tap = (1 + below * (2 * row - 1)) * 3 + 1 + right * (2 * column - 1)
        valid = inside & (y + dy < h) & (x + dx < w)
        near = (m + dy * w + dx) * C
        acc = _multiply(acc, g, near, valid, weight, tap * C, n, N, first, HEAD)
        if TAIL:
            acc = _multiply(acc, g, near, valid, weight, tap * C, n, N, first + HEAD, TAIL)
    origin = start // w * 4 * w + start % w * 2
    pixel = (start + m) // w * 4 * w + (start + m) % w * 2 + below * 2 * w + right - origin
    at = tl.cast(origin, tl.int64) * N + pixel[:, None] * N + n[None, :]
    joined = tl.cast(origin, tl.int64) * ROW + pixel[:, None] * ROW + n[None, :]
    mask = inside[:, None] & (n < N)[None, :]
    acc += tl.load(skipped + joined, mask, 0.0)
    _store_active(out, active, sums, tl.program_id(0) * 4 + tl.program_id(2), at, joined, acc, mask, n, N)


@triton.jit(do_not_specialize=["pixels", "h", "w"])
def upsampling_gradient(
    g,
    dz,
    weight,
    active,
    out,
    sums,
    pixels,
    h,
    w,
    C: tl.constexpr,
    C_ROW: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    N: tl.constexpr,
    TAPS: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradient of a decoder: g (B, 2 h, 2 w, C), pixels C_ROW values apart, and dz (B, h, w, 8) if TAPS, to out (…, N).

    The rows of weight are those of the four pixels, then those of the taps to z.
    """
    start = tl.program_id(0) * PIXELS
    m = tl.arange(0, PIXELS)
    inside = start + m < pixels
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    origin = start // w * 4 * w + start % w * 2
    corner = (start + m) // w * 4 * w + (start + m) % w * 2 - origin
    g += tl.cast(origin, tl.int64) * C_ROW
    STEP: tl.constexpr = HEAD + TAIL
    PARTS: tl.constexpr = C // STEP
    for i in range(4 * PARTS):
        part, first = i // PARTS, i % PARTS * STEP
        rows = (corner + part // 2 * 2 * w + part % 2) * C_ROW
        acc = _multiply(acc, g, rows, inside, weight, part * C, n, N, first, HEAD)
        if TAIL:
            acc = _multiply(acc, g, rows, inside, weight, part * C, n, N, first + HEAD, TAIL)
    if TAPS:
        y, x = (start + m) // w % h, (start + m) % w
        dz += tl.cast(start, tl.int64) * 8
        weight += 4 * C * N
        acc = _multiply_taps(acc, dz, m, y, x, inside, weight, n, h, w, N, 0, 64)
        acc = _multiply_taps(acc, dz, m, y, x, inside, weight, n, h, w, N, 64, 16)
    at = tl.cast(start, tl.int64) * N + m[:, None] * N + n[None, :]
    _store_active(out, active, sums, tl.program_id(0), at, at, acc, inside[:, None] & (n < N)[None, :], n, N)


@triton.jit
def _add_product(acc, a, b, T: tl.constexpr, TURNED: tl.constexpr):
    """Add aᵀ b to acc, or bᵀ a if TURNED.

    The factor that is converted to T must come second: as the first it would not be prefetched.
    """
    return tl.dot(tl.trans(b), a.to(T), acc) if TURNED else tl.dot(tl.trans(a), b.to(T), acc)


@triton.jit
def _store_sums(out, acc, row, column, is_row, is_column, N, TURNED: tl.constexpr):
    """Write acc, transposed if TURNED, to rows and columns of a matrix with N columns."""
    if TURNED:
        tl.store(out + row[None, :] * N + column[:, None], acc, is_row[None, :] & is_column[:, None])
    else:
        tl.store(out + row[:, None] * N + column[None, :], acc, is_row[:, None] & is_column[None, :])


@triton.jit(do_not_specialize=["pixels", "H", "W", "stride", "chunks"])
def weight_gradient(
    source,
    other,
    out,
    pixels,
    H,
    W,
    stride,
    chunks,
    C: tl.constexpr,
    C_ROW: tl.constexpr,
    N: tl.constexpr,
    SIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """The sum over pixels of source ⊗ other, one partial sum per program_id(2): out (parts, SIDE² · C, N).

    other is (B, H/stride, W/stride, N). For SIDE = 3, source (B, H, W, C) is read at the taps of a 3×3; for SIDE = 2,
    at the four pixels under each pixel of other. Pixels of source are C_ROW values apart.
    """
    # If the types differ, use the gradient's, which is not float16: that has too little range.
    T: tl.constexpr = other.dtype.element_ty if source.dtype.element_ty == tl.float16 else source.dtype.element_ty
    TURNED: tl.constexpr = source.dtype.element_ty != T
    BLOCKS: tl.constexpr = (C + ROWS - 1) // ROWS
    tap, block = tl.program_id(0) // BLOCKS, tl.program_id(0) % BLOCKS
    dy, dx = tap // SIDE - SIDE // 3, tap % SIDE - SIDE // 3
    h, w = H // stride, W // stride
    c = block * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([COLUMNS, ROWS] if TURNED else [ROWS, COLUMNS], tl.float32)
    part = tl.program_id(2)
    for chunk in range(part * chunks, part * chunks + chunks):
        start = chunk * PIXELS
        m = start + tl.arange(0, PIXELS)
        y, x = m // w % h * stride + dy, m % w * stride + dx
        inside = m < pixels
        valid = inside & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        rows = tl.cast((m // w // h * H + y) * W + x, tl.int64) * C_ROW
        a = tl.load(source + rows[:, None] + c[None, :], valid[:, None] & (c < C)[None, :], 0.0)
        there = other + tl.cast(m, tl.int64)[:, None] * N + n[None, :]
        b = tl.load(there, inside[:, None] & (n < N)[None, :], 0.0)
        acc = _add_product(acc, a, b, T, TURNED)
    out += tl.cast(part, tl.int64) * SIDE * SIDE * C * N
    _store_sums(out, acc, tap * C + c, n, c < C, n < N, N, TURNED)


@triton.jit(do_not_specialize=["pixels", "H", "W", "chunks"])
def taps_weight_gradient(
    source,
    other,
    out,
    pixels,
    H,
    W,
    chunks,
    N: tl.constexpr,
    COLUMNS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """As `weight_gradient` for a 3×3 with a source (B, H, W, 8), all taps at once: out (parts, 72, N)."""
    T: tl.constexpr = other.dtype.element_ty if source.dtype.element_ty == tl.float16 else source.dtype.element_ty
    TURNED: tl.constexpr = source.dtype.element_ty != T
    k = tl.arange(0, 128)
    dy, dx = k // 8 // 3 - 1, k // 8 % 3 - 1
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([COLUMNS, 128] if TURNED else [128, COLUMNS], tl.float32)
    part = tl.program_id(1)
    for chunk in range(part * chunks, part * chunks + chunks):
        start = chunk * PIXELS
        m = start + tl.arange(0, PIXELS)
        inside = m < pixels
        y, x = (m // W % H)[:, None] + dy[None, :], (m % W)[:, None] + dx[None, :]
        valid = inside[:, None] & (y >= 0) & (y < H) & (x >= 0) & (x < W) & (k < 72)[None, :]
        at = tl.cast(m[:, None] + (dy * W + dx)[None, :], tl.int64) * 8 + (k % 8)[None, :]
        a = tl.load(source + at, valid, 0.0)
        there = other + tl.cast(m, tl.int64)[:, None] * N + n[None, :]
        b = tl.load(there, inside[:, None] & (n < N)[None, :], 0.0)
        acc = _add_product(acc, a, b, T, TURNED)
    out += tl.cast(part, tl.int64) * 72 * N
    _store_sums(out, acc, k, n, k < 72, n < N, N, TURNED)


@triton.jit(do_not_specialize=["count"])
def gather_sums(partial, place, parts, stride, out, count, BLOCK: tl.constexpr):
    """out[i] = the sum of `parts[i]` entries of partial from place[i] on, stride[i] apart, always in this order."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    at, number = tl.load(place + i, inside, 0), tl.load(parts + i, inside, 0)
    step = tl.load(stride + i, inside, 0)
    acc = tl.zeros([BLOCK], tl.float32)
    # Eight loads at a time, to hide their latency. They are added one by one, because Triton 3.6 miscompiles sums over
    # a block's second dimension that a loop accumulates: threads that hold several rows mix them.
    for first in range(0, tl.max(number, 0), 8):
        for k in tl.static_range(8):
            acc += tl.load(partial + at + (first + k) * step, first + k < number, 0.0)
    tl.store(out + i, acc, inside)
