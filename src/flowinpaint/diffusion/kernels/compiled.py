"""Compiling loops by numba when their module is first imported; later processes load them from its cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import boolean, float32, int64, njit, types, void

Loop = Callable[..., None]


def compiler(kinds: Sequence[dict[str, Any]], options: dict[str, Any]) -> Callable[[str], Callable[[Loop], Loop]]:
    """A function from the arguments of a loop, a letter each, to its decorator.

    kinds: what the letters mean, for each signature that a loop is compiled for.
    """

    def compiled(arguments: str) -> Callable[[Loop], Loop]:
        signatures = [void(*(kind[letter] for letter in arguments)) for kind in kinds]

        def compile_one(function: Loop) -> Loop:
            try:
                result: Loop = njit(signatures, cache=True, **options)(function)
            except RuntimeError:  # there is no folder to keep it in
                result = njit(signatures, **options)(function)
            return result

        return compile_one

    return compiled


# No reordering and no assumption about NaN: a wrong vector must show, not spread in silence.
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
"""For float32: a for a field (B, C, H, W), k for a mask of that shape, i for a whole number, f for a number, b for a
truth value, r for four whole numbers."""
inner = njit(forceinline=True, **_OPTIONS)
"""Of functions that compiled ones call, to be part of them: standing apart, the copy just compiled and that of numba's
cache round in different ways, and a first run differs from the next."""
