"""The multigrid kernels for the CPU, compiled by numba.

The channels of a field are solved side by side, a thread to each, which then share nothing but the operator; only where
there are fewer of them than threads are the lines of one grid dealt out. Threads come from a pool of our own and the
compiled code releases the interpreter's lock: numba's parallel loops would take several times as long to compile, and
its thread layers end the process when it forks or when two threads call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from numba import boolean, float32, float64, int64, njit, uintp, void
from torch import Tensor

from flowinpaint.diffusion.grid import Level
from flowinpaint.diffusion.kernels import reference
from flowinpaint.diffusion.kernels.reference import SMALLEST_PIVOT

_SMALLEST_SHARE = 1 << 15
"""Pixels below which handing work to another thread costs more than it saves."""

_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": True, "error_model": "numpy"}


def compiled(arguments: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile for float32 and float64, or load what an earlier process has compiled.

    arguments: a letter each, a for an array (B, C, H, W), i for a whole number, b for a truth value, f for a number.
    Always both types and in this order: numba's cache mixes them up when processes fill it in different orders at once.
    """

    def compile_both(function: Callable[..., None]) -> Callable[..., None]:
        kinds = [{"a": real[:, :, :, ::1], "i": int64, "b": boolean, "f": float64} for real in (float32, float64)]
        signatures = [void(*(kind[letter] for letter in arguments)) for kind in kinds]
        try:
            result: Callable[..., None] = njit(signatures, cache=True, **_OPTIONS)(function)
        except RuntimeError:  # there is no folder to keep it in
            result = njit(signatures, **_OPTIONS)(function)
        return result

    return compile_both


def half_sweep(level: Level, u: Tensor, f: Tensor, axis: int, parity: int, fresh: bool = False) -> None:
    """Zebra line relaxation in place, as in `reference`."""
    H, W = level.size
    lines = ((W if axis else H) - parity + 1) // 2
    kernel = _columns if axis else _rows
    _share(kernel, lines, u.numel(), level.w, level.pivots, u, f, parity, fresh)


def residual(level: Level, u: Tensor, f: Tensor, out: Tensor) -> None:
    """Write f - A u to `out`."""
    _share(_residual, level.size[0], u.numel(), level.d, level.w, u, f, out)


def restrict(level: Level, r: Tensor, out: Tensor) -> None:
    """Write Pᵀ r, on the coarser grid, to `out`."""
    _share(_restrict, out.shape[-2] - 2, r.numel(), level.p, r, out)


def prolong_add(level: Level, e: Tensor, u: Tensor) -> None:
    """Add P e, from the coarser grid, to u."""
    _share(_prolong_add, level.size[0], u.numel(), level.p, e, u)


