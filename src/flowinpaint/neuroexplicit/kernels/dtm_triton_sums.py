"""Last Triton kernel of `dtm_gpu`: sums the products of pixels and taps of a 3×3 to z."""

import triton
import triton.language as tl

from flowinpaint.neuroexplicit.kernels.dtm_triton import _half


@triton.jit
def _sum_of_taps(taps, bias, out, start, pixels, h, w, Z: tl.constexpr, PIXELS: tl.constexpr):
    """The z of a level of h × w pixels from the planes of its taps."""
    m = start + tl.arange(0, PIXELS)
    inside = m < pixels
    y, x = m // w % h, m % w
    plane = tl.cast(tl.cdiv(pixels, 16) * 16, tl.int64)
    c = tl.arange(0, 8)
    acc = tl.zeros([PIXELS, 8], tl.float32) + tl.load(bias + c, c < Z, 0.0)[None, :]
    for tap in tl.static_range(9):
        dy, dx = tap // 3 - 1, tap % 3 - 1
        valid = inside & (y + dy >= 0) & (y + dy < h) & (x + dx >= 0) & (x + dx < w)
        at = taps + (tap * Z + c)[None, :] * plane + (m + dy * w + dx)[:, None]
        acc += tl.load(at, valid[:, None] & (c < Z)[None, :], 0.0)
    pixel = tl.cast(m, tl.int64)
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
    Z: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """The z of all four levels; h and w are the finest's."""
    tile = tl.program_id(0)
    n1, n2, n3, n4 = B * h * w, B * h * w // 4, B * h * w // 16, B * h * w // 64
    tiles1, tiles2, tiles3 = tl.cdiv(n1, PIXELS), tl.cdiv(n2, PIXELS), tl.cdiv(n3, PIXELS)
    if tile < tiles1:
        _sum_of_taps(taps1, bias + 3 * Z, z1, tile * PIXELS, n1, h, w, Z, PIXELS)
    elif tile < tiles1 + tiles2:
        _sum_of_taps(taps2, bias + 2 * Z, z2, (tile - tiles1) * PIXELS, n2, h // 2, w // 2, Z, PIXELS)
    elif tile < tiles1 + tiles2 + tiles3:
        _sum_of_taps(taps3, bias + Z, z3, (tile - tiles1 - tiles2) * PIXELS, n3, h // 4, w // 4, Z, PIXELS)
    else:
        start = (tile - tiles1 - tiles2 - tiles3) * PIXELS
        _sum_of_taps(taps4, bias, z4, start, n4, h // 8, w // 8, Z, PIXELS)
