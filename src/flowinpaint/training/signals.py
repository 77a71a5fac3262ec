"""SIGINT and SIGTERM as a wish that a loop grants when it is in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether one of the signals has come; a second one works as if nobody listened."""
    came = False
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield lambda: came
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: came
    finally:
        restore()