def interpolation(d: Tensor, w: Tensor) -> Tensor:
    """The interpolation weights of `reference.interpolation`."""
    p = torch.zeros_like(w)
    H = d.shape[-2] - 2
    # Twice: pixels amid four coarse ones read the weights of the pixels between two.
    _share(_between_two, H, d.numel(), d, w, p)
    _share(_amid_four, H // 2, d.numel(), d, w, p)
    return p


def galerkin(d: Tensor, w: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Diagonal and edges of Pᵀ A P, as in `reference`."""
    return reference.galerkin_by(prolong_add, residual, restrict, d, w, p)


def invert_pivots(d: Tensor, w: Tensor) -> Tensor:
    """The inverse pivots of every row and every column, (B, 2, H+2, W+2)."""
    out = torch.zeros_like(w[:, :2])
    _share(_invert_pivots, d.shape[0], 0, d, w, out, SMALLEST_PIVOT[d.dtype])
    return out


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The product of each channel of each image, (B, C, 1, 1)."""
    out = a.new_zeros(a.shape[0], a.shape[1], 1, 1)
    _dot(a.numpy(), b.numpy(), out.numpy())
    return out


def scale_add(a: Tensor, factor: Tensor, b: Tensor) -> None:
    """Make a into factor · a + b; factor is (B, C, 1, 1)."""
    _scale_add(a.numpy(), factor.numpy(), b.numpy())


def add_scaled(a: Tensor, factor: Tensor, b: Tensor) -> None:
    """Make a into a + factor · b; factor is (B, C, 1, 1)."""
    _add_scaled(a.numpy(), factor.numpy(), b.numpy())


def for_each(work: Callable[[Any], object], parts: Sequence[Any]) -> None:
    """Call `work` on every part, side by side if that keeps all threads busy; each call then stays in its thread."""
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < threads:
        for part in parts:
            work(part)
        return

    def alone(part: Any) -> None:
        _inside.a_part = True
        try:
            work(part)
        finally:
            _inside.a_part = False

    others = [_pool(threads).submit(alone, part) for part in parts[1:]]
    alone(parts[0])
    for other in others:
        other.result()


_inside = threading.local()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="flowinpaint")


def _share(kernel: Callable[..., None], count: int, work: int, *operands: Any) -> None:
    """Call kernel(*operands, start, stop) over range(count), in several threads if there is work enough."""
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in operands]
    threads = max(1, min(torch.get_num_threads(), count, work // _SMALLEST_SHARE))
    if threads == 1 or getattr(_inside, "a_part", False):
        kernel(*arrays, 0, count)
        return
    bounds = [count * i // threads for i in range(threads + 1)]
    others = [_pool(threads).submit(kernel, *arrays, bounds[i], bounds[i + 1]) for i in range(1, threads)]
    kernel(*arrays, 0, bounds[1])
    for other in others:
        other.result()


@njit(**_OPTIONS)
def _line(v: Any, E: Any, inverse: Any) -> None:
    last = v.shape[0] - 2
    for x in range(2, last + 1):
        v[x] += E[x - 1] * inverse[x] * v[x - 1]
    for x in range(last - 1, 0, -1):
        v[x] += E[x] * inverse[x] * v[x + 1]


@njit(**_OPTIONS)
def _four_lines(v: Any, E: Any, inverse: Any) -> None:
    """Four independent recurrences at once, so that none waits for its own result."""
    last = v.shape[1] - 2
    p, q, r, s = v[0, 1], v[1, 1], v[2, 1], v[3, 1]
    for x in range(2, last + 1):
        p = v[0, x] + E[0, x - 1] * inverse[0, x] * p
        q = v[1, x] + E[1, x - 1] * inverse[1, x] * q
        r = v[2, x] + E[2, x - 1] * inverse[2, x] * r
        s = v[3, x] + E[3, x - 1] * inverse[3, x] * s
        v[0, x], v[1, x], v[2, x], v[3, x] = p, q, r, s
    for x in range(last - 1, 0, -1):
        p = v[0, x] + E[0, x] * inverse[0, x] * p
        q = v[1, x] + E[1, x] * inverse[1, x] * q
        r = v[2, x] + E[2, x] * inverse[2, x] * r
        s = v[3, x] + E[3, x] * inverse[3, x] * s
        v[0, x], v[1, x], v[2, x], v[3, x] = p, q, r, s


@compiled("aaaaibii")
def _rows(w: Any, pivots: Any, u: Any, f: Any, parity: int, fresh: bool, start: int, stop: int) -> None:
    B, C, _, W = u.shape
    for b in range(B):
        E, S, SE, SW, inverse = w[b, 0], w[b, 1], w[b, 2], w[b, 3], pivots[b, 0]
        for c in range(C):
            v, g = u[b, c], f[b, c]
            for i in range(start, stop, 4):
                for y in range(1 + parity + 2 * i, 1 + parity + 2 * min(i + 4, stop), 2):
                    if fresh:
                        v[y] = g[y] * inverse[y]
                        continue
                    for x in range(1, W - 1):
                        v[y, x] = (
                            g[y, x]
                            + S[y - 1, x] * v[y - 1, x]
                            + S[y, x] * v[y + 1, x]
                            + SE[y - 1, x - 1] * v[y - 1, x - 1]
                            + SE[y, x] * v[y + 1, x + 1]
                            + SW[y - 1, x + 1] * v[y - 1, x + 1]
                            + SW[y, x] * v[y + 1, x - 1]
                        ) * inverse[y, x]
                y = 1 + parity + 2 * i
                if i + 4 <= stop:
                    _four_lines(v[y : y + 7 : 2], E[y : y + 7 : 2], inverse[y : y + 7 : 2])
                else:
                    for y in range(1 + parity + 2 * i, 1 + parity + 2 * stop, 2):
                        _line(v[y], E[y], inverse[y])


@compiled("aaaaibii")
def _columns(w: Any, pivots: Any, u: Any, f: Any, parity: int, fresh: bool, start: int, stop: int) -> None:
    B, C, H, _ = u.shape
    # Unsigned, so that the compiler need not reckon with indices from the end and can use whole vectors.
    one, two, left, right = uintp(1), uintp(2), uintp(1 + parity + 2 * start), uintp(1 + parity + 2 * stop)
    for b in range(B):
        E, S, SE, SW, inverse = w[b, 0], w[b, 1], w[b, 2], w[b, 3], pivots[b, 1]
        for c in range(C):
            v, g = u[b, c], f[b, c]
            if fresh:
                v[:] = 0
            for y in range(1, H - 1):
                for x in range(left, right, two):
                    v[y, x] = (
                        g[y, x]
                        + S[y - 1, x] * v[y - 1, x]
                        + E[y, x - one] * v[y, x - one]
                        + E[y, x] * v[y, x + one]
                        + SE[y - 1, x - one] * v[y - 1, x - one]
                        + SE[y, x] * v[y + 1, x + one]
                        + SW[y - 1, x + one] * v[y - 1, x + one]
                        + SW[y, x] * v[y + 1, x - one]
                    ) * inverse[y, x]
            for y in range(H - 3, 0, -1):
                for x in range(left, right, two):
                    v[y, x] += S[y, x] * inverse[y, x] * v[y + 1, x]


@compiled("aaaaaii")
def _residual(d: Any, w: Any, u: Any, f: Any, out: Any, start: int, stop: int) -> None:
    B, C, _, W = u.shape
    for b in range(B):
        E, S, SE, SW, D = w[b, 0], w[b, 1], w[b, 2], w[b, 3], d[b, 0]
        for y in range(1 + start, 1 + stop):
            for c in range(C):
                v, g, r = u[b, c], f[b, c], out[b, c]
                for x in range(1, W - 1):
                    r[y, x] = (
                        g[y, x]
                        - D[y, x] * v[y, x]
                        + E[y, x - 1] * v[y, x - 1]
                        + E[y, x] * v[y, x + 1]
                        + S[y - 1, x] * v[y - 1, x]
                        + S[y, x] * v[y + 1, x]
                        + SE[y - 1, x - 1] * v[y - 1, x - 1]
                        + SE[y, x] * v[y + 1, x + 1]
                        + SW[y - 1, x + 1] * v[y - 1, x + 1]
                        + SW[y, x] * v[y + 1, x - 1]
                    )


@compiled("aaa")
def _dot(a: Any, b: Any, out: Any) -> None:
    B, C, H, W = a.shape
    for k in range(B):
        for c in range(C):
            total = 0.0  # of rows in float64, which keeps the sum of many pixels exact enough
            for y in range(H):
                row = a[k, c, y, 0] * b[k, c, y, 0]
                for x in range(1, W):
                    row += a[k, c, y, x] * b[k, c, y, x]
                total += row
            out[k, c, 0, 0] = total


@compiled("aaa")
def _scale_add(a: Any, factor: Any, b: Any) -> None:
    B, C, H, W = a.shape
    for k in range(B):
        for c in range(C):
            s = factor[k, c, 0, 0]
            for y in range(H):
                for x in range(W):
                    a[k, c, y, x] = s * a[k, c, y, x] + b[k, c, y, x]


@compiled("aaa")
def _add_scaled(a: Any, factor: Any, b: Any) -> None:
    B, C, H, W = a.shape
    for k in range(B):
        for c in range(C):
            s = factor[k, c, 0, 0]
            for y in range(H):
                for x in range(W):
                    a[k, c, y, x] += s * b[k, c, y, x]


@compiled("aaaii")
def _restrict(p: Any, r: Any, out: Any, start: int, stop: int) -> None:
    B, C, _, w = out.shape
    for b in range(B):
        ul, ur, ll, lr = p[b, 0], p[b, 1], p[b, 2], p[b, 3]
        for i in range(1 + start, 1 + stop):
            y = 2 * i - 1
            for c in range(C):
                g, o = r[b, c], out[b, c]
                for j in range(1, w - 1):
                    x = 2 * j - 1
                    o[i, j] = (
                        ul[y, x] * g[y, x]
                        + ur[y, x - 1] * g[y, x - 1]
                        + ul[y, x + 1] * g[y, x + 1]
                        + ll[y - 1, x] * g[y - 1, x]
                        + ul[y + 1, x] * g[y + 1, x]
                        + lr[y - 1, x - 1] * g[y - 1, x - 1]
                        + ll[y - 1, x + 1] * g[y - 1, x + 1]
                        + ur[y + 1, x - 1] * g[y + 1, x - 1]
                        + ul[y + 1, x + 1] * g[y + 1, x + 1]
                    )


@compiled("aaaii")
def _prolong_add(p: Any, e: Any, u: Any, start: int, stop: int) -> None:
    B, C = u.shape[:2]
    for b in range(B):
        ul, ur, ll, lr = p[b, 0], p[b, 1], p[b, 2], p[b, 3]
        for y in range(1 + start, 1 + stop):
            i = (y + 1) // 2
            for c in range(C):
                v, g = u[b, c], e[b, c]
                for j in range(uintp(1), uintp(g.shape[1] - 1)):
                    k = j + uintp(1)
                    x, right = j + j - uintp(1), j + j  # on a coarse pixel, and between two; or the border, weight 0
                    v[y, x] += ul[y, x] * g[i, j] + ll[y, x] * g[i + 1, j]
                    v[y, right] += (
                        ul[y, right] * g[i, j]
                        + ur[y, right] * g[i, k]
                        + ll[y, right] * g[i + 1, j]
                        + lr[y, right] * g[i + 1, k]
                    )


@compiled("aaaii")
def _between_two(d: Any, w: Any, p: Any, start: int, stop: int) -> None:
    W = d.shape[3]
    for b in range(d.shape[0]):
        E, S, SE, SW, D = w[b, 0], w[b, 1], w[b, 2], w[b, 3], d[b, 0]
        for y in range(1 + start, 1 + stop):
            odd_row = y % 2 == 0  # the border shifts the count by one
            if not odd_row:
                for x in range(1, W - 1, 2):
                    p[b, 0, y, x] = 1
            for x in range(1 if odd_row else 2, W - 1, 2):
                e, west, s, north = E[y, x], E[y, x - 1], S[y, x], S[y - 1, x]
                se, nw, sw, ne = SE[y, x], SE[y - 1, x - 1], SW[y, x], SW[y - 1, x + 1]
                held = max(D[y, x] - (e + west + s + north + se + nw + sw + ne), 0)
                if odd_row:
                    here, there = abs(north) + abs(nw) + abs(ne), abs(s) + abs(sw) + abs(se)
                else:
                    here, there = abs(west) + abs(nw) + abs(sw), abs(e) + abs(ne) + abs(se)
                total = here + there + held
                if total > 0:
                    p[b, 0, y, x] = here / total
                    p[b, 2 if odd_row else 1, y, x] = there / total


@compiled("aaaii")
def _amid_four(d: Any, w: Any, p: Any, start: int, stop: int) -> None:
    W = d.shape[3]
    for b in range(d.shape[0]):
        E, S, SE, SW, D = w[b, 0], w[b, 1], w[b, 2], w[b, 3], d[b, 0]
        p0, p1, p2, p3 = p[b, 0], p[b, 1], p[b, 2], p[b, 3]
        for y in range(2 + 2 * start, 2 + 2 * stop, 2):
            for x in range(2, W - 1, 2):
                e, west, s, north = E[y, x], E[y, x - 1], S[y, x], S[y - 1, x]
                ul = max(SE[y - 1, x - 1] + west * p0[y, x - 1] + north * p0[y - 1, x], 0)
                ur = max(SW[y - 1, x + 1] + north * p1[y - 1, x] + e * p0[y, x + 1], 0)
                ll = max(SW[y, x] + west * p2[y, x - 1] + s * p0[y + 1, x], 0)
                lr = max(SE[y, x] + e * p2[y, x + 1] + s * p1[y + 1, x], 0)
                total = max(D[y, x], ul + ur + ll + lr)
                if total > 0:
                    p0[y, x], p1[y, x], p2[y, x], p3[y, x] = ul / total, ur / total, ll / total, lr / total


@compiled("aaafii")
def _invert_pivots(d: Any, w: Any, out: Any, smallest: float, start: int, stop: int) -> None:
    H, W = d.shape[2], d.shape[3]
    for b in range(start, stop):
        E, S, D, rows, columns = w[b, 0], w[b, 1], d[b, 0], out[b, 0], out[b, 1]
        for y in range(1, H - 1):
            for x in range(1, W - 1):
                floor = smallest * D[y, x]
                rows[y, x] = 1 / max(D[y, x] - E[y, x - 1] * E[y, x - 1] * rows[y, x - 1], floor)
                columns[y, x] = 1 / max(D[y, x] - S[y - 1, x] * S[y - 1, x] * columns[y - 1, x], floor)
