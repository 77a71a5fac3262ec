"""A tile of pixels that stays in registers over several steps, for the kernels of `fsi_triton`.

A program computes a tile of R·G × 32 pixels: a thread has a column of R pixels, a warp 32 such columns, and the G warps
are stacked vertically. So a field on the tile is a tuple of R tensors of shape (G, 32) per channel, and row g of tensor
r is row g R + r of the tile. A pixel's neighbour is in another tensor at the same place, or in the next lane (a
shuffle), or in the next warp. Only for the last case do the first and last rows of the warps go through memory: the
program has two pages of its own and alternates between them, so that one barrier per step is enough.

Nothing beyond the tile is available, so each step invalidates a ring of pixels: n steps are correct inside a halo of n.
Pixels beyond the image stay zero; a tile with a ring of them all around stays valid.
"""

import triton
import triton.language as tl

from flowinpaint.diffusion.kernels.pyramid_triton import upsampled


@triton.jit
def corner(halo, R: tl.constexpr, G: tl.constexpr):
    """Row (G, 1) and column (1, 32) of every thread's first pixel."""
    y = tl.program_id(1) * (R * G - 2 * halo) - halo + tl.arange(0, G)[:, None] * R
    x = tl.program_id(0) * (32 - 2 * halo) - halo + tl.arange(0, 32)[None, :]
    return y, x


@triton.jit
def within(y, x, H, W, halo, R: tl.constexpr, G: tl.constexpr):
    """Mask of the pixels inside the image and inside the tile without its halo."""
    top, left = tl.program_id(1) * (R * G - 2 * halo), tl.program_id(0) * (32 - 2 * halo)
    rows = (y >= top) & (y < tl.minimum(top + R * G - 2 * halo, H))
    columns = (x >= left) & (x < tl.minimum(left + 32 - 2 * halo, W))
    return rows & columns


@triton.jit
def from_right(value, G: tl.constexpr):
    """The next lane's value; the last lane keeps its own."""
    lane = tl.broadcast_to(tl.arange(0, 32)[None, :], [G, 32])
    return tl.gather(value, tl.minimum(lane + 1, 31), 1)


@triton.jit
def from_left(value, G: tl.constexpr):
    """The previous lane's value; the first lane keeps its own."""
    lane = tl.broadcast_to(tl.arange(0, 32)[None, :], [G, 32])
    return tl.gather(value, tl.maximum(lane - 1, 0), 1)


@triton.jit
def own_pages(pages, CHANNELS: tl.constexpr, G: tl.constexpr):
    """The program's two pages, one after the other."""
    program = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    return pages + program.to(tl.int64) * (2 * 2 * CHANNELS * G * 32)


@triton.jit
def with_rows_around(field, pages, turn, CHANNELS: tl.constexpr, R: tl.constexpr, G: tl.constexpr):
    """Rows -1 to R of every channel."""
    warp, lane = tl.arange(0, G)[:, None], tl.arange(0, 32)[None, :]
    here = warp * 32 + lane
    above, below = tl.maximum(warp - 1, 0) * 32 + lane, tl.minimum(warp + 1, G - 1) * 32 + lane
    page = pages + turn * (2 * CHANNELS * G * 32)
    for c in tl.static_range(CHANNELS):
        tl.store(page + 2 * c * G * 32 + here, field[c * R])
        tl.store(page + (2 * c + 1) * G * 32 + here, field[c * R + R - 1])
    tl.debug_barrier()
    rows = ()
    for c in tl.static_range(CHANNELS):
        rows += (tl.load(page + (2 * c + 1) * G * 32 + above),)
        for r in tl.static_range(R):
            rows += (field[c * R + r],)
        rows += (tl.load(page + 2 * c * G * 32 + below),)
    return rows


