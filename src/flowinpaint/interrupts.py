"""Signals that end a command: turned into an exception that runs all `finally` blocks, and deferred for short sections.

Python runs signal handlers in the main thread, between two of its instructions: a signal takes effect when a call into
compiled code returns.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP
REPEAT = 1.0
"""Seconds in which further signals count as the same one: `timeout` sends two, to the process and to its group."""

LOST = 0.01
"""Seconds after which an exception that a callback of compiled code has swallowed is raised again."""

_first: int | None = None
_hook: Callable[[sys.UnraisableHookArgs], Any] = sys.__unraisablehook__
"""The hook that `_raise_again` calls for all other errors."""
_lost = False
_when = 0.0


class Interrupted(KeyboardInterrupt):
    """A signal ended the command."""


def received_signal() -> int | None:
    """The signal that interrupted this command, or None."""
    return _first


def forget_signal() -> None:
    """Begin a command that no signal has interrupted."""
    global _first
    _first = None


def exit_code() -> int:
    """The exit code of an interrupted command: 128 and the number of the signal, by default that of Ctrl-C."""
    return 128 + (signal.SIGINT if _first is None else _first)


def note_signal(number: int) -> None:
    """Remember a signal for `exit_code`, for handlers that end a command in their own way."""
    global _first, _when
    if _first is None:
        _first, _when = number, time.monotonic()


def end_by_default() -> None:
    """Let each of SIGNALS end the process without a traceback, while nothing is written."""
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.default_int_handler, _interrupt):
            signal.signal(number, signal.SIG_DFL)


def raise_interrupts() -> None:
    """Let each of SIGNALS raise Interrupted in the main thread, except those that the process ignores.

    A second signal, more than REPEAT seconds later, ends the process immediately.
    """
    global _hook
    if sys.unraisablehook is not _raise_again:
        _hook, sys.unraisablehook = sys.unraisablehook, _raise_again
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as after nohup
            signal.signal(number, _interrupt)


def end_with_parent() -> None:
    """End this process of `multiprocessing` when its parent has been killed and could not end it."""
    from multiprocessing import connection, parent_process

    parent = parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def wait() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise Interrupted at the first signal; end the process at a later one."""
    global _lost
    if _first is None or _lost:
        _lost = False
        note_signal(number)
        raise Interrupted
    if time.monotonic() - _when > REPEAT:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _raise_again(error: sys.UnraisableHookArgs) -> None:
    """Send the signal again if its exception was raised where none can be passed on, as in callbacks of LLVM."""
    if not issubclass(error.exc_type, Interrupted):
        _hook(error)
        return

    def send(number: int) -> None:
        global _lost
        _lost = True
        if sys.platform == "win32":  # where os.kill ends the process
            signal.raise_signal(number)
        else:  # to the main thread, which may wait in a call
            os.kill(os.getpid(), number)

    again = threading.Timer(LOST, send, [_first])
    again.daemon = True
    again.start()


@contextmanager
def deferred() -> Iterator[None]:
    """Deliver signals that arrive in the block when it ends; in other threads than the main one there are none.

    Handlers are replaced, because a blocked signal of the process would be received by another of its threads. The
    previous ones are then called, not sent the signal again, which asyncio has already been told.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {n: signal.getsignal(n) for n in SIGNALS}
    before = {n: handler for n, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    waiting: dict[int, FrameType | None] = {}
    holding = True

    def deliver(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[number])
        if callable(before[number]):
            before[number](number, frame)
        else:
            signal.raise_signal(number)

    def receive(number: int, frame: FrameType | None) -> None:
        if holding:
            waiting.setdefault(number, frame)
        else:  # between the end of the block and the return of the handler
            deliver(number, frame)

    try:
        for number in before:
            signal.signal(number, receive)
        yield
    finally:
        holding = False
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in waiting.items():
            deliver(number, frame)
