"""Triton kernels of `dtm_gpu`: products of pixels and weight matrices, one program per tile.

Channels are innermost. Their counts are 16·2^k or 48·2^k, but Triton's blocks are powers of two, so a row of channels
is read in pieces of HEAD and, if needed, TAIL channels.
"""

import triton
import triton.language as tl


@triton.jit
def _half(value, dtype):
    """Round to the type of the activations, clamped to the range of float16."""
    return tl.minimum(tl.maximum(value, -65504.0), 65504.0).to(dtype)


@triton.jit
def _multiply(acc, source, rows, valid, weight, k, n, N, first, SIZE: tl.constexpr):
    """Add to acc: source[rows, first : first + SIZE] @ weight[k + first : k + first + SIZE, n]; rows are offsets."""
    c = first + tl.arange(0, SIZE)
    a = tl.load(source + rows[:, None] + c[None, :], valid[:, None], 0.0)
    b = tl.load(weight + (k + c)[:, None] * N + n[None, :], (n < N)[None, :], 0.0)
    return tl.dot(a, b, acc)


@triton.jit
def _multiply_taps(acc, source, m, y, x, inside, weight, n, H, W, N, first, SIZE: tl.constexpr):
    """Add to acc: the inputs k = first to first + SIZE - 1 of `first_convolution` times these rows of the weight."""
    k = first + tl.arange(0, SIZE)
    dy, dx = k // 8 // 3 - 1, k // 8 % 3 - 1
    v, u = y[:, None] + dy[None, :], x[:, None] + dx[None, :]
    valid = inside[:, None] & (v >= 0) & (v < H) & (u >= 0) & (u < W) & (k < 72)[None, :]
    offsets = (m[:, None] + (dy * W + dx)[None, :]) * 8 + (k % 8)[None, :]
    a = tl.load(source + offsets, valid, 0.0)
    b = tl.load(weight + k[:, None] * N + n[None, :], (k < 72)[:, None] & (n < N)[None, :], 0.0)
    return tl.dot(a, b, acc)


