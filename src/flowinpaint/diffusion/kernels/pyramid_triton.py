"""Triton kernels of `pyramid_gpu`."""

import triton
import triton.language as tl

ALIGNMENT = tl.constexpr(16)
"""Levels start at multiples of this many values, so that their addresses are equally aligned for every size."""


@triton.jit
def _aligned(count):
    return (count + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@triton.jit
def _block_sum(x, SIDE: tl.constexpr):
    """The sums of the 2×2 blocks of a square tile: (SIDE, SIDE) to (SIDE/2, SIDE/2)."""
    blocks = tl.reshape(x, [SIDE // 2, 2, SIDE // 2, 2])
    return tl.sum(tl.sum(blocks, 3), 1)


@triton.jit
def upsampled(u, pitch, h, w, y, x, inside):
    """Bilinear interpolation by two of u, h by w pixels with rows `pitch` apart, at the fine pixels (y, x)."""
    i, j = y // 2, x // 2
    beside_i = tl.minimum(tl.maximum(i + 2 * (y % 2) - 1, 0), h - 1)
    beside_j = tl.minimum(tl.maximum(j + 2 * (x % 2) - 1, 0), w - 1)
    near = 0.75 * tl.load(u + i * pitch + j, inside, 0.0) + 0.25 * tl.load(u + i * pitch + beside_j, inside, 0.0)
    far = tl.load(u + beside_i * pitch + j, inside, 0.0)
    far = 0.75 * far + 0.25 * tl.load(u + beside_i * pitch + beside_j, inside, 0.0)
    return 0.75 * near + 0.25 * far


@triton.jit
def _known_block(known, y, x, H, W):
    """Masks of the known pixels among the four of the block at (y, x), row by row."""
    p, below, right = y * W + x, y + 1 < H, x + 1 < W
    inside = (y < H) & (x < W)
    return (
        tl.load(known + p, inside, 0) != 0,
        tl.load(known + p + 1, inside & right, 0) != 0,
        tl.load(known + p + W, inside & below, 0) != 0,
        tl.load(known + p + W + 1, inside & below & right, 0) != 0,
    )


@triton.jit(do_not_specialize=["B", "C", "H", "W"])
def push(f, known, coarse_f, coarse_known, B, C, H, W, LEVELS: tl.constexpr, SIDE: tl.constexpr):
    """One channel of a tile of the first coarser level, SIDE pixels a side, and of the coarser LEVELS above it."""
    v, t = tl.program_id(1) * SIDE + tl.arange(0, SIDE)[:, None], tl.program_id(0) * SIDE + tl.arange(0, SIDE)[None, :]
    number, plane, y, x = tl.program_id(2).to(tl.int64), H.to(tl.int64) * W, 2 * v.to(tl.int64), 2 * t
    image, channel = number // C, number % C
    k0, k1, k2, k3 = _known_block(known + image * plane, y, x, H, W)
    f += number * plane + y * W + x
    value = tl.load(f, k0, 0.0) + tl.load(f + 1, k1, 0.0) + tl.load(f + W, k2, 0.0) + tl.load(f + W + 1, k3, 0.0)
    T: tl.constexpr = f.dtype.element_ty
    count = k0.to(T) + k1.to(T) + k2.to(T) + k3.to(T)
    h, w = H, W
    for level in tl.static_range(LEVELS):
        if level > 0:
            count = _block_sum((count > 0).to(T), SIDE >> (level - 1))
            value = _block_sum(value, SIDE >> (level - 1))
        value /= tl.maximum(count, 1.0)
        h, w = (h + 1) // 2, (w + 1) // 2
        i = tl.program_id(1) * (SIDE >> level) + tl.arange(0, SIDE >> level)[:, None]
        j = tl.program_id(0) * (SIDE >> level) + tl.arange(0, SIDE >> level)[None, :]
        inside, p, area = (i < h) & (j < w), i.to(tl.int64) * w + j, h.to(tl.int64) * w
        tl.store(coarse_f + number * area + p, value, inside)
        if channel == 0:
            tl.store(coarse_known + image * area + p, (count > 0).to(tl.uint8), inside)
        coarse_f += _aligned(B * C * area)
        coarse_known += _aligned(B * area)


@triton.jit
def _fill(coarser, field, mask, h, w, LEVEL: tl.constexpr, SIDE: tl.constexpr):
    """Fill one of the coarse tiles that `pull` keeps, SIDE pixels a side, from the next coarser one."""
    y, x = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    inside = (y <= ((h - 1) >> LEVEL)) & (x <= ((w - 1) >> LEVEL))
    # Interpolate known pixels too, so that no load waits for another.
    coarser_h, coarser_w = ((h - 1) >> (LEVEL + 1)) + 1, ((w - 1) >> (LEVEL + 1)) + 1
    value = upsampled(coarser, SIDE // 2, coarser_h, coarser_w, y, x, inside)
    tl.store(field + y * SIDE + x, value, inside & (tl.load(mask + y * SIDE + x) == 0))


@triton.jit(do_not_specialize=["h", "w", "C"])
def pull(f, known, scratch, out, h, w, C, LEVELS: tl.constexpr):
    """Fill one channel of a small level, at most 2^LEVELS pixels a side, from its own pyramid down to one pixel.

    Coarser levels are stored in the scratch, two planes of a third of the tile: the known and later the filled values,
    and the mask of known ones.
    """
    SIDE: tl.constexpr = 1 << LEVELS
    THIRD: tl.constexpr = SIDE * SIDE // 3 + 1
    number = tl.program_id(0).to(tl.int64)
    field, mask = scratch + number * 2 * THIRD, scratch + number * 2 * THIRD + THIRD
    y, x = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    inside = (y < h) & (x < w)
    given = tl.load(known + number // C * h * w + y * w + x, inside, 0) != 0
    value = tl.load(f + number * h * w + y * w + x, given, 0.0)
    finest, is_known = value, given.to(value.dtype)
    at = 0
    for level in tl.static_range(1, LEVELS + 1):
        count = _block_sum(is_known, SIDE >> (level - 1))
        value = _block_sum(value, SIDE >> (level - 1)) / tl.maximum(count, 1.0)
        is_known = (count > 0).to(value.dtype)
        rows, columns = tl.arange(0, SIDE >> level)[:, None], tl.arange(0, SIDE >> level)[None, :]
        tl.store(field + at + rows * (SIDE >> level) + columns, value)
        tl.store(mask + at + rows * (SIDE >> level) + columns, is_known)
        at += (SIDE >> level) * (SIDE >> level)
    at -= 1
    for level in tl.static_range(LEVELS - 1, 0, -1):
        tl.debug_barrier()
        _fill(
            field + at,
            field + at - (SIDE >> level) * (SIDE >> level),
            mask + at - (SIDE >> level) * (SIDE >> level),
            h,
            w,
            level,
            SIDE >> level,
        )
        at -= (SIDE >> level) * (SIDE >> level)
    tl.debug_barrier()
    up = upsampled(field, SIDE // 2, (h + 1) // 2, (w + 1) // 2, y, x, inside)
    tl.store(out + number * h * w + y * w + x, tl.where(given, finest, up), inside)


@triton.jit(do_not_specialize=["C", "H", "W"])
def refine(u, f, known, out, C, H, W, GROUP: tl.constexpr, COLUMNS: tl.constexpr):
    """Refine a piece of a row in GROUP channels."""
    x = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    y, number, inside = tl.program_id(0) + tl.zeros_like(x), tl.program_id(2).to(tl.int64) * GROUP, x < W
    h, w = (H + 1) // 2, (W + 1) // 2
    p, plane, coarse_plane = y.to(tl.int64) * W + x, H.to(tl.int64) * W, h.to(tl.int64) * w
    given = tl.load(known + number // C * plane + p, inside, 0) != 0
    for channel in tl.static_range(GROUP):
        # Interpolate known pixels too, so that only the loads of f wait for others.
        up = upsampled(u + (number + channel) * coarse_plane, w, h, w, y, x, inside)
        value = tl.load(f + (number + channel) * plane + p, given, 0.0)
        tl.store(out + (number + channel) * plane + p, tl.where(given, value, up), inside)
