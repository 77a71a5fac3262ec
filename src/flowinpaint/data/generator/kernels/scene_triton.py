"""Triton kernel that paints scenes and computes their flow; each program handles a tile of one scene.

The functions have the names of their PyTorch equivalents: `drawn_distance` and `cover` of `shapes`, `gather` and
`labels` of `picture_sampling`, `paint` of `paint`, `flow_of` of `motion`, `illuminate` of `camera`.
"""

import triton
import triton.language as tl

from flowinpaint.data import bank
from flowinpaint.data.generator import plan, shapes

BOX, RING, CUTOUT = tl.constexpr(shapes.BOX), tl.constexpr(shapes.RING), tl.constexpr(shapes.CUTOUT)
EDGE, FAR = tl.constexpr(shapes.EDGE), tl.constexpr(shapes.FAR)
ZERO, UNIT = tl.constexpr(bank.DISTANCE_ZERO), tl.constexpr(bank.DISTANCE_UNIT)

OUTLINE = tl.constexpr(9)
"""Columns of the table of objects before the coefficients of the outline."""
PAINT, PICTURE, MOTION, LABELS = tl.constexpr(10), tl.constexpr(3), tl.constexpr(13), tl.constexpr(plan.LABELS)
NUMBERS = tl.constexpr(21)
WOBBLE, CAMERA, LIGHT = tl.constexpr(0), tl.constexpr(3), tl.constexpr(12)
DEFOCUS, SHUTTER, DELAY = tl.constexpr(15), tl.constexpr(16), tl.constexpr(17)
BLUR, GAMMA, NOISE = tl.constexpr(18), tl.constexpr(19), tl.constexpr(20)
"""Column counts of the tables, and columns of the table of a whole scene's numbers."""


