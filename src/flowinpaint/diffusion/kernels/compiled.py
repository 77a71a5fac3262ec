"""numba compilation of loops, when their module is first imported; later processes load them from numba's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numba import boolean, float32, int64, njit, types, void

from flowinpaint.diffusion.kernels.first_use import COMPILATIONS

Loop = Callable[..., None]


def compiler(kinds: Sequence[dict[str, Any]], options: dict[str, Any]) -> Callable[[str], Callable[[Loop], Loop]]:
    """A function that maps the argument types of a loop, one letter each, to a decorator that compiles it.

    kinds: for each signature that a loop is compiled for, the numba type of each letter.
    """

    def compiled(arguments: str) -> Callable[[Loop], Loop]:
        signatures = [void(*(kind[letter] for letter in arguments)) for kind in kinds]

        return lambda function: compile_loop(function, signatures, options)

    return compiled


def compile_loop(function: Callable[..., Any], signatures: list[Any], options: dict[str, Any]) -> Any:
    """Compile a loop for these signatures, or load it from numba's cache.

    The cache is next to the module, in the user's cache folder if that is not writable, or in NUMBA_CACHE_DIR.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        loop = njit(signatures, cache=True, **options)(function)
    except RuntimeError:  # none of them is writable
        COMPILATIONS.uncached = True
        COMPILATIONS.compiled.append(name)
        return njit(signatures, **options)(function)
    (COMPILATIONS.compiled if loop.stats.cache_misses else COMPILATIONS.loaded).append(name)
    COMPILATIONS.folders.add(loop.stats.cache_path)
    return loop


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
