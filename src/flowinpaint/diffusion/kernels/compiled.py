"""numba compilation of loops, when their module is first imported; later processes load them from numba's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import boolean, float32, int64, njit, types, void

Loop = Callable[..., None]


def compiler(kinds: Sequence[dict[str, Any]], options: dict[str, Any]) -> Callable[[str], Callable[[Loop], Loop]]:
    """A function that maps the argument types of a loop, one letter each, to a decorator that compiles it.

    kinds: for each signature that a loop is compiled for, the numba type of each letter.
    """

    def compiled(arguments: str) -> Callable[[Loop], Loop]:
        signatures = [void(*(kind[letter] for letter in arguments)) for kind in kinds]

        def compile_one(function: Loop) -> Loop:
            try:
                result: Loop = njit(signatures, cache=True, **options)(function)
            except RuntimeError:  # numba finds no writable cache folder
                result = njit(signatures, **options)(function)
            return result

        return compile_one

    return compiled


# No reordering and no assumptions about NaN: an invalid vector must remain visible as NaN.
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
_KINDS = {
    "a": float32[:, :, :, ::1],
    "k": boolean[:, :, :, ::1],
    "i": int64,
    "f": float32,
    "b": boolean,
    "r": types.UniTuple(int64, 4),
}
compiled = compiler([_KINDS], _OPTIONS)
"""For float32: a is a field (B, C, H, W), k a bool mask of that shape, i an integer, f a float, b a bool, r a tuple of
four integers."""
inner = njit(forceinline=True, **_OPTIONS)
"""Decorator for functions that compiled loops call, which inlines them. Without inlining, a freshly compiled copy and
one from numba's cache round differently, so the first run would differ from later ones."""
