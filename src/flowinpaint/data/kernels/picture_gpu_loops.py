"""Kernels for what is random in a scene's pixels and for its camera, in Triton's language, as in `camera_picture`."""

import triton
import triton.language as tl

from flowinpaint import draws
from flowinpaint.data import camera_picture, smooth_noise
from flowinpaint.data.kernels.scene_gpu_loops import (
    BLUR,
    DEFOCUS,
    GAMMA,
    NOISE,
    NUMBERS,
    SHUTTER,
    knots_along,
    spline_weights,
    tile,
)

RADIUS, TAPS = tl.constexpr(camera_picture.BLUR_RADIUS), tl.constexpr(camera_picture.SMEAR_TAPS)
FIRST, SECOND = (tl.constexpr(factor) for _, factor in draws.MIX)
GAIN = tl.constexpr(smooth_noise.SPLINE_GAIN)
KEYS = tl.constexpr(7)
"""Of the six smooth fields, and of the camera's noise."""


@triton.jit
def _hash(x):
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * FIRST
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * SECOND
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def normal(key, place):
    """The numbers at some places of the stream of a key, as in `draws.normal_field`."""
    bits = _hash(key ^ place.to(tl.int64))
    u = ((bits >> 40) & 0xFFFFFF).to(tl.float32) * (1.0 / 16777216)
    angle = 6.283185307179586 * (((bits >> 8) & 0xFFFFFF).to(tl.float32) * (1.0 / 16777216))
    return tl.sqrt(-2 * tl.log(u + 1.0 / 16777216)) * tl.cos(angle)


@triton.jit
def _later(row, first, field, start, spacing, NEXT: tl.constexpr, SPACING: tl.constexpr):
    """What is given, or the next field for a row after its first one."""
    past = row >= first
    return tl.where(past, NEXT, field), tl.where(past, first, start), tl.where(past, SPACING, spacing)


@triton.jit
def _field(row, H):
    """The smooth field that a row of knots belongs to, as they stand in `SMOOTH_FIELDS`, its first row and spacing."""
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
    """The knots of all smooth fields of a scene, whose rows are `most` knots apart."""
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
    """Blur along rows: before defocus what is to be out of focus, at last all, from where the shutter has left it."""
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
    """Blur along columns, and take the result for the pixels that are soft."""
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b, plane, p = tl.program_id(2).to(tl.int64), H * W, y * W + x
    sigma = tl.load(numbers + b * NUMBERS + DEFOCUS)
    if sigma > 0:
        chosen = inside & (tl.load(soft + b * plane + p, inside, 0) != 0)
        for channel in tl.static_range(3):
            first = (b * 3 + channel) * plane
            value = _blurred_column(rows + first, y, x, H, W, sigma, chosen, ROWS, COLUMNS)
            tl.store(pictures + first + p, value, chosen)


@triton.jit(do_not_specialize=["B", "H", "W"])
def smear(pictures, flow, numbers, longest, B, H, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Average along the motion while the shutter is open, into the second half of the pictures."""
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b, plane, p = tl.program_id(2).to(tl.int64), H * W, y * W + x
    shutter = tl.load(numbers + b * NUMBERS + SHUTTER)
    if shutter > 0:
        path_x = shutter * tl.load(flow + 2 * b * plane + p, inside, 0.0)
        path_y = shutter * tl.load(flow + (2 * b + 1) * plane + p, inside, 0.0)
        shorter = longest / tl.maximum(tl.sqrt(path_x * path_x + path_y * path_y), longest)
        path_x, path_y = path_x * shorter, path_y * shorter
        red, green = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
        blue = tl.zeros([ROWS, COLUMNS], tl.float32)
        image = pictures + b * 3 * plane
        for i in tl.static_range(TAPS):
            t = i / (TAPS - 1) - 0.5
            u = tl.minimum(tl.maximum(x + t * path_x, 0.0), (W - 1) * 1.0)
            v = tl.minimum(tl.maximum(y + t * path_y, 0.0), (H - 1) * 1.0)
            x0, y0 = u.to(tl.int32), v.to(tl.int32)
            right, down = u - x0, v - y0
            beside, below = tl.where(x0 < W - 1, 1, 0), tl.where(y0 < H - 1, W, 0)
            at = image + y0 * W + x0
            red += _bilinear(at, beside, below, right, down, inside)
            green += _bilinear(at + plane, beside, below, right, down, inside)
            blue += _bilinear(at + 2 * plane, beside, below, right, down, inside)
        out = pictures + (B + b) * 3 * plane + p
        tl.store(out, red / TAPS, inside)
        tl.store(out + plane, green / TAPS, inside)
        tl.store(out + 2 * plane, blue / TAPS, inside)


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
