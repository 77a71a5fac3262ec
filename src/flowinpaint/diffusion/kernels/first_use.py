"""The first use on a machine: a line on stderr while loops are compiled, and a record of the compiled loops."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PATIENCE = 1.0
"""Seconds of compilation for a GPU after which the line is printed. Kernels from the cache are loaded in less."""


NO_CACHE = "numba finds no writable folder for its cache; set NUMBA_CACHE_DIR to one"


@dataclass
class Compilations:
    """The loops that this process has compiled, or loaded from numba's cache, by name.

    uncached: they could not be saved, because numba found no writable folder.
    """

    compiled: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    uncached: bool = False
    announced: bool = False


COMPILATIONS = Compilations()


@contextmanager
def compiling_for_gpu() -> Iterator[None]:
    """Print one line on stderr, once per process, if the block takes longer than PATIENCE.

    Not a warning, which some programs turn into errors. A timer decides, because Triton does not tell beforehand
    whether it will compile.
    """
    timer = threading.Timer(PATIENCE, announce, ("GPU",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def announce(device: str, elsewhere: bool = False) -> None:
    """Print the line, unless it was printed before. elsewhere: another process compiles."""
    if COMPILATIONS.announced:
        return
    COMPILATIONS.announced = True
    often = "once on this machine; 'flowinpaint warmup' compiles everything at once"
    if device == "CPU" and COMPILATIONS.uncached:
        often = f"in every process, because {NO_CACHE}"
    what = "waiting for another process, which compiles" if elsewhere else "compiling"
    print(f"flowinpaint: {what} for this {device}, up to ten seconds, {often}", file=sys.stderr, flush=True)
