"""Triton kernels of `edge_weights_gpu`."""

import triton
import triton.language as tl

ALIGNMENT = tl.constexpr(16)
"""Levels start at multiples of this many values, so that their addresses are equally aligned for every size."""


@triton.jit
def _length(finest, shift):
    """Side length of the level that is `shift` levels above the finest."""
    return ((finest - 1) >> shift) + 1


@triton.jit
def _load(z, p, inside, PITCH: tl.constexpr):
    """The network's output at pixels p, in float32: α, μ₁, μ₂ and v before their activation functions."""
    if PITCH == 8:
        return _channels(_load_all(z, p, inside))
    z += p * PITCH
    return (
        tl.load(z, inside, 0.0).to(tl.float32),
        tl.load(z + 1, inside, 0.0).to(tl.float32),
        tl.load(z + 2, inside, 0.0).to(tl.float32),
        tl.load(z + 3, inside, 0.0).to(tl.float32),
        tl.load(z + 4, inside, 0.0).to(tl.float32),
    )


@triton.jit
def _load_all(z, p, inside):
    """All eight channels of the pixels p (N,), (N, 8): 16 bytes of half precision are one load."""
    return tl.load(z + p[:, None] * 8 + tl.arange(0, 8)[None, :], inside[:, None], 0.0).to(tl.float32)


@triton.jit
def _channels(z):
    """The first five of the channels of (N, 8)."""
    even, odd = tl.split(tl.reshape(z, [z.shape[0], 2, 2, 2]))
    c04, c26 = tl.split(even)
    c15, c37 = tl.split(odd)
    c0, c4 = tl.split(c04)
    c1, _ = tl.split(c15)
    c2, _ = tl.split(c26)
    c3, _ = tl.split(c37)
    return c0, c1, c2, c3, c4


@triton.jit
def _cell(z0, z1, z2, z3, z4, lam2, fade, inside):
    """The contribution of a cell to its horizontal, vertical and two diagonal edges; zero where there is no cell.

    fade: the floor added to ‖v‖².
    """
    sigma = tl.sigmoid(z0)
    # Both eigenvalues λ² / (λ² + z²) with one division, halved, since only (μ₁ ± μ₂)/2 are needed.
    d1, d2 = lam2 + z1 * z1, lam2 + z2 * z2
    common = 0.5 * lam2 / (d1 * d2)
    xx, yy = z3 * z3, z4 * z4
    mean, radius = common * (d2 + d1), common * (d2 - d1) / (xx + yy + fade)
    r, b = radius * (xx - yy), radius * (2.0 * z3 * z4)
    delta = sigma * mean + (1.0 - sigma) * tl.abs(b)
    half = tl.where(inside, 0.5, 0.0)
    return half * (mean + r - delta), half * (mean - r - delta), half * (delta + b), half * (delta - b)


@triton.jit
def _cell_at(z, y, x, h, w, row, lam2, fade, PITCH: tl.constexpr):
    exists = (y >= 0) & (y < h - 1) & (x >= 0) & (x < w - 1)
    z0, z1, z2, z3, z4 = _load(z, y * row + x, exists, PITCH)
    return _cell(z0, z1, z2, z3, z4, lam2, fade, exists)


@triton.jit
def _store(out, plane, inside, scale, east, south, south_east, south_west):
    T: tl.constexpr = out.dtype.element_ty
    tl.store(out, (scale * east).to(T), inside)
    tl.store(out + plane, (scale * south).to(T), inside)
    tl.store(out + 2 * plane, (scale * south_east).to(T), inside)
    tl.store(out + 3 * plane, (scale * south_west).to(T), inside)


