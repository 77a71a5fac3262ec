"""A lock of numba's cache folder: one process compiles while the others wait.

The operating system releases it when the process ends, so a killed process blocks nobody. Where files cannot be locked,
as on Windows or some network drives, every process compiles for itself.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from flowinpaint.diffusion.kernels.first_use import PATIENCE, announce

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = "flowinpaint-compile.lock"
LONGEST_WAIT = 120.0
"""Seconds after which a process compiles in any case."""
_PAUSE = 0.02


class CompileLock:
    """The lock of one cache folder, from `take` or `wait` to the end of the block."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._locked = self._settled = False

    def __enter__(self) -> CompileLock:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        if self._locked:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open too
        os.close(self._file)

    def take(self, folder: str) -> bool:
        """Take the lock at once; False if another process or thread has it. True if there can be none."""
        if not self._settled and self._file is None and fcntl is not None:
            with suppress(OSError):
                self._file = os.open(Path(folder, NAME), os.O_RDWR | os.O_CREAT, 0o666)
        if not self._settled:
            self._settled = self._file is None or self._locks(self._file)
        return self._settled

    def wait(self) -> None:
        """Wait until another has released the lock and take it; after LONGEST_WAIT, go on without it."""
        start = time.monotonic()
        while self._file is not None and not self._locks(self._file):
            waited = time.monotonic() - start
            if waited > PATIENCE:
                announce("CPU", elsewhere=True)
            if waited > LONGEST_WAIT:
                break
            time.sleep(_PAUSE)
        self._settled = True

    def _locks(self, file: int) -> bool:
        """Try to take the lock; also True if this file system has none."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked = True
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True
