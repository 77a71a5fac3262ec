"""Loops of `multigrid_cpu`, compiled by numba.

Every array is (B, C, H+2, W+2); a call processes the lines, rows or images from `start` to `stop`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import boolean, float32, float64, int64, njit, uintp

from flowinpaint.diffusion.kernels.compiled import LoopOfTypes

_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": True, "error_model": "numpy"}
_KINDS = {
    np.dtype(name): {"a": real[:, :, :, ::1], "i": int64, "b": boolean, "f": float64}
    for name, real in (("float32", float32), ("float64", float64))
}
"""By the type of arrays: a is an array (B, C, H, W), i an integer, b a bool, f a float."""


def compiled(arguments: str) -> Callable[[Callable[..., None]], LoopOfTypes]:
    """Decorate a loop with these argument types, one letter each."""
    return lambda function: LoopOfTypes(function, arguments, _KINDS, _OPTIONS)


inner = njit(forceinline=True, **_OPTIONS)


@inner
def _line(v, E, inverse):
    last = v.shape[0] - 2
    for x in range(2, last + 1):
        v[x] += E[x - 1] * inverse[x] * v[x - 1]
    for x in range(last - 1, 0, -1):
        v[x] += E[x] * inverse[x] * v[x + 1]


@inner
def _four_lines(v, E, inverse):
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
def rows(w, pivots, u, f, parity, fresh, start, stop):
    B, C, _, W = u.shape
    for b in range(B):
        E, S, SE, SW, inverse = w[b, 0], w[b, 1], w[b, 2], w[b, 3], pivots[b, 0]
        for c in range(C):
            v, g = u[b, c], f[b, c]
            for i in range(start, stop, 4):
                for y in range(1 + parity + 2 * i, 1 + parity + 2 * min(i + 4, stop), 2):
                    if fresh:
                        for x in range(W):  # an expression of whole arrays takes two seconds to compile
                            v[y, x] = g[y, x] * inverse[y, x]
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
def columns(w, pivots, u, f, parity, fresh, start, stop):
    B, C, H, _ = u.shape
    # Unsigned indices cannot be negative (from the end), which lets the compiler vectorise the loops.
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
def residual(d, w, u, f, out, start, stop):
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
def dot(a, b, out):
    B, C, H, W = a.shape
    for k in range(B):
        for c in range(C):
            total = 0.0  # rows are added in float64, which is accurate enough for many pixels
            for y in range(H):
                row = a[k, c, y, 0] * b[k, c, y, 0]
                for x in range(1, W):
                    row += a[k, c, y, x] * b[k, c, y, x]
                total += row
            out[k, c, 0, 0] = total


@compiled("aaa")
def scale_add(a, factor, b):
    B, C, H, W = a.shape
    for k in range(B):
        for c in range(C):
            s = factor[k, c, 0, 0]
            for y in range(H):
                for x in range(W):
                    a[k, c, y, x] = s * a[k, c, y, x] + b[k, c, y, x]


@compiled("aaa")
def add_scaled(a, factor, b):
    B, C, H, W = a.shape
    for k in range(B):
        for c in range(C):
            s = factor[k, c, 0, 0]
            for y in range(H):
                for x in range(W):
                    a[k, c, y, x] += s * b[k, c, y, x]


@compiled("aaaii")
def restrict(p, r, out, start, stop):
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
def prolong_add(p, e, u, start, stop):
    B, C = u.shape[:2]
    for b in range(B):
        ul, ur, ll, lr = p[b, 0], p[b, 1], p[b, 2], p[b, 3]
        for y in range(1 + start, 1 + stop):
            i = (y + 1) // 2
            for c in range(C):
                v, g = u[b, c], e[b, c]
                for j in range(uintp(1), uintp(g.shape[1] - 1)):
                    k = j + uintp(1)
                    x, right = j + j - uintp(1), j + j  # on a coarse pixel, and between two; the border has weight 0
                    v[y, x] += ul[y, x] * g[i, j] + ll[y, x] * g[i + 1, j]
                    v[y, right] += (
                        ul[y, right] * g[i, j]
                        + ur[y, right] * g[i, k]
                        + ll[y, right] * g[i + 1, j]
                        + lr[y, right] * g[i + 1, k]
                    )


@compiled("aaaii")
def between_two(d, w, p, start, stop):
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
def amid_four(d, w, p, start, stop):
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
def invert_pivots(d, w, out, smallest, start, stop):
    H, W = d.shape[2], d.shape[3]
    for b in range(start, stop):
        E, S, D, rows, columns = w[b, 0], w[b, 1], d[b, 0], out[b, 0], out[b, 1]
        for y in range(1, H - 1):
            for x in range(1, W - 1):
                floor = smallest * D[y, x]
                rows[y, x] = 1 / max(D[y, x] - E[y, x - 1] * E[y, x - 1] * rows[y, x - 1], floor)
                columns[y, x] = 1 / max(D[y, x] - S[y - 1, x] * S[y - 1, x] * columns[y - 1, x], floor)
