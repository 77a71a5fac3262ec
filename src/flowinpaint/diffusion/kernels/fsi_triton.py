"""Triton kernels of `fsi_gpu`: several steps on a tile, and the weight gradient of many steps."""

import triton
import triton.language as tl

from flowinpaint.diffusion.kernels import fsi_triton_tile as tile


@triton.jit
def _gamma(step, T: tl.constexpr):
    return (4 * step + 2).to(T) / (2 * step + 3).to(T)


@triton.jit(
    do_not_specialize=["channel", "channels", "halo", "first", "count", "origin", "slots", "H", "W"],
    do_not_specialize_on_alignment=(
        ["u", "previous", "coarse", "f", "grad_f", "known", "w", "kept", "out", "out_previous"]
    ),
)
def take_steps(
    u,
    previous,
    coarse,
    f,
    grad_f,
    known,
    w,
    kept,
    out,
    out_previous,
    pages,
    channel,
    channels,
    halo,
    first,
    count,
    origin,
    slots,
    H,
    W,
    BACKWARDS: tl.constexpr,
    CHANNELS: tl.constexpr,
    R: tl.constexpr,
    G: tl.constexpr,
):
    """Take `count` steps from l = first: the last goes to `out`, the one before it to `out_previous` or `kept`.

    Forwards from u_l and u_{l-1} to u_{l+count}. Backwards, A being symmetric, the same from s_{l+1} and s_{l+2} to
    s_{l+1-count}, with other factors, down to the start l = 0, which is its own predecessor and free everywhere.
    The result of step l is kept in slot (l - origin) mod slots. With `coarse`, the field of the next coarser level, u
    is read only where known, and the start elsewhere is interpolated.
    """
    T: tl.constexpr = u.dtype.element_ty
    y, x = tile.corner(halo, R, G)
    plane = tl.cast(H, tl.int64) * W
    image = tl.program_id(2)
    start, iterate = (image * channels + channel) * plane, tl.num_programs(2) * channels * plane
    if w is not None:
        w += image * 4 * plane
    operator, fixed = tile.edges(w, y, x, H, W, T, R, G), tile.fixed(known + image * plane, y, x, H, W, R)
    # Both are loaded even if they are the same: of two names for one tuple, Triton 3.6 carries only one through a loop.
    if coarse is None:
        new = tile.load(u + start, y, x, H, W, CHANNELS, R)
        old = tile.load(previous + start, y, x, H, W, CHANNELS, R)
    else:
        coarse += (image * channels + channel) * (tl.cast((H + 1) // 2, tl.int64) * ((W + 1) // 2))
        new = tile.refined(coarse, u + start, fixed, y, x, H, W, CHANNELS, R)
        old = tile.refined(coarse, previous + start, fixed, y, x, H, W, CHANNELS, R)
    if f is not None:
        # Where known, u_{l-1} has no effect, so it holds the values that the first step writes there.
        given = tile.load(f + start, y, x, H, W, CHANNELS, R)
        before, old = old, ()
        for i in tl.static_range(CHANNELS * R):
            old += (tl.where(fixed[i % R], given[i], before[i]),)
    if grad_f is not None:
        grad_f += start
        collected = tile.load(grad_f, y, x, H, W, CHANNELS, R)
    own = tile.own_pages(pages, CHANNELS, G)
    for k in range(count):
        step = first - k if BACKWARDS else first + k
        gamma = _gamma(step, T)
        rest = 1 - (_gamma(step + 1, T) if BACKWARDS else gamma)
        rows = tile.with_rows_around(new, own, k % 2, CHANNELS, R, G)
        diffused = tile.diffused(operator, rows, w is None, CHANNELS, R, G)
        older, old, new, known_part = old, new, (), ()
        for i in tl.static_range(CHANNELS * R):
            value = gamma * diffused[i] + rest * older[i]
            held = old[i] if f is None else older[i]
            stays = fixed[i % R] & (step > 0) if BACKWARDS else fixed[i % R]
            if grad_f is not None:
                known_part += (tl.where(stays, value, 0.0),)
            new += (tl.where(stays, held, value),)
        if f is not None:
            before, old = old, ()
            for i in tl.static_range(CHANNELS * R):
                old += (tl.where(fixed[i % R], new[i], before[i]),)
        if grad_f is not None:
            before, collected = collected, ()
            for i in tl.static_range(CHANNELS * R):
                collected += (before[i] + known_part[i],)
        if kept is not None:  # noqa: SIM102  (known at compile time, unlike the rest)
            if k < count - 1:
                slot = (step - origin) % slots
                tile.store(kept + start + slot * iterate, new, y, x, H, W, halo, CHANNELS, R, G)
    if BACKWARDS:
        again = tl.where(first + 1 == count, 1 - _gamma(first + 1 - count, T), 0.0)
        last, new = new, ()
        for i in tl.static_range(CHANNELS * R):
            new += (last[i] + again * old[i],)
    tile.store(out + start, new, y, x, H, W, halo, CHANNELS, R, G)
    if out_previous is not None:
        tile.store(out_previous + start, old, y, x, H, W, halo, CHANNELS, R, G)
    if grad_f is not None:
        tile.store(grad_f, collected, y, x, H, W, halo, CHANNELS, R, G)


@triton.jit(
    do_not_specialize=["channel", "channels", "first", "count", "start", "slots", "H", "W"],
    do_not_specialize_on_alignment=["ring", "u", "iterates", "grad_w"],
)
def weight_gradient(
    ring,
    u,
    iterates,
    grad_w,
    channel,
    channels,
    first,
    count,
    start,
    slots,
    H,
    W,
    CHANNELS: tl.constexpr,
    R: tl.constexpr,
    G: tl.constexpr,
):
    """Add Σ_l γ_l Σ_channels (s_p - s_q)(u_q - u_p) to the gradient of the edges pq, for `count` steps from l = first.

    s_{l+1} is in the ring at slot (l + 1) mod slots; u is the iterate `start`, later ones are in `iterates`. The last
    lane has no edges: its pixels are the first of the next tile.
    """
    T: tl.constexpr = ring.dtype.element_ty
    y = tl.program_id(1) * (R * G) + tl.arange(0, G)[:, None] * R
    lane = tl.arange(0, 32)[None, :]
    x = tl.program_id(0) * 31 - 1 + lane
    plane, at, column = tl.cast(H, tl.int64) * W, y * W + x, (x >= 0) & (x < W)
    image = tl.program_id(2)
    begin, iterate = (image * channels + channel) * plane, tl.num_programs(2) * channels * plane
    zero, sums = tl.zeros([G, 32], T), ()
    for _ in tl.static_range(R):
        sums += ((zero, zero, zero, zero),)
    for k in range(count):
        step = first + k
        gamma, field = _gamma(step, T), u + begin
        if step > start:
            field = iterates + begin + (step - start - 1) * iterate
        s_field = ring + begin + (step + 1) % slots * iterate
        s_rows, u_rows = (), ()
        for c in tl.static_range(CHANNELS):
            for r in tl.static_range(R + 1):
                inside = (y + r < H) & column
                s_rows += (tl.load(s_field + c * plane + r * W + at, inside, 0.0),)
                u_rows += (tl.load(field + c * plane + r * W + at, inside, 0.0),)
        totals, sums = sums, ()
        for r in tl.static_range(R):
            e, s, se, ne = zero, zero, zero, zero
            for c in tl.static_range(CHANNELS):
                a, b = s_rows[c * (R + 1) + r], s_rows[c * (R + 1) + r + 1]
                u_a, u_b = u_rows[c * (R + 1) + r], u_rows[c * (R + 1) + r + 1]
                a_right, b_right = tile.from_right(a, G), tile.from_right(b, G)
                u_a_right, u_b_right = tile.from_right(u_a, G), tile.from_right(u_b, G)
                e += (a - a_right) * (u_a_right - u_a)
                s += (a - b) * (u_b - u_a)
                se += (a - b_right) * (u_b_right - u_a)
                ne += (b - a_right) * (u_a_right - u_b)
            before = totals[r]
            sums += ((before[0] + gamma * e, before[1] + gamma * s, before[2] + gamma * se, before[3] + gamma * ne),)
    column, right = column & (lane < 31), (x >= 0) & (x < W - 1) & (lane < 31)
    for r in tl.static_range(R):
        e, s, se, ne = sums[r]
        base, row, below = grad_w + image * 4 * plane + r * W, y + r < H, y + r < H - 1
        tl.store(base + at, tl.load(base + at, row & right, 0.0) + e, row & right)
        base += plane
        tl.store(base + at, tl.load(base + at, below & column, 0.0) + s, below & column)
        base += plane
        tl.store(base + at, tl.load(base + at, below & right, 0.0) + se, below & right)
        base += plane + 1  # an edge to the upper right belongs to its upper end
        tl.store(base + at, tl.load(base + at, below & right, 0.0) + ne, below & right)