@triton.jit(do_not_specialize=["pixels", "H", "W"])
def first_convolution(
    source,
    weight,
    bias,
    out,
    pixels,
    H,
    W,
    N: tl.constexpr,
    N_ROW: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """3×3 of eight channels: a tap is one memory access of 16 bytes, so all nine taps form one row.

    Pixels of the result are N_ROW values apart.
    """
    start = tl.program_id(0) * PIXELS
    m = tl.arange(0, PIXELS)
    y, x = (start + m) // W % H, (start + m) % W
    inside = start + m < pixels
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    source += tl.cast(start, tl.int64) * 8
    acc = _multiply_taps(acc, source, m, y, x, inside, weight, n, H, W, N, 0, 64)
    acc = _multiply_taps(acc, source, m, y, x, inside, weight, n, H, W, N, 64, 16)
    acc += tl.load(bias + n, n < N, 0.0)[None, :]
    out += tl.cast(start, tl.int64) * N_ROW
    tl.store(
        out + m[:, None] * N_ROW + n[None, :],
        _half(tl.maximum(acc, 0.0), out.dtype.element_ty),
        inside[:, None] & (n < N)[None, :],
    )


@triton.jit(do_not_specialize=["pixels", "H", "W", "stride"])
def convolution(
    source,
    weight,
    bias,
    out,
    pixels,
    H,
    W,
    stride,
    C: tl.constexpr,
    C_ROW: tl.constexpr,
    N: tl.constexpr,
    N_ROW: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """3×3 of stride 1 or 2, and ReLU: (B, H, W, C) → (B, H/stride, W/stride, N); pixels are those of the result.

    Pixels of the source are C_ROW values apart, those of the result N_ROW.
    """
    start = tl.program_id(0) * PIXELS
    h, w = H // stride, W // stride
    m = start + tl.arange(0, PIXELS)
    inside = m < pixels
    y, x = m // w % h * stride, m % w * stride
    origin = ((start // w // h) * H + start // w % h * stride) * W + start % w * stride
    # Offsets from the tile's first pixel fit in 32 bits; those from the image's might not.
    rows = ((m // w // h * H + y) * W + x - origin) * C_ROW
    source += tl.cast(origin, tl.int64) * C_ROW
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    STEP: tl.constexpr = HEAD + TAIL
    PARTS: tl.constexpr = C // STEP
    for i in range(9 * PARTS):
        tap, first = i // PARTS, i % PARTS * STEP
        dy, dx = tap // 3 - 1, tap % 3 - 1
        valid = inside & (y + dy >= 0) & (y + dy < H) & (x + dx >= 0) & (x + dx < W)
        near = rows + (dy * W + dx) * C_ROW
        acc = _multiply(acc, source, near, valid, weight, tap * C, n, N, first, HEAD)
        if TAIL:
            acc = _multiply(acc, source, near, valid, weight, tap * C, n, N, first + HEAD, TAIL)
    acc += tl.load(bias + n, n < N, 0.0)[None, :]
    out += tl.cast(start, tl.int64) * N_ROW
    tl.store(
        out + (tl.arange(0, PIXELS) * N_ROW)[:, None] + n[None, :],
        _half(tl.maximum(acc, 0.0), out.dtype.element_ty),
        inside[:, None] & (n < N)[None, :],
    )


@triton.jit
def _multiply_all(acc, source, rows, valid, weight, n, N, C: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """Add to acc: source[rows] @ weight[:C, n]."""
    for first in range(0, C, HEAD + TAIL):
        acc = _multiply(acc, source, rows, valid, weight, 0, n, N, first, HEAD)
        if TAIL:
            acc = _multiply(acc, source, rows, valid, weight, 0, n, N, first + HEAD, TAIL)
    return acc


@triton.jit
def _store_taps(taps, acc, column, pixel, plane, columns):
    """Write the products of taps and pixels, each column to its own plane of 16 · `plane` pixels."""
    at = taps + (tl.cast(column, tl.int64) * plane * 16)[None, :] + pixel[:, None]
    # Groups of sixteen pixels are inside or outside as a whole, so that a thread can write eight at once.
    tl.store(at, _half(acc, taps.dtype.element_ty), (pixel // 16 < plane)[:, None] & (column < columns)[None, :])


@triton.jit(do_not_specialize=["pixels", "plane", "w"])
def upsampling(
    source,
    weight,
    bias,
    out,
    taps,
    pixels,
    plane,
    w,
    Z: tl.constexpr,
    A: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    C: tl.constexpr,
    C_ROW: tl.constexpr,
    TAPS: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The transposed convolution, 4 C columns, followed by the products of the pixel with each tap of the 3×3 to z.

    source is (…, A); pixels of the result are C_ROW values apart.
    """
    start = tl.program_id(0) * PIXELS
    m = tl.arange(0, PIXELS)
    inside = start + m < pixels
    N: tl.constexpr = 4 * C + TAPS
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    source += tl.cast(start, tl.int64) * A
    acc = _multiply_all(acc, source, m * A, inside, weight, n, N, A, HEAD, TAIL)
    # The first of the four pixels under pixel i of row r is pixel 2 i of row 2 r; rows are numbered over the batch.
    origin = start // w * 4 * w + start % w * 2
    corner = (start + m) // w * 4 * w + (start + m) % w * 2 - origin
    out += tl.cast(origin, tl.int64) * C_ROW
    part = n // C
    offsets = (corner[:, None] + (part // 2 * 2 * w + part % 2)[None, :]) * C_ROW + (n % C)[None, :]
    value = tl.maximum(acc + tl.load(bias + n, n < 4 * C, 0.0)[None, :], 0.0)
    tl.store(out + offsets, _half(value, out.dtype.element_ty), inside[:, None] & (n < 4 * C)[None, :])
    if TAPS:  # noqa: SIM102 (known at compile time, the next is not)
        # A tile never has columns of both kinds.
        if tl.program_id(1) * COLUMNS >= 4 * C:
            _store_taps(taps, acc, n - 4 * C, start + m, plane, 9 * Z)


@triton.jit(do_not_specialize=["pixels", "plane"])
def tap_products(
    source,
    weight,
    taps,
    pixels,
    plane,
    Z: tl.constexpr,
    A: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    TAPS: tl.constexpr,
    PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The products of each pixel of source (…, A) with the taps of the 3×3 to z."""
    start = tl.program_id(0) * PIXELS
    m = tl.arange(0, PIXELS)
    inside = start + m < pixels
    t = tl.arange(0, COLUMNS)
    acc = tl.zeros([PIXELS, COLUMNS], tl.float32)
    source += tl.cast(start, tl.int64) * A
    acc = _multiply_all(acc, source, m * A, inside, weight, t, TAPS, A, HEAD, TAIL)
    _store_taps(taps, acc, t, start + m, plane, 9 * Z)