@triton.jit
def _walk(z, out, y, x, h, w, row, lam2, fade, scale, PITCH: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr):
    """The edges of ROWS rows of pixels from (y, x), two columns per lane.

    A pixel's edges need its own cell, the one above and the one to the left; walking down, two columns at a time, a
    pixel costs about one and three quarter cells instead of three.
    """
    even, plane = x + 2 * tl.arange(0, PAIRS), h.to(tl.int64) * w
    y += tl.zeros_like(even)  # the interpreter accepts no scalar in a mask
    even_above, _, _, _ = _cell_at(z, y - 1, even, h, w, row, lam2, fade, PITCH)
    odd_above, _, _, _ = _cell_at(z, y - 1, even + 1, h, w, row, lam2, fade, PITCH)
    for step in tl.static_range(ROWS):
        i = y + step
        _, left_s, _, left_sw = _cell_at(z, i, even - 1, h, w, row, lam2, fade, PITCH)
        even_e, even_s, even_se, even_sw = _cell_at(z, i, even, h, w, row, lam2, fade, PITCH)
        odd_e, odd_s, odd_se, _ = _cell_at(z, i, even + 1, h, w, row, lam2, fade, PITCH)
        at, inside = out + i * w + even, i < h
        _store(at, plane, inside & (even < w), scale, even_e + even_above, even_s + left_s, even_se, left_sw)
        _store(at + 1, plane, inside & (even < w - 1), scale, odd_e + odd_above, odd_s + even_s, odd_se, even_sw)
        even_above, odd_above = even_e, odd_e


