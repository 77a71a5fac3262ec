"""Temporary files next to outputs, and the removal of those that killed processes left.

A process holds a lock (flock) on each temporary file that it writes. The operating system drops the lock when the
process ends in any way, so a file that nobody has locked is stale. A process id in the name would not be as good: ids
are used again. Names begin with a hash of the host, and only those of this host are removed, because some network file
systems show locks to one host only. Where files cannot be locked, as on Windows, nothing is removed.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_HOST = hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()
_OURS = re.compile(rf"\.flowinpaint-{_HOST}-[0-9a-f]{{16}}(\..*)?", re.DOTALL)
_LONGEST_SUFFIX = 32
"""In bytes; names have at most 255."""
_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_existing: set[Temporary] = set()
_unsettled: dict[Path, int] = {}
"""New folders by the process that is about to write to them."""
_searched: dict[Path, float] = {}
"""When this process last removed the stale files of a folder."""
SEARCH_AGAIN = 60.0
"""Seconds after which a write to a folder looks for stale files again."""
MOST_SEARCHED = 1000


class Temporary:
    """A temporary file of this process, locked until it is removed or released."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        self._lock: int | None = None
        _existing.add(self)  # before the file exists, so that a signal cannot come between the two

    def create(self) -> bool:
        """Make the file, empty, with the permissions of the umask; False if another process has removed it."""
        return self._keep(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _LINKS, 0o666))

    def create_from(self, path: Path) -> None:
        """Make the file a second name of `path`, or a copy where a file can have one name only."""
        try:
            os.link(path, self.path)
        except OSError:
            shutil.copy2(path, self.path)
        with suppress(OSError):  # not readable
            self._keep(os.open(self.path, os.O_RDONLY | _LINKS))

    def _keep(self, handle: int) -> bool:
        """Lock an open file; return whether it still has its name."""
        if sys.platform == "win32":  # where an open file cannot be renamed
            os.close(handle)
            return True
        self._lock = handle
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return os.fstat(handle).st_nlink > 0

    def remove(self) -> None:
        """Remove the file, unless it belongs to the process that this one was forked from."""
        if self._process == os.getpid():
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Give up the file, which has been renamed."""
        _existing.discard(self)
        if self._lock is not None:
            handle, self._lock = self._lock, None
            os.close(handle)


def new_temporary(folder: Path, suffix: str = "") -> Temporary:
    """An empty temporary file in a folder, from which stale ones are removed first, at most once per SEARCH_AGAIN."""
    now = time.monotonic()
    if folder not in _searched or now - _searched[folder] >= SEARCH_AGAIN:
        remove_stale(folder)
        if len(_searched) >= MOST_SEARCHED:
            _searched.clear()
        _searched[folder] = now
    while True:
        temporary = _named(folder, suffix)
        with _removed_after_error(temporary):
            if temporary.create():
                return temporary
        temporary.remove()


def second_name(path: Path) -> Temporary:
    """The present content of a file under a temporary name in its folder."""
    temporary = _named(path.parent)
    with _removed_after_error(temporary):
        temporary.create_from(path)
    return temporary


@contextmanager
def _removed_after_error(temporary: Temporary) -> Iterator[None]:
    try:
        yield
    except BaseException:
        temporary.remove()
        raise


def _named(folder: Path, suffix: str = "") -> Temporary:
    suffix = suffix if len(os.fsencode(suffix)) <= _LONGEST_SUFFIX else ""
    return Temporary(folder / f".flowinpaint-{_HOST}-{secrets.token_hex(8)}{suffix}")


def is_temporary(path: Path) -> bool:
    """Whether a name is that of a temporary file of this host."""
    return _OURS.fullmatch(path.name) is not None


def remove_stale(folder: Path) -> None:
    """Remove the temporary files that killed processes of this host left in a folder."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # a folder that may not be listed
        for path in folder.iterdir():
            if is_temporary(path):
                with suppress(OSError):  # in use, removed by another process, or not ours to remove
                    _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _LINKS)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(handle)


def keep_folders(folders: Iterable[Path]) -> None:
    """Settle that new folders stay, even if they are empty at the end of the process."""
    for folder in folders:
        _unsettled.pop(folder, None)


def remove_folders_at_exit(folders: Iterable[Path]) -> None:
    """Remove new folders at the end of the process if they are empty, unless they are settled; the deepest first."""
    _unsettled.update(dict.fromkeys(folders, os.getpid()))


@atexit.register
def _remove_rest() -> None:
    """Remove what a block should have removed that a signal ended in its last instruction, before its `finally`."""
    for temporary in list(_existing):
        temporary.remove()
    for folder, process in _unsettled.items():
        if process == os.getpid():
            with suppress(OSError):  # not empty
                folder.rmdir()
