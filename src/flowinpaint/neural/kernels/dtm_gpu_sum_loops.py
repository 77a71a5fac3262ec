"""The last kernel of `dtm_gpu`, in Triton's language: from what the taps of a 3×3 made of each pixel to z."""

import triton
import triton.language as tl

from flowinpaint.neural.kernels.dtm_gpu_loops import _half


@triton.jit
def _sum_of_taps(taps, bias, out, start, part, pixels, h, w, SIDE: tl.constexpr, Z: tl.constexpr, PIXELS: tl.constexpr):
    """The z of a level from the planes of its taps; SIDE² pixels, with planes of their own, lie under one of h × w."""
    m = start + tl.arange(0, PIXELS)
    inside = m < pixels
    y, x = m // w % h, m % w
    plane = tl.cast(tl.cdiv(pixels, 16) * 16, tl.int64)
    c = tl.arange(0, 8)
    acc = tl.zeros([PIXELS, 8], tl.float32) + tl.load(bias + c, c < Z, 0.0)[None, :]
    for tap in tl.static_range(9):
        # The neighbour at this tap, counted from one large pixel further up and left so as to divide no negatives.
        v, u = part // SIDE + tap // 3 - 1 + SIDE, part % SIDE + tap % 3 - 1 + SIDE
        place = v % SIDE * SIDE + u % SIDE
        dy, dx = v // SIDE - 1, u // SIDE - 1
        valid = inside & (y + dy >= 0) & (y + dy < h) & (x + dx >= 0) & (x + dx < w)
        at = taps + ((place * 9 + tap) * Z + c)[None, :] * plane + (m + dy * w + dx)[:, None]
        acc += tl.load(at, valid[:, None] & (c < Z)[None, :], 0.0)
    pixel = (tl.cast(m // w, tl.int64) * SIDE + part // SIDE) * w * SIDE + m % w * SIDE + part % SIDE
    tl.store(out + pixel[:, None] * 8 + c[None, :], _half(acc, out.dtype.element_ty), inside[:, None])


@triton.jit(do_not_specialize=["B", "h", "w"])
def sum_of_taps(
    taps4,
    taps3,
    taps2,
    taps1,
    bias,
    z4,
    z3,
    z2,
    z1,
    B,
    h,
    w,
    SIDE: tl.constexpr,
    Z: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """The z of all four levels; h and w are the second finest's.

    SIDE is 2 if the finest level's taps are those of `last_upsampling`, 1 if they are of `tap_products`.
    """
    tile = tl.program_id(0)
    n2, n3, n4 = B * h * w, B * h * w // 4, B * h * w // 16
    tiles2, tiles3 = tl.cdiv(n2, PIXELS), tl.cdiv(n3, PIXELS)
    if tile < 4 * tiles2:
        if SIDE == 2:
            _sum_of_taps(taps1, bias + 3 * Z, z1, tile // 4 * PIXELS, tile % 4, n2, h, w, 2, Z, PIXELS)
        else:
            _sum_of_taps(taps1, bias + 3 * Z, z1, tile * PIXELS, 0, 4 * n2, 2 * h, 2 * w, 1, Z, PIXELS)
    elif tile < 5 * tiles2:
        _sum_of_taps(taps2, bias + 2 * Z, z2, (tile - 4 * tiles2) * PIXELS, 0, n2, h, w, 1, Z, PIXELS)
    elif tile < 5 * tiles2 + tiles3:
        _sum_of_taps(taps3, bias + Z, z3, (tile - 5 * tiles2) * PIXELS, 0, n3, h // 2, w // 2, 1, Z, PIXELS)
    else:
        start = (tile - 5 * tiles2 - tiles3) * PIXELS
        _sum_of_taps(taps4, bias, z4, start, 0, n4, h // 4, w // 4, 1, Z, PIXELS)
