"""Training time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Counts seconds while it runs, on top of those of earlier sessions of the same run."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._before = seconds
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """All seconds so far."""
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        """Count from now on, unless it does already."""
        if self._since is None:
            self._since = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what is done inside."""
        self._before, was_running = self.seconds, self._since is not None
        self._since = None
        yield
        if was_running:
            self.start()
