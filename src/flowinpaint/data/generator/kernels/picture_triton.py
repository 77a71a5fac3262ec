"""Triton kernels for a scene's smooth fields and for its camera, equivalent to `camera`."""

import triton
import triton.language as tl

from flowinpaint import counter_rng as draws
from flowinpaint.data.generator import camera, smooth_noise
from flowinpaint.data.generator.kernels.scene_triton import (
    BLUR,
    DEFOCUS,
    DELAY,
    GAMMA,
    NOISE,
    NUMBERS,
    SHUTTER,
    knots_along,
    spline_weights,
    tile,
)

RADIUS, TAPS = tl.constexpr(camera.BLUR_RADIUS), tl.constexpr(camera.SMEAR_TAPS)
STRIDE, SLACK = tl.constexpr(camera.SMEAR_STRIDE), tl.constexpr(camera.SMEAR_SLACK)
FIRST, SECOND = (tl.constexpr(factor) for _, factor in draws.MIX)
GAIN = tl.constexpr(smooth_noise.SPLINE_GAIN)
KEYS = tl.constexpr(7)
"""Number of keys: those of the six smooth fields and of the camera's noise."""


@triton.jit
def _hash(x):
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * FIRST
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * SECOND
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def normal(key, place):
    """Normal numbers at positions in the stream of a key, as in `counter_rng.normal_field`."""
    bits = _hash(key ^ place.to(tl.int64))
    u = ((bits >> 40) & 0xFFFFFF).to(tl.float32) * (1.0 / 16777216)
    angle = 6.283185307179586 * (((bits >> 8) & 0xFFFFFF).to(tl.float32) * (1.0 / 16777216))
    return tl.sqrt(-2 * tl.log(u + 1.0 / 16777216)) * tl.cos(angle)


@triton.jit
def _later(row, first, field, start, spacing, NEXT: tl.constexpr, SPACING: tl.constexpr):
    """Keep the current field, or select the next one for a row from its first row on."""
    past = row >= first
    return tl.where(past, NEXT, field), tl.where(past, first, start), tl.where(past, SPACING, spacing)


@triton.jit
def _field(row, H):
    """The smooth field of a row of knots, in the order of `SMOOTH_FIELDS`, with its first row and spacing."""
    first = 2 * knots_along(H, 32)
    field, start, spacing = _later(row, first, row * 0, row * 0, row * 0 + 32, 1, 8)
    first += 2 * knots_along(H, 8)
    field, start, spacing = _later(row, first, field, start, spacing, 2, 3)
    first += 2 * knots_along(H, 3)
    field, start, spacing = _later(row, first, field, start, spacing, 3, 48)
    first += 2 * knots_along(H, 48)
    field, start, spacing = _later(row, first, field, start, spacing, 4, 96)
    first += knots_along(H, 96)
    return _later(row, first, field, start, spacing, 5, 64)