@triton.jit
def _average(z, out, y, x, depth, h, w, row, lam2, fade, scale, LANES: tl.constexpr):
    """The edges of a row of pixels of the level `depth` above a map, from the averages of its blocks of side 2^depth.

    Incomplete blocks at the border belong to no cell. Twelve loads are in flight at a time.
    """
    x += tl.arange(0, LANES)
    y += tl.zeros_like(x)
    own, above, left = (y < h - 1) & (x < w - 1), (y > 0) & (x < w - 1), (y < h - 1) & (x > 0) & (x < w)
    z_own = tl.zeros([LANES, 8], tl.float32)
    z_above, z_left, half = z_own, z_own, 1 << (depth - 1)
    for block in range(half * half):
        p = ((y << depth) + 2 * (block // half)) * row + (x << depth) + 2 * (block % half)
        for child in tl.static_range(4):
            q = p + (child // 2) * row + child % 2
            z_own += _load_all(z, q, own)
            z_above += _load_all(z, q - (row << depth), above)
            z_left += _load_all(z, q - (1 << depth), left)
    share = 0.25 / (half * half)
    z0, z1, z2, z3, z4 = _channels(z_own * share)
    east, south, south_east, _ = _cell(z0, z1, z2, z3, z4, lam2, fade, own)
    z0, z1, z2, z3, z4 = _channels(z_above * share)
    upper, _, _, _ = _cell(z0, z1, z2, z3, z4, lam2, fade, above)
    z0, z1, z2, z3, z4 = _channels(z_left * share)
    _, beside, _, south_west = _cell(z0, z1, z2, z3, z4, lam2, fade, left)
    plane = h.to(tl.int64) * w
    _store(out + y * w + x, plane, x < w, scale, east + upper, south + beside, south_east, south_west)


@triton.jit
def _tiles(h, w, depth, ROWS: tl.constexpr, PAIRS: tl.constexpr):
    """Number of tiles in each direction; for averaged levels a tile is a single row with one pixel per lane."""
    beside, above = tl.cdiv(w, PAIRS), h
    if depth == 0:
        beside, above = tl.cdiv(w, 2 * PAIRS), tl.cdiv(h, ROWS)
    return beside, above


@triton.jit(do_not_specialize=["B", "H", "W", "Hp", "Wp", "levels"])
def all_levels(
    fine_z,
    z2,
    z4,
    z8,
    lam,
    tau,
    out,
    B,
    H,
    W,
    Hp,
    Wp,
    levels,
    floor,
    fade,
    time_step,
    MAPS: tl.constexpr,
    PITCH: tl.constexpr,
    has_tau: tl.constexpr,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """All levels, coarse to fine: pixels of the coarsest level average most and take longest, so they start first."""
    shift, number, image = levels - 1, tl.program_id(0), tl.program_id(1).to(tl.int64)
    h, w = _length(H, shift), _length(W, shift)
    beside, above = _tiles(h, w, tl.maximum(shift - MAPS + 1, 0), ROWS, PAIRS)
    while number >= beside * above:
        out += (B * 4 * h.to(tl.int64) * w + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        number -= beside * above
        shift -= 1
        h, w = _length(H, shift), _length(W, shift)
        beside, above = _tiles(h, w, tl.maximum(shift - MAPS + 1, 0), ROWS, PAIRS)
    source = tl.minimum(shift, MAPS - 1)
    z = fine_z
    if MAPS == 4:
        if source == 1:
            z = z2
        elif source == 2:
            z = z4
        elif source == 3:
            z = z8
    row = Wp >> source
    z += image * (Hp >> source) * row * PITCH
    out += image * 4 * h * w
    scale = time_step
    if has_tau:
        scale = tl.load(tau + (levels - 1 - shift) * B + image)
    lam_here = tl.load(lam + MAPS - 1 - source)
    lam2, y, x = lam_here * lam_here + floor, number // beside, number % beside
    if shift == source:
        _walk(z, out, y * ROWS, x * 2 * PAIRS, h, w, row, lam2, fade, scale, PITCH, ROWS, PAIRS)
    elif MAPS > 1:
        _average(z, out, y, x * PAIRS, shift - source, h, w, row, lam2, fade, scale, PAIRS)


@triton.jit(do_not_specialize=["h", "w"])
def backward(
    z, lam, gradient, grad_z, grad_lam, h, w, floor, fade, time_step, PITCH: tl.constexpr, BLOCK: tl.constexpr
):
    """The dz of a block of cells, and its part of dλ; gradient (B, 4, h, w), grad_z (B, h, w, 5)."""
    image, plane = tl.program_id(1).to(tl.int64), h.to(tl.int64) * w
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y, x = p // w, p % w
    cell, inside = (y < h - 1) & (x < w - 1), p < h * w
    z0, z1, z2, z3, z4 = _load(z + image * plane * PITCH, p, cell, PITCH)

    gradient += image * 4 * plane + p
    horizontal = tl.load(gradient, cell, 0.0) + tl.load(gradient + w, cell, 0.0)
    vertical = tl.load(gradient + plane, cell, 0.0) + tl.load(gradient + plane + 1, cell, 0.0)
    falling, rising = tl.load(gradient + 2 * plane, cell, 0.0), tl.load(gradient + 3 * plane + 1, cell, 0.0)
    half = 0.5 * time_step
    ga, gc, gb = half * horizontal, half * vertical, half * (falling - rising)
    g_delta = half * (falling + rising - horizontal - vertical)

    lam_here = tl.load(lam)
    lam2 = lam_here * lam_here + floor
    sigma = tl.sigmoid(z0)
    q1, q2 = 1.0 / (lam2 + z1 * z1), 1.0 / (lam2 + z2 * z2)
    mean, radius = 0.5 * lam2 * (q1 + q2), 0.5 * lam2 * (q1 - q2)
    inverse = 1.0 / (z3 * z3 + z4 * z4 + fade)
    cos2, sin2 = (z3 * z3 - z4 * z4) * inverse, 2.0 * z3 * z4 * inverse
    b = radius * sin2

    # δ = 2 α mean + (1 - 2α) |b| with 2α = σ(z0)
    g_z0 = g_delta * (mean - tl.abs(b)) * sigma * (1.0 - sigma)
    gb += g_delta * (1.0 - sigma) * ((b > 0).to(tl.float32) - (b < 0).to(tl.float32))
    g_mean, g_radius = ga + gc + g_delta * sigma, (ga - gc) * cos2 + gb * sin2
    g_cos, g_sin = (ga - gc) * radius, gb * radius
    g_mu1, g_mu2 = 0.5 * (g_mean + g_radius), 0.5 * (g_mean - g_radius)
    g_z1, g_z2 = -2.0 * lam2 * z1 * q1 * q1 * g_mu1, -2.0 * lam2 * z2 * q2 * q2 * g_mu2
    along = 2.0 * inverse * (g_cos * cos2 + g_sin * sin2)
    g_z3 = 2.0 * inverse * (g_cos * z3 + g_sin * z4) - along * z3
    g_z4 = 2.0 * inverse * (g_sin * z3 - g_cos * z4) - along * z4
    g_lam2 = z1 * z1 * q1 * q1 * g_mu1 + z2 * z2 * q2 * q2 * g_mu2

    T: tl.constexpr = grad_z.dtype.element_ty
    grad_z += (image * plane + p) * 5
    tl.store(grad_z, g_z0.to(T), inside)
    tl.store(grad_z + 1, g_z1.to(T), inside)
    tl.store(grad_z + 2, g_z2.to(T), inside)
    tl.store(grad_z + 3, g_z3.to(T), inside)
    tl.store(grad_z + 4, g_z4.to(T), inside)
    part = image * tl.num_programs(0) + tl.program_id(0)
    tl.store(grad_lam + part, 2.0 * lam_here * tl.sum(tl.where(cell, g_lam2, 0.0)))
