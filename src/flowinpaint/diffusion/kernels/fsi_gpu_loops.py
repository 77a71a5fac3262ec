"""The kernels behind `fsi_gpu`, in Triton's language: a program to a tile of pixels of one image, all its channels."""

import triton
import triton.language as tl


@triton.jit
def _tile(H, W, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return y, x, (y < H) & (x < W)


@triton.jit
def _gamma(step, T: tl.constexpr):
    return (4 * step + 2).to(T) / (2 * step + 3).to(T)


@triton.jit(do_not_specialize=["step", "old_step"])
def take_step(
    u,
    old,
    held,
    known,
    w,
    grad_f,
    out,
    step,
    old_step,
    H,
    W,
    C: tl.constexpr,
    has_old: tl.constexpr,
    holds: tl.constexpr,
    wants_f: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """γ (u + A u) + (1 - γ_old) old, for the steps forwards and, holds or not, for those of the adjoint."""
    y, x, inside = _tile(H, W, ROWS, COLUMNS)
    image, plane, p = tl.program_id(2).to(tl.int64), H * W, y * W + x
    left, right = inside & (x > 0), inside & (x < W - 1)
    above, below = inside & (y > 0), inside & (y < H - 1)
    w += image * 4 * plane
    e, west = tl.load(w + p, right, 0.0), tl.load(w + p - 1, left, 0.0)
    w += plane
    s, north = tl.load(w + p, below, 0.0), tl.load(w + p - W, above, 0.0)
    w += plane
    se, nw = tl.load(w + p, below & right, 0.0), tl.load(w + p - W - 1, above & left, 0.0)
    w += plane
    sw, ne = tl.load(w + p, below & left, 0.0), tl.load(w + p - W + 1, above & right, 0.0)
    fixed = tl.load(known + image * plane + p, inside, 0) != 0
    T: tl.constexpr = u.dtype.element_ty
    gamma, rest = _gamma(step, T), 1 - _gamma(old_step, T)
    for channel in tl.static_range(C):
        at = (image * C + channel) * plane + p
        here = tl.load(u + at, inside, 0.0)
        Au = e * (tl.load(u + at + 1, right, 0.0) - here)
        Au += west * (tl.load(u + at - 1, left, 0.0) - here)
        Au += s * (tl.load(u + at + W, below, 0.0) - here)
        Au += north * (tl.load(u + at - W, above, 0.0) - here)
        Au += se * (tl.load(u + at + W + 1, below & right, 0.0) - here)
        Au += nw * (tl.load(u + at - W - 1, above & left, 0.0) - here)
        Au += sw * (tl.load(u + at + W - 1, below & left, 0.0) - here)
        Au += ne * (tl.load(u + at - W + 1, above & right, 0.0) - here)
        value = (gamma if holds else 1.0) * here + gamma * Au
        if has_old:
            value += rest * tl.load(old + at, inside, 0.0)
        if wants_f:
            given = inside & fixed
            tl.store(grad_f + at, tl.load(grad_f + at, given, 0.0) + value, given)
        if holds:
            # Few pixels are known, so little of `held` is read.
            value = tl.where(fixed, tl.load(held + at, inside & fixed, 0.0), value)
        tl.store(out + at, value, inside)


@triton.jit(do_not_specialize=["first", "count", "slots"])
def weight_gradient(
    ring,
    iterates,
    out,
    first,
    count,
    slots,
    B,
    H,
    W,
    C: tl.constexpr,
    accumulate: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    y, x, inside = _tile(H, W, ROWS, COLUMNS)
    image, plane, p = tl.program_id(2).to(tl.int64), H * W, y * W + x
    left, right, below = inside & (x > 0), inside & (x < W - 1), inside & (y < H - 1)
    T: tl.constexpr = ring.dtype.element_ty
    e, s = tl.zeros([ROWS, COLUMNS], T), tl.zeros([ROWS, COLUMNS], T)
    se, sw = tl.zeros([ROWS, COLUMNS], T), tl.zeros([ROWS, COLUMNS], T)
    for j in range(count):
        gamma, slot = _gamma(first + j, T), (first + j + 1) % slots
        for channel in tl.static_range(C):
            at = (image * C + channel) * plane + p
            g = ring + slot.to(tl.int64) * B * C * plane + at
            u = iterates + tl.cast(j, tl.int64) * B * C * plane + at
            g_here, u_here = gamma * tl.load(g, inside, 0.0), tl.load(u, inside, 0.0)
            e += (g_here - gamma * tl.load(g + 1, right, 0.0)) * (tl.load(u + 1, right, 0.0) - u_here)
            s += (g_here - gamma * tl.load(g + W, below, 0.0)) * (tl.load(u + W, below, 0.0) - u_here)
            both = below & right
            se += (g_here - gamma * tl.load(g + W + 1, both, 0.0)) * (tl.load(u + W + 1, both, 0.0) - u_here)
            both = below & left
            sw += (g_here - gamma * tl.load(g + W - 1, both, 0.0)) * (tl.load(u + W - 1, both, 0.0) - u_here)
    # An edge that leaves the image has no gradient, whatever was summed for it.
    e, s = tl.where(right, e, 0.0), tl.where(below, s, 0.0)
    se, sw = tl.where(below & right, se, 0.0), tl.where(below & left, sw, 0.0)
    out += image * 4 * plane + p
    if accumulate:
        e += tl.load(out, inside, 0.0)
        s += tl.load(out + plane, inside, 0.0)
        se += tl.load(out + 2 * plane, inside, 0.0)
        sw += tl.load(out + 3 * plane, inside, 0.0)
    tl.store(out, e, inside)
    tl.store(out + plane, s, inside)
    tl.store(out + 2 * plane, se, inside)
    tl.store(out + 3 * plane, sw, inside)