@triton.jit(do_not_specialize=["H", "W", "rows", "most"])
def draw_knots(keys, out, H, W, rows, most, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The knots of all smooth fields of a scene; their rows are `most` knots apart."""
    row, place, inside = tile(rows, most, ROWS, COLUMNS)
    b = tl.program_id(2).to(tl.int64)
    field, start, spacing = _field(row, H)
    count = knots_along(W, spacing)
    key = tl.load(keys + b * KEYS + field)
    number = (row - start) * count + place
    tl.store(out + (b * rows + row) * most + place, normal(key, number), inside & (place < count))


@triton.jit(do_not_specialize=["H", "W", "rows", "most"])
def stretch_knots(knots, out, H, W, rows, most, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Interpolate rows of knots to the pixels of a row."""
    row, x, inside = tile(rows, W, ROWS, COLUMNS)
    b = tl.program_id(2).to(tl.int64)
    _, _, spacing = _field(row, H)
    j, p, q, r, s = spline_weights(x, spacing)
    at = knots + (b * rows + row) * most + j
    value = p * tl.load(at, inside, 0.0) + q * tl.load(at + 1, inside, 0.0)
    value += r * tl.load(at + 2, inside, 0.0) + s * tl.load(at + 3, inside, 0.0)
    tl.store(out + (b * rows + row) * W + x, value / GAIN, inside)


@triton.jit
def _tap(i, sigma):
    t = (i - RADIUS) / sigma
    return tl.exp(-0.5 * t * t)


@triton.jit
def _taps_sum(sigma):
    total = sigma * 0
    for i in tl.static_range(2 * RADIUS + 1):
        total += _tap(i, sigma)
    return total


@triton.jit(do_not_specialize=["B", "H", "W"])
def blur_rows(pictures, numbers, out, B, H, W, LAST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Blur along rows: for defocus or, if LAST, the whole picture from the second half of the buffer."""
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b, plane = tl.program_id(2).to(tl.int64), H * W
    numbers += b * NUMBERS
    sigma = tl.load(numbers + (BLUR if LAST else DEFOCUS))
    if sigma > 0:
        smeared = tl.load(numbers + SHUTTER) > 0
        source = tl.where(smeared, B + b, b) if LAST else b
        total = _taps_sum(sigma)
        for channel in tl.static_range(3):
            line = pictures + (source * 3 + channel) * plane + y * W
            value = tl.zeros([ROWS, COLUMNS], tl.float32)
            for i in tl.static_range(2 * RADIUS + 1):
                at = tl.minimum(tl.maximum(x + (i - RADIUS), 0), W - 1)
                value += _tap(i, sigma) * tl.load(line + at, inside, 0.0)
            tl.store(out + (b * 3 + channel) * plane + y * W + x, value / total, inside)


@triton.jit
def _blurred_column(plane_of_rows, y, x, H, W, sigma, inside, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    value = tl.zeros([ROWS, COLUMNS], tl.float32)
    for i in tl.static_range(2 * RADIUS + 1):
        at = tl.minimum(tl.maximum(y + (i - RADIUS), 0), H - 1) * W + x
        value += _tap(i, sigma) * tl.load(plane_of_rows + at, inside, 0.0)
    return value / _taps_sum(sigma)


@triton.jit(do_not_specialize=["H", "W"])
def defocus_columns(rows, soft, numbers, pictures, H, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Blur along columns, and keep the result for soft pixels."""
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b, plane, p = tl.program_id(2).to(tl.int64), H * W, y * W + x
    sigma = tl.load(numbers + b * NUMBERS + DEFOCUS)
    if sigma > 0:
        chosen = inside & (tl.load(soft + b * plane + p, inside, 0) != 0)
        for channel in tl.static_range(3):
            first = (b * 3 + channel) * plane
            value = _blurred_column(rows + first, y, x, H, W, sigma, chosen, ROWS, COLUMNS)
            tl.store(pictures + first + p, value, chosen)


@triton.jit
def _steps(delay, longest):
    """Reach in pixels of the search for the fastest motion."""
    return tl.ceil((0.5 + tl.abs(delay)) * longest / STRIDE).to(tl.int32)


@triton.jit
def _faster(best_x, best_y, x, y):
    """The longer of two vectors, the first if they are equal."""
    longer = x * x + y * y > best_x * best_x + best_y * best_y
    return tl.where(longer, x, best_x), tl.where(longer, y, best_y)


@triton.jit(do_not_specialize=["H", "W"])
def fastest_in_rows(flow, numbers, out, longest, H, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The longest vectors along rows, into the first two of three channels."""
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b, plane = tl.program_id(2).to(tl.int64), H * W
    numbers += b * NUMBERS
    if tl.load(numbers + SHUTTER) > 0:
        steps = _steps(tl.load(numbers + DELAY), longest)
        best_x, best_y = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
        for i in range(-steps, steps + 1):
            at = flow + 2 * b * plane + y * W + tl.minimum(tl.maximum(x + STRIDE * i, 0), W - 1)
            best_x, best_y = _faster(best_x, best_y, tl.load(at, inside, 0.0), tl.load(at + plane, inside, 0.0))
        place = out + 3 * b * plane + y * W + x
        tl.store(place, best_x, inside)
        tl.store(place + plane, best_y, inside)


@triton.jit
def _moved(flow, at, plane, shutter, longest, inside):
    """The lengths of paths at given positions."""
    x, y = tl.load(flow + at, inside, 0.0), tl.load(flow + plane + at, inside, 0.0)
    return tl.minimum(shutter * tl.sqrt(x * x + y * y), longest)


@triton.jit(do_not_specialize=["B", "H", "W"])
def smear(pictures, flow, fastest, numbers, longest, B, H, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Motion blur, as in `smear`, into the second half of the buffer; `fastest` is the result along rows."""
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b, plane, p = tl.program_id(2).to(tl.int64), H * W, y * W + x
    numbers += b * NUMBERS
    shutter, delay = tl.load(numbers + SHUTTER), tl.load(numbers + DELAY)
    if shutter > 0:
        steps = _steps(delay, longest)
        around_x, around_y = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
        for i in range(-steps, steps + 1):
            at = fastest + 3 * b * plane + tl.minimum(tl.maximum(y + STRIDE * i, 0), H - 1) * W + x
            around_x, around_y = _faster(around_x, around_y, tl.load(at, inside, 0.0), tl.load(at + plane, inside, 0.0))
        length = tl.sqrt(around_x * around_x + around_y * around_y)
        scale = shutter * longest / tl.maximum(shutter * length, longest)
        around_x, around_y, length = around_x * scale, around_y * scale, length * scale
        flow += 2 * b * plane
        own = _moved(flow, p, plane, shutter, longest, inside)
        image = pictures + b * 3 * plane
        red, green = tl.load(image + p, inside, 0.0), tl.load(image + plane + p, inside, 0.0)
        blue = tl.load(image + 2 * plane + p, inside, 0.0)
        more_red, more_green = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
        more_blue = tl.zeros([ROWS, COLUMNS], tl.float32)
        for i in tl.static_range(TAPS):
            s = i / (TAPS - 1) - 0.5 + delay
            u = tl.minimum(tl.maximum(x - s * around_x, 0.0), (W - 1) * 1.0)
            v = tl.minimum(tl.maximum(y - s * around_y, 0.0), (H - 1) * 1.0)
            nearest = (v + 0.5).to(tl.int32) * W + (u + 0.5).to(tl.int32)
            way = tl.abs(s) * length
            limit = tl.where(s > 0, 0.5 + delay, 0.5 - delay) * SLACK
            limit *= tl.maximum(_moved(flow, nearest, plane, shutter, longest, inside), own)
            seen = inside & (way > 0) & (way <= limit)
            x0, y0 = u.to(tl.int32), v.to(tl.int32)
            right, down = u - x0, v - y0
            beside, below = tl.where(x0 < W - 1, 1, 0), tl.where(y0 < H - 1, W, 0)
            at = image + y0 * W + x0
            more_red += tl.where(seen, _bilinear(at, beside, below, right, down, seen) - red, 0.0)
            more_green += tl.where(seen, _bilinear(at + plane, beside, below, right, down, seen) - green, 0.0)
            more_blue += tl.where(seen, _bilinear(at + 2 * plane, beside, below, right, down, seen) - blue, 0.0)
        out = pictures + (B + b) * 3 * plane + p
        tl.store(out, red + more_red / TAPS, inside)
        tl.store(out + plane, green + more_green / TAPS, inside)
        tl.store(out + 2 * plane, blue + more_blue / TAPS, inside)


@triton.jit
def _bilinear(at, beside, below, right, down, inside):
    a, b = tl.load(at, inside, 0.0), tl.load(at + beside, inside, 0.0)
    c, d = tl.load(at + below, inside, 0.0), tl.load(at + below + beside, inside, 0.0)
    upper, lower = a + right * (b - a), c + right * (d - c)
    return upper + down * (lower - upper)


@triton.jit(do_not_specialize=["H", "W"])
def expose_columns(rows, keys, numbers, out, H, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Blur along columns, then gamma and noise."""
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b, plane, p = tl.program_id(2).to(tl.int64), H * W, y * W + x
    numbers += b * NUMBERS
    sigma, gamma, noise = tl.load(numbers + BLUR), tl.load(numbers + GAMMA), tl.load(numbers + NOISE)
    key = tl.load(keys + b * KEYS + KEYS - 1)
    for channel in tl.static_range(3):
        first = (b * 3 + channel) * plane
        value = _blurred_column(rows + first, y, x, H, W, sigma, inside, ROWS, COLUMNS)
        value = tl.exp(gamma * tl.log(tl.minimum(tl.maximum(value, 1e-3), 1.0)))
        value += noise * normal(key, channel * plane + p)
        tl.store(out + first + p, tl.minimum(tl.maximum(value, 0.0), 1.0), inside)