@triton.jit
def tile(H, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return y, x, (y < H) & (x < W)


@triton.jit
def knots_along(length, spacing):
    """Number of knots of a field along a length in pixels."""
    return (2 * length - 1) // (2 * spacing) + 4


@triton.jit
def spline_weights(place, spacing):
    """The first of four knots around a position in pixels, and their weights, as in `smooth_noise.spline_weights`."""
    t = (place.to(tl.float32) + 0.5) / spacing
    knot = t.to(tl.int32)
    f = t - knot
    g = 1 - f
    return knot, g * g * g / 6, (3 * f * f * f - 6 * f * f + 4) / 6, (1 + 3 * f * (1 + f - f * f)) / 6, f * f * f / 6


@triton.jit
def _smooth(rows, y, x, W, spacing):
    """A smooth field at y, x from rows of knots that are already interpolated along the row."""
    i, a, b, c, d = spline_weights(y, spacing)
    at = rows + i * W + x
    return a * tl.load(at) + b * tl.load(at + W) + c * tl.load(at + 2 * W) + d * tl.load(at + 3 * W)


@triton.jit
def _drawn_distance(kind, u, v, across, along, hole, outline, N: tl.constexpr):
    rho = tl.sqrt(u * u + v * v + 1e-9)
    cos, sin = u / rho, v / rho
    radius, slope = tl.full(u.shape, 1.0, tl.float32), tl.zeros(u.shape, tl.float32)
    c, s = cos, sin
    for i in tl.static_range(N):
        c, s = c * cos - s * sin, s * cos + c * sin
        a, b = tl.load(outline + 2 * i), tl.load(outline + 2 * i + 1)
        radius += a * c + b * s
        slope += (i + 2) * (b * c - a * s)
    e, f, g = cos / across, sin / along, slope / tl.maximum(rho, 0.2)
    pixels = tl.rsqrt(1 + g * g) / tl.sqrt(e * e + f * f)
    blob = (radius - rho) * pixels
    ring = tl.minimum(blob, (rho - hole * radius) * pixels)
    box = tl.minimum((EDGE - tl.abs(u)) * across, (EDGE - tl.abs(v)) * along)
    return tl.where(kind == BOX, box, tl.where(kind == RING, ring, blob))


@triton.jit
def _reach(across, along, outline, N: tl.constexpr):
    """A bound of ρ beyond which a drawn shape touches no pixel: its largest radius plus half a pixel."""
    radius, slope = across * 0 + 1.0, across * 0
    for i in tl.static_range(N):
        size = tl.abs(tl.load(outline + 2 * i)) + tl.abs(tl.load(outline + 2 * i + 1))
        radius += size
        slope += (i + 2) * size
    return radius + 0.5 * (1 + slope) / tl.minimum(across, along)


@triton.jit
def _gather(pixels, offset, height, width, x, y, wanted):
    x0 = tl.minimum(tl.maximum(x.to(tl.int32), 0), width - 1)
    y0 = tl.minimum(tl.maximum(y.to(tl.int32), 0), height - 1)
    x1, y1 = tl.minimum(x0 + 1, width - 1), tl.minimum(y0 + 1, height - 1)
    upper, lower = pixels + (offset + y0 * width), pixels + (offset + y1 * width)
    a, b = tl.load(upper + x0, wanted, 0), tl.load(upper + x1, wanted, 0)
    c, d = tl.load(lower + x0, wanted, 0), tl.load(lower + x1, wanted, 0)
    right = tl.minimum(tl.maximum(x - x0, 0.0), 1.0)
    down = tl.minimum(tl.maximum(y - y0, 0.0), 1.0)
    return a, b, c, d, right, down


@triton.jit
def _byte(a, b, c, d, right, down, SHIFT: tl.constexpr):
    """Bilinear interpolation of one of the four bytes of the pixels around a position."""
    a, b = ((a >> SHIFT) & 255).to(tl.float32), ((b >> SHIFT) & 255).to(tl.float32)
    c, d = ((c >> SHIFT) & 255).to(tl.float32), ((d >> SHIFT) & 255).to(tl.float32)
    upper, lower = a + right * (b - a), c + right * (d - c)
    return upper + down * (lower - upper)


@triton.jit
def _cutout_distance(pixels, picture, across, along, scale, inside_tile):
    offset, height, width = tl.load(picture), tl.load(picture + 1), tl.load(picture + 2)
    x, y = across * scale + (width - 1) / 2, along * scale + (height - 1) / 2
    inside = (x > 0) & (y > 0) & (x < width - 1) & (y < height - 1) & inside_tile
    a, b, c, d, right, down = _gather(pixels, offset, height, width, x, y, inside)
    return tl.where(inside, (_byte(a, b, c, d, right, down, 24) - ZERO) / (UNIT * scale), FAR)


@triton.jit
def _mirrored(x, length):
    last = tl.maximum(length - 1, 1).to(tl.float32)
    folded = x - 2 * last * tl.floor(x / (2 * last))
    return tl.maximum(last - tl.abs(folded - last), 0.0)


@triton.jit
def _gather_layer(paint, pictures, pixels, layer, x, y, wanted):
    p, picture = paint + layer * PAINT, pictures + layer * PICTURE
    u = tl.load(p, wanted, 0.0) * x + tl.load(p + 1, wanted, 0.0) * y + tl.load(p + 4, wanted, 0.0)
    v = tl.load(p + 2, wanted, 0.0) * x + tl.load(p + 3, wanted, 0.0) * y + tl.load(p + 5, wanted, 0.0)
    offset = tl.load(picture, wanted, 0)
    height, width = tl.load(picture + 1, wanted, 1), tl.load(picture + 2, wanted, 1)
    return _gather(pixels, offset, height, width, _mirrored(u, width), _mirrored(v, height), wanted)


@triton.jit
def _paint_layer(paint, pictures, pixels, layer, x, y, wanted):
    a, b, c, d, right, down = _gather_layer(paint, pictures, pixels, layer, x, y, wanted)
    p = paint + layer * PAINT
    added = tl.load(p + 9, wanted, 0.0)
    red = _byte(a, b, c, d, right, down, 0) / 255 * tl.load(p + 6, wanted, 0.0) + added
    green = _byte(a, b, c, d, right, down, 8) / 255 * tl.load(p + 7, wanted, 0.0) + added
    blue = _byte(a, b, c, d, right, down, 16) / 255 * tl.load(p + 8, wanted, 0.0) + added
    return red, green, blue


@triton.jit
def _agreeing(own, a, b, c, d, p, q, r, s):
    """The total weight of the pixels with the label of one of them."""
    total = tl.where(a == own, p, 0.0) + tl.where(b == own, q, 0.0)
    return total + tl.where(c == own, r, 0.0) + tl.where(d == own, s, 0.0)


@triton.jit
def _labels(a, b, c, d, right, down):
    a, b, c, d = (a >> 24) & 255, (b >> 24) & 255, (c >> 24) & 255, (d >> 24) & 255
    p, q, r, s = (1 - right) * (1 - down), right * (1 - down), (1 - right) * down, right * down
    best, most = a, _agreeing(a, a, b, c, d, p, q, r, s)
    total = _agreeing(b, a, b, c, d, p, q, r, s)
    best, most = tl.where(total > most, b, best), tl.maximum(most, total)
    total = _agreeing(c, a, b, c, d, p, q, r, s)
    best, most = tl.where(total > most, c, best), tl.maximum(most, total)
    total = _agreeing(d, a, b, c, d, p, q, r, s)
    return tl.where(total > most, d, best)


@triton.jit
def _flow_of(motion, camera, x, y, H, W, bend_x, bend_y, largest):
    """The flow at the positions x, y with their motions and bends."""
    unit = tl.maximum(H, W) / 2
    xn, yn = (x - (W - 1) / 2) / unit, (y - (H - 1) / 2) / unit
    tx, ty, tz = tl.load(camera), tl.load(camera + 1), tl.load(camera + 2)
    turn_x, turn_y, roll = tl.load(camera + 3), tl.load(camera + 4), tl.load(camera + 5)
    horizon, ground, beyond = tl.load(camera + 6), tl.load(camera + 7), tl.load(camera + 8)
    slanted = 1 + tl.load(motion + 1) * xn + tl.load(motion + 2) * yn
    plane = tl.load(motion) * tl.minimum(tl.maximum(slanted, 0.1), 4.0)
    below = ground * tl.maximum(yn - horizon, 0.0) + beyond
    depth = tl.where(tl.load(motion + 12) * ground > 0, below, plane)
    dx, dy = x - tl.load(motion + 3), y - tl.load(motion + 4)
    vx = depth * (tx + tz * xn) + turn_x - roll * yn
    vx += tl.load(motion + 5) + tl.load(motion + 7) * dx + tl.load(motion + 8) * dy
    vy = depth * (ty + tz * (yn - horizon)) + turn_y + roll * xn
    vy += tl.load(motion + 6) + tl.load(motion + 9) * dx + tl.load(motion + 10) * dy
    bending = tl.load(motion + 11)
    vx, vy = vx + bending * bend_x, vy + bending * bend_y
    return tl.minimum(tl.maximum(vx, -largest), largest), tl.minimum(tl.maximum(vy, -largest), largest)


@triton.jit(do_not_specialize=["H", "W", "K", "M", "total_rows"])
def scene(
    objects,
    paint,
    pictures,
    group,
    motions,
    unsharp,
    numbers,
    rows,
    pixels,
    image,
    flow,
    soft,
    shading,
    largest,
    H,
    W,
    K,
    M,
    total_rows,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    y, x, inside = tile(H, W, ROWS, COLUMNS)
    b = tl.program_id(2)
    # Clamp positions outside the image to its border, so that every read is inside the tables.
    row, column = tl.minimum(y, H - 1), tl.minimum(x, W - 1)
    px, py = (column + row * 0).to(tl.float32), (row + column * 0).to(tl.float32)
    numbers += b * NUMBERS
    paint, pictures = paint + b * (K + 1) * PAINT, pictures + b * (K + 1) * PICTURE
    rows += b.to(tl.int64) * total_rows * W

    # The smooth fields are stored in the order of `SMOOTH_FIELDS`.
    size = knots_along(H, 32) * W
    amount = tl.load(numbers + WOBBLE)
    wx = px + amount * _smooth(rows, row, column, W, 32)
    wy = py + amount * _smooth(rows + size, row, column, W, 32)
    rows += 2 * size
    size = knots_along(H, 8) * W
    amount = tl.load(numbers + WOBBLE + 1)
    wx += amount * _smooth(rows, row, column, W, 8)
    wy += amount * _smooth(rows + size, row, column, W, 8)
    rows += 2 * size
    size = knots_along(H, 3) * W
    amount = tl.load(numbers + WOBBLE + 2)
    if amount != 0:
        wx += amount * _smooth(rows, row, column, W, 3)
        wy += amount * _smooth(rows + size, row, column, W, 3)
    rows += 2 * size

    front, behind, solid = tl.zeros(px.shape, tl.int32), tl.zeros(px.shape, tl.int32), tl.zeros(px.shape, tl.int32)
    coverage = tl.full(px.shape, 1.0, tl.float32)
    west, east, north, south = tl.min(wx), tl.max(wx), tl.min(wy), tl.max(wy)
    for k in range(K):
        o = objects + (b * K + k) * (OUTLINE + 2 * N)
        kind = tl.load(o).to(tl.int32)  # -1 if the object is absent
        x0, y0, cos, sin = tl.load(o + 1), tl.load(o + 2), tl.load(o + 3), tl.load(o + 4)
        across, along, scale = tl.load(o + 5), tl.load(o + 6), tl.load(o + 7)
        picture = pictures + (k + 1) * PICTURE
        if kind == CUTOUT:
            wide, high = tl.load(picture + 2) / (2 * scale), tl.load(picture + 1) / (2 * scale)
            reach_x, reach_y = tl.abs(cos) * wide + tl.abs(sin) * high, tl.abs(sin) * wide + tl.abs(cos) * high
            touches = (tl.min(px) < x0 + reach_x) & (tl.max(px) > x0 - reach_x)
            touches &= (tl.min(py) < y0 + reach_y) & (tl.max(py) > y0 - reach_y)
        else:
            reach = _reach(across, along, o + OUTLINE, N)
            reach_x = reach * (tl.abs(cos) * across + tl.abs(sin) * along)
            reach_y = reach * (tl.abs(sin) * across + tl.abs(cos) * along)
            touches = (west < x0 + reach_x) & (east > x0 - reach_x) & (north < y0 + reach_y) & (south > y0 - reach_y)
        if touches & (kind >= 0):
            if kind == CUTOUT:
                dx, dy = px - x0, py - y0
                distance = _cutout_distance(pixels, picture, cos * dx + sin * dy, cos * dy - sin * dx, scale, inside)
            else:
                dx, dy = wx - x0, wy - y0
                u, v = (cos * dx + sin * dy) / across, (cos * dy - sin * dx) / along
                distance = _drawn_distance(kind, u, v, across, along, tl.load(o + 8), o + OUTLINE, N)
            touched = distance > -0.5
            front, behind = tl.where(touched, k + 1, front), tl.where(touched, solid, behind)
            solid = tl.where(distance >= 0, k + 1, solid)
            coverage = tl.where(touched, tl.minimum(distance + 0.5, 1.0), coverage)

    red, green, blue = _paint_layer(paint, pictures, pixels, front, px, py, inside)
    partly = inside & (coverage < 1)
    red_behind, green_behind, blue_behind = _paint_layer(paint, pictures, pixels, behind, px, py, partly)
    red = tl.where(partly, red_behind + coverage * (red - red_behind), red)
    green = tl.where(partly, green_behind + coverage * (green - green_behind), green)
    blue = tl.where(partly, blue_behind + coverage * (blue - blue_behind), blue)

    size = knots_along(H, 48) * W
    bend_x = _smooth(rows, row, column, W, 48)
    bend_y = _smooth(rows + size, row, column, W, 48)
    rows += 2 * size
    background = inside & (solid == 0)
    p, q, r, s, right, down = _gather_layer(paint, pictures, pixels, solid * 0, px, py, background)
    segment = tl.load(group + b * LABELS + _labels(p, q, r, s, right, down), background, 0)
    motion = motions + (b * M + tl.where(solid == 0, segment, solid)) * MOTION
    vx, vy = _flow_of(motion, numbers + CAMERA, px, py, H, W, bend_x, bend_y, largest)

    shade = shading * _smooth(rows, row, column, W, 96)
    rows += knots_along(H, 96) * W
    level, sharpness = tl.load(numbers + LIGHT), tl.load(numbers + LIGHT + 1)
    shadow = tl.minimum(tl.maximum(0.5 + sharpness * (_smooth(rows, row, column, W, 64) - level), 0.0), 1.0)
    light = tl.exp(shade) * (1 - tl.load(numbers + LIGHT + 2) * shadow)

    plane = H * W
    at = y * W + x
    image += b.to(tl.int64) * 3 * plane + at
    tl.store(image, red * light, inside)
    tl.store(image + plane, green * light, inside)
    tl.store(image + 2 * plane, blue * light, inside)
    flow += b.to(tl.int64) * 2 * plane + at
    tl.store(flow, vx, inside)
    tl.store(flow + plane, vy, inside)
    tl.store(soft + b.to(tl.int64) * plane + at, tl.load(unsharp + b * (K + 1) + solid), inside)
