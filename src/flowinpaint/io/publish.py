"""Publish several outputs together: all files get their names, or none.

Every file is written completely to a temporary name in the folder of its target. Then all are renamed, with signals
deferred; the previous files keep a second name until all renames have succeeded.

- A signal, or an error before or in the renames: all outputs are new, or all are as before. No temporary file is left.
- SIGKILL or a crash in the renames, which take a fraction of a millisecond: some outputs may be new and others as
  before, each of them whole. Temporary files may be left; writes to the folder remove them, once a minute in a process.
- Power loss: the same if the publication is durable. Otherwise a file may be empty or old, as the file system decides.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from flowinpaint.interrupts import deferred
from flowinpaint.io.temporaries import Temporary, is_temporary, new_temporary, second_name


@dataclass
class _Output:
    """A file to be renamed to `target`; path: the name that the user knows. previous: what the target was before."""

    path: Path
    target: Path
    temporary: Temporary
    previous: Temporary | None = None

    def roll_back(self) -> None:
        """Restore the target, if it was replaced."""
        with suppress(OSError):
            if self.temporary.path.exists():
                return
            if self.previous is None:
                self.target.unlink()
            else:
                self.previous.path.replace(self.target)


class Publication:
    """Outputs that are written to temporary files, to be published or discarded together."""

    def __init__(self, durable: bool = False) -> None:
        self.durable = durable
        self.process = os.getpid()
        self._outputs: list[_Output] = []

    def __len__(self) -> int:
        return len(self._outputs)

    def add(self, path: Path, target: Path) -> Path:
        """A new temporary file for an output. path: its name in messages; target: the same without links."""
        temporary = new_temporary(target.parent, path.suffix)
        self._outputs.append(_Output(path, target, temporary))
        if target.exists():
            shutil.copymode(target, temporary.path)
        return temporary.path

    def publish(self) -> None:
        """Rename all files to their targets."""
        outputs = self._outputs
        if self.durable:
            for output in outputs:
                with named(output.path):
                    flush(output.temporary.path)
        with deferred():
            if len(outputs) == 1:
                with named(outputs[0].path):
                    outputs[0].temporary.path.replace(outputs[0].target)
            else:
                self._rename_all()
            self._release()
        if self.durable:
            for folder in dict.fromkeys(output.target.parent for output in outputs):
                with named(folder):
                    flush(folder)

    def _rename_all(self) -> None:
        try:
            for output in self._outputs:
                with named(output.path):
                    if output.target.exists():
                        output.previous = second_name(output.target)
                    output.temporary.path.replace(output.target)
        except BaseException:
            for output in reversed(self._outputs):
                output.roll_back()
            raise

    def _release(self) -> None:
        """Drop the previous files, after all outputs have their names."""
        outputs, self._outputs = self._outputs, []
        for output in outputs:
            output.temporary.release()
            if output.previous is not None:
                output.previous.remove()

    def discard(self, first: int = 0) -> None:
        """Remove the temporary files of the outputs from `first` on."""
        with deferred():
            for output in self._outputs[first:]:
                output.temporary.remove()
                if output.previous is not None:
                    output.previous.remove()
            del self._outputs[first:]


_current: ContextVar[Publication | None] = ContextVar("publication", default=None)


def current_publication() -> Publication | None:
    """The publication of the `publishing` block around the caller, in its thread and process."""
    found = _current.get()
    return found if found is not None and found.process == os.getpid() else None


@contextmanager
def publishing(durable: bool = False) -> Iterator[None]:
    """Publish all files that the block writes when it ends; none of them if it raises.

    durable: flush the files to disk before they get their names, and their folders afterwards. A block inside another
    one joins it.
    """
    outer = current_publication()
    publication = Publication(durable) if outer is None else outer
    publication.durable |= durable
    before = len(publication)
    _current.set(publication)
    try:
        try:
            yield
        finally:
            _current.set(outer)
        if outer is None:
            publication.publish()
    except BaseException:
        publication.discard(before)
        raise


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let an error of the operating system, such as a full disk, name the output instead of its temporary file."""
    try:
        yield
    except OSError as error:
        hidden = error.filename is None or is_temporary(Path(os.fsdecode(error.filename)))
        if hidden and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def flush(path: Path) -> None:
    """Flush a file or a folder to disk; folders only where the operating system can."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # from file systems that cannot flush folders
            raise
    finally:
        os.close(handle)
