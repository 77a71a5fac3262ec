"""OpenCV, imported on first use, with a message that names the command if it is missing, damaged or too old.

Four wheels (WHEELS) install the same folder `cv2`: the one installed last overwrites the others, and uninstalling one
removes files of the others. So flowinpaint depends on none of them and uses the one that is installed. Arrays are
filled without OpenCV; it reads and writes pictures, draws, refines on a second image, and runs the two `opencv-…`
methods. Modules of the package use `from flowinpaint.opencv import cv2`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flowinpaint.errors import InputError

__all__ = ["WHEELS", "contrib_command", "cv2", "installed_wheels", "load_opencv", "silenced", "single_threaded"]

WHEELS = ("opencv-contrib-python-headless", "opencv-python-headless", "opencv-contrib-python", "opencv-python")
"""The distributions that own `cv2`. The first is the extra `opencv`: it has all that flowinpaint uses."""
OLDEST = (4, 9)


def installed_wheels() -> dict[str, str]:
    """The versions of the installed wheels by name; more than one means that they have overwritten each other."""
    from importlib.metadata import PackageNotFoundError, version  # slow, and needed for messages only

    found = {}
    for name in WHEELS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def contrib_command() -> str:
    """The command that installs the contributed modules (`cv2.ximgproc`) in place of the installed wheels.

    It keeps windows (`cv2.imshow`) and the minor version.
    """
    wheels = installed_wheels()
    if not wheels:
        return f"pip install {WHEELS[0]}"
    with_windows = any(not name.endswith("headless") for name in wheels)
    minor = ".".join(max(wheels.values(), key=_numbers).split(".")[:2])
    replacement = f"opencv-contrib-python{'' if with_windows else '-headless'}=={minor}.*"
    return f"pip uninstall -y {' '.join(wheels)} && pip install {replacement}"


@cache
def load_opencv() -> ModuleType:
    """OpenCV's module; InputError if it cannot be used."""
    try:
        module = import_module("cv2")
    except ModuleNotFoundError as error:
        if error.name != "cv2":
            raise InputError(f"OpenCV cannot be imported: {error}") from error
        raise InputError(
            f"flowinpaint needs OpenCV: pip install {WHEELS[0]}, or one of {', '.join(WHEELS[1:])}"
        ) from error
    except ImportError as error:  # often libGL.so.1, which wheels without windows do not need
        raise InputError(
            f"OpenCV cannot be imported: {error}; on a machine without a display use one of the -headless wheels, such "
            f"as {WHEELS[0]}"
        ) from error
    found = getattr(module, "__version__", "")
    if not found:  # uninstalling one of two wheels leaves an incomplete folder
        names = " ".join(installed_wheels() or WHEELS[:1])
        raise InputError(
            f"OpenCV cannot be used, because files are missing: pip uninstall -y {names} && pip install "
            f"{names.split()[0]}"
        )
    if _numbers(found) < OLDEST:
        raise InputError(f"OpenCV must be {'.'.join(map(str, OLDEST))} or newer, got {found}")
    return module


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version such as "5.0.0.93" or "4.10.0-dev"."""
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


class _Setting:
    """A setting of OpenCV, which is one for the whole process, at its lowest value while a thread needs that.

    The first thread to enter sets it and the last one to leave restores it, unless somebody else has changed it since.
    """

    def __init__(self, read: Callable[[], int], write: Callable[[int], object], lowest: int) -> None:
        self._read, self._write, self._lowest = read, write, lowest
        self._before, self._users, self._lock = lowest, 0, threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_other_threads)

    @contextmanager
    def lowered(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._before = self._read()
                if self._before != self._lowest:
                    self._write(self._lowest)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users = max(0, self._users - 1)
                if not self._users:
                    self._restore()

    def _restore(self) -> None:
        if self._before != self._lowest and self._read() == self._lowest:
            self._write(self._before)

    def _forget_other_threads(self) -> None:
        self._lock = threading.Lock()
        if self._users:
            self._users = 0
            self._restore()


def _log() -> Any:
    return getattr(load_opencv().utils, "logging", load_opencv())  # OpenCV 5 or 4


_PROCESS = os.getpid()


def _set_threads(count: int) -> None:
    """Set the number of OpenCV's threads; in a forked process they end for good.

    There, 1 would join threads that are gone, and may wait forever; 0 does not. But 0 divides by zero if another thread
    is computing, so it is not for other processes.
    """
    if os.getpid() == _PROCESS:
        cv2.setNumThreads(count)
    elif count == 1:
        cv2.setNumThreads(0)


_LOG_LEVEL = _Setting(lambda: int(_log().getLogLevel()), lambda level: _log().setLogLevel(level), lowest=0)
_THREADS = _Setting(lambda: int(cv2.getNumThreads()), _set_threads, lowest=1)


def silenced() -> AbstractContextManager[None]:
    """Keep OpenCV from logging, since our errors name the file. libpng and libjpeg print some errors nevertheless."""
    return _LOG_LEVEL.lowered()


def single_threaded() -> AbstractContextManager[None]:
    """Make OpenCV compute in the calling thread."""
    return _THREADS.lowered()


class _Lazy(ModuleType):
    """Stands for `cv2` and imports it when an attribute is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load_opencv(), name)


if TYPE_CHECKING:
    import cv2
else:
    cv2 = _Lazy("cv2")
