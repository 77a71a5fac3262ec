"""numba compilation of loops, when their module is first imported; later processes load them from numba's cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, cast

import numpy as np
from numba import boolean, float32, int64, njit, types, void
from numba.core import event

from flowinpaint.diffusion.kernels.compile_lock import CompileLock
from flowinpaint.diffusion.kernels.first_use import COMPILATIONS, announce

Loop = Callable[..., None]


def compiler(kinds: dict[str, Any], options: dict[str, Any]) -> Callable[[str], Callable[[Loop], Loop]]:
    """A function that maps the argument types of a loop, one letter each, to a decorator that compiles it.

    kinds: the numba type of each letter.
    """

    def compiled(arguments: str) -> Callable[[Loop], Loop]:
        return lambda function: compile_loop(function, void(*(kinds[letter] for letter in arguments)), options)

    return compiled


class LoopOfTypes:
    """A loop that is compiled for the type of its first array when it is first called with one of this type.

    kinds: the numba type of each letter of `arguments`, by the type of that array. Each type has its own name and so
    its own file in numba's cache, which confuses types if concurrent processes add them in different orders.
    """

    def __init__(
        self, function: Loop, arguments: str, kinds: Mapping[np.dtype[Any], dict[str, Any]], options: dict[str, Any]
    ) -> None:
        self._function, self._arguments, self._kinds, self._options = function, arguments, kinds, options
        self._loops: dict[np.dtype[Any], Loop] = {}
        self._lock = threading.Lock()

    def __call__(self, *operands: Any) -> None:
        """Run the loop; the first operand is an array."""
        dtype = operands[0].dtype
        (self._loops.get(dtype) or self._compiled(dtype))(*operands)

    def _compiled(self, dtype: np.dtype[Any]) -> Loop:
        with self._lock:
            if dtype not in self._loops:
                function = cast(FunctionType, self._function)
                named = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_{dtype}")
                named.__qualname__, named.__module__ = named.__name__, function.__module__
                kinds = self._kinds[dtype]
                signature = void(*(kinds[letter] for letter in self._arguments))
                self._loops[dtype] = compile_loop(named, signature, self._options)
            return self._loops[dtype]


class _LockedError(Exception):
    """Another process compiles loops of the same folder."""


class _Listener(event.Listener):
    """Learns when numba starts to compile, which it does not do for a loop in its cache.

    Then it tells the user, and takes the lock of the cache folder; _LockedError if another process has it.
    """

    def __init__(self, lock: CompileLock) -> None:
        self._lock, self._thread = lock, threading.get_ident()
        self.started = False

    def on_start(self, event: Any) -> None:
        if self.started or threading.get_ident() != self._thread:  # a function that the loop calls, or another thread's
            return
        folder = event.data["dispatcher"].stats.cache_path
        if folder is not None and not self._lock.take(folder):
            raise _LockedError
        self.started = True
        announce("CPU")

    def on_end(self, event: Any) -> None:
        pass


def compile_loop(function: Callable[..., Any], signature: Any, options: dict[str, Any]) -> Any:
    """Compile a loop for a signature, or load it from numba's cache.

    The cache is next to the module, in the user's cache folder if that is not writable, or in NUMBA_CACHE_DIR. If
    several processes need a loop that is not there, one compiles it and the others wait.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    with CompileLock() as lock:
        try:
            loop, compiled = _compile_or_load(function, signature, options, lock)
        except _LockedError:
            lock.wait()
            loop, compiled = _compile_or_load(function, signature, options, lock)
        except RuntimeError:  # no folder is writable
            COMPILATIONS.uncached = True
            with event.install_listener("numba:compile", _Listener(lock)):
                loop, compiled = njit(signature, **options)(function), True
    (COMPILATIONS.compiled if compiled else COMPILATIONS.loaded).append(name)
    if loop.stats.cache_path is not None:
        COMPILATIONS.folders.add(loop.stats.cache_path)
    return loop


def _compile_or_load(
    function: Callable[..., Any], signature: Any, options: dict[str, Any], lock: CompileLock
) -> tuple[Any, bool]:
    """The loop, and whether it was compiled."""
    listener = _Listener(lock)
    with event.install_listener("numba:compile", listener):
        return njit(signature, cache=True, **options)(function), listener.started


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
compiled = compiler(_KINDS, _OPTIONS)
"""For float32: a is a field (B, C, H, W), k a bool mask of that shape, i an integer, f a float, b a bool, r a tuple of
four integers."""
inner = njit(forceinline=True, **_OPTIONS)
"""Decorator for functions that compiled loops call, which inlines them. Without inlining, a freshly compiled copy and
one from numba's cache round differently, so the first run would differ from later ones."""