@triton.jit
def edges(w, y, x, H, W, T: tl.constexpr, R: tl.constexpr, G: tl.constexpr):
    """The operator I + A: a tuple per direction, with the weights of the edges that leave a thread's pixels.

    To the right: e of the rows 0 to R-1, se of -1 to R-1, ne of 0 to R. Downwards: s of -1 to R-1. And 1 - Σ w over all
    eight edges of a pixel, of 0 to R-1; without weights only this tuple is filled.
    """
    e, s, se, ne, centre = (), (), (), (), ()
    if w is None:
        for r in tl.static_range(R):
            across = (x > 0).to(T) + (x < W - 1).to(T)
            centre += (1 - 0.25 * (across + (y + r > 0).to(T) + (y + r < H - 1).to(T)),)
    else:
        plane, at = tl.cast(H, tl.int64) * W, y * W + x
        column, right = (x >= 0) & (x < W), (x >= 0) & (x < W - 1)
        for r in tl.static_range(-1, R):
            row, below = (y + r >= 0) & (y + r < H), (y + r >= 0) & (y + r < H - 1)
            base = w + r * W
            if r >= 0:
                e += (tl.load(base + at, row & right, 0.0).to(T),)
            s += (tl.load(base + plane + at, below & column, 0.0).to(T),)
            se += (tl.load(base + 2 * plane + at, below & right, 0.0).to(T),)
            # The edge from row r + 1 to the upper right is stored at its upper end, as south-west.
            ne += (tl.load(base + 3 * plane + 1 + at, below & right, 0.0).to(T),)
        for r in tl.static_range(R):
            leaving = e[r] + se[r + 1] + ne[r] + s[r] + s[r + 1]
            centre += (1 - (leaving + from_left(e[r] + se[r] + ne[r + 1], G)),)
    return e, s, se, ne, centre


@triton.jit
def diffused(operator, rows, isotropic: tl.constexpr, CHANNELS: tl.constexpr, R: tl.constexpr, G: tl.constexpr):
    """The field u + A u, from u with the rows around it."""
    e, s, se, ne, centre = operator
    values = ()
    for c in tl.static_range(CHANNELS):
        right = ()
        for r in tl.static_range(R + 2):
            right += (from_right(rows[c * (R + 2) + r], G),)
        for r in tl.static_range(R):
            up, here, down = rows[c * (R + 2) + r], rows[c * (R + 2) + r + 1], rows[c * (R + 2) + r + 2]
            if isotropic:
                value = centre[r] * here + 0.25 * ((up + down) + (right[r + 1] + from_left(here, G)))
            else:
                arriving = e[r] * here
                arriving += se[r] * up
                arriving += ne[r + 1] * down
                value = from_left(arriving, G)
                value += centre[r] * here
                value += e[r] * right[r + 1]
                value += se[r + 1] * right[r + 2]
                value += ne[r] * right[r]
                value += s[r + 1] * down
                value += s[r] * up
            values += (value,)
    return values


@triton.jit
def load(field, y, x, H, W, CHANNELS: tl.constexpr, R: tl.constexpr):
    """A field on the tile, zero beyond the image."""
    plane, at, values = tl.cast(H, tl.int64) * W, y * W + x, ()
    column = (x >= 0) & (x < W)
    for c in tl.static_range(CHANNELS):
        for r in tl.static_range(R):
            values += (tl.load(field + c * plane + r * W + at, (y + r >= 0) & (y + r < H) & column, 0.0),)
    return values


@triton.jit
def refined(coarse, f, fixed, y, x, H, W, CHANNELS: tl.constexpr, R: tl.constexpr):
    """A level's start on the tile: f where it is fixed, elsewhere the next coarser field; zero beyond the image."""
    h, w = (H + 1) // 2, (W + 1) // 2
    plane, coarse_plane, at, values = tl.cast(H, tl.int64) * W, tl.cast(h, tl.int64) * w, y * W + x, ()
    column = (x >= 0) & (x < W)
    for c in tl.static_range(CHANNELS):
        for r in tl.static_range(R):
            inside = (y + r >= 0) & (y + r < H) & column
            given = tl.load(f + c * plane + r * W + at, inside & fixed[r], 0.0)
            values += (tl.where(fixed[r], given, upsampled(coarse + c * coarse_plane, w, h, w, y + r, x, inside)),)
    return values


@triton.jit
def store(field, values, y, x, H, W, halo, CHANNELS: tl.constexpr, R: tl.constexpr, G: tl.constexpr):
    """Write the tile without its halo."""
    plane, at = tl.cast(H, tl.int64) * W, y * W + x
    for c in tl.static_range(CHANNELS):
        for r in tl.static_range(R):
            tl.store(field + c * plane + r * W + at, values[c * R + r], within(y + r, x, H, W, halo, R, G))


@triton.jit
def fixed(known, y, x, H, W, R: tl.constexpr):
    """Mask of the pixels that keep their value: known ones and those beyond the image."""
    at, column, values = y * W + x, (x >= 0) & (x < W), ()
    for r in tl.static_range(R):
        values += (tl.load(known + r * W + at, (y + r >= 0) & (y + r < H) & column, 1) != 0,)
    return values
