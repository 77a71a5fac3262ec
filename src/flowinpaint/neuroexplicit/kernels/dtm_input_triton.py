"""Triton kernels of `dtm_input_gpu`. ROWS is a power of two above the number of channels C."""

import triton
import triton.language as tl


@triton.jit
def _totals(parts, ROWS: tl.constexpr, PARTS: tl.constexpr):
    """The totals (ROWS,) of the programs' partial sums (ROWS, PARTS)."""
    return tl.sum(tl.load(parts + tl.arange(0, ROWS)[:, None] * PARTS + tl.arange(0, PARTS)[None, :]), 1)


@triton.jit
def _means(sums, C: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr):
    """The means (ROWS,) of the known values of each channel, and their number, at least 1."""
    totals = _totals(sums, ROWS, PARTS)
    count = tl.maximum(_entry(totals, C, ROWS), 1.0)
    return totals / count, count


@triton.jit
def _entry(values, index, ROWS: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, ROWS) == index, values, 0.0))


@triton.jit(do_not_specialize=["area"])
def sum_known(f, known, sums, area, C: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program's partial sums of the known values of each channel, and in row C their number."""
    image, part, parts = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.num_programs(0)
    row = tl.arange(0, ROWS)[:, None]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(part * BLOCK, area, parts * BLOCK):
        p = start + tl.arange(0, BLOCK)[None, :]
        given = tl.load(known + image * area + p, p < area, 0) != 0
        total += tl.load(f + (image * C + row) * area + p, given & (row < C), 0.0).to(tl.float32)
        total += (given & (row == C)).to(tl.float32)
    sums += image * ROWS * parts + part
    tl.store(sums + tl.arange(0, ROWS) * parts, tl.sum(total, 1))


@triton.jit(do_not_specialize=["area"])
def sum_deviations(
    f, known, sums, deviations, area, C: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program's partial sums of |f - m| over the known values of each channel."""
    image, part = tl.program_id(1).to(tl.int64), tl.program_id(0)
    row = tl.arange(0, ROWS)[:, None]
    m, _ = _means(sums + image * ROWS * PARTS, C, ROWS, PARTS)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(part * BLOCK, area, PARTS * BLOCK):
        p = start + tl.arange(0, BLOCK)[None, :]
        given = (tl.load(known + image * area + p, p < area, 0) != 0) & (row < C)
        value = tl.load(f + (image * C + row) * area + p, given, 0.0).to(tl.float32)
        total += tl.where(given, tl.abs(value - m[:, None]), 0.0)
    deviations += image * ROWS * PARTS + part
    tl.store(deviations + tl.arange(0, ROWS) * PARTS, tl.sum(total, 1))


@triton.jit
def _normalised(guess, m, scale, p, inside, clip):
    """A channel of the guess in units of the mean deviation; clipping before the division prevents an overflow."""
    value = tl.load(guess + p, inside, 0.0).to(tl.float32) - m
    return 0.5 * tl.minimum(tl.maximum(value, -clip * scale), clip * scale) / scale


@triton.jit(do_not_specialize=["H", "W", "Hp", "Wp"])
def write_input(
    image,
    guess,
    known,
    sums,
    deviations,
    out,
    H,
    W,
    Hp,
    Wp,
    mean_r,
    mean_g,
    mean_b,
    std_r,
    std_g,
    std_b,
    clip,
    relative_floor,
    tiny,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block of pixels of the padded input (B, Hp, Wp, 8); without a guess C is 0."""
    number, area = tl.program_id(1).to(tl.int64), H.to(tl.int64) * W
    padded = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = padded < Hp * Wp
    p = tl.minimum(padded // Wp, H - 1) * W + tl.minimum(padded % Wp, W - 1)
    image += number * 3 * area
    red = (tl.load(image + p, inside, 0.0).to(tl.float32) - mean_r) / std_r
    green = (tl.load(image + area + p, inside, 0.0).to(tl.float32) - mean_g) / std_g
    blue = (tl.load(image + 2 * area + p, inside, 0.0).to(tl.float32) - mean_b) / std_b
    zero = tl.zeros([BLOCK], tl.float32)
    guess_x, guess_y, mask = zero, zero, zero
    if C > 0:
        row = tl.arange(0, ROWS)
        m, count = _means(sums + number * ROWS * PARTS, C, ROWS, PARTS)
        deviation = _totals(deviations + number * ROWS * PARTS, ROWS, PARTS) / count
        largest = tl.max(tl.where(row < C, tl.abs(m), 0.0))
        scale = tl.maximum(tl.maximum(tl.sum(deviation) / C, relative_floor * largest), tiny)
        # The two channels with the largest deviation, in their original order; ties go to the first.
        most = tl.argmax(tl.where(row < C, deviation, -1.0), 0)
        next_most = tl.argmax(tl.where((row < C) & (row != most), deviation, -1.0), 0)
        first, second = tl.minimum(most, next_most), tl.maximum(most, next_most)
        guess += number * C * area
        if C == 1:
            guess_x = _normalised(guess, _entry(m, 0, ROWS), scale, p, inside, clip)
        else:
            guess_x = _normalised(guess + first * area, _entry(m, first, ROWS), scale, p, inside, clip)
            guess_y = _normalised(guess + second * area, _entry(m, second, ROWS), scale, p, inside, clip)
        mask = (tl.load(known + number * area + p, inside, 0) != 0).to(tl.float32)
    # This nesting puts channel k at index k, so that a pixel is one store of 16 bytes.
    even = tl.join(tl.join(red, guess_y), tl.join(blue, zero))
    odd = tl.join(tl.join(green, mask), tl.join(guess_x, zero))
    features = tl.reshape(tl.join(even, odd), [BLOCK, 8])
    at = (number * Hp * Wp + padded)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + at, features.to(out.dtype.element_ty), inside[:, None])
