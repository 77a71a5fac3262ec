"""Atomic writes, and checks of paths before anything is read or computed."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowinpaint.errors import InputError, MissingFileError, check_file
from flowinpaint.io.budget import check_budget

StrPath = str | os.PathLike[str]


@contextmanager
def atomic_path(path: StrPath) -> Iterator[Path]:
    """Yield a temporary file next to `path`, with its suffix, that replaces `path` if the block succeeds.

    If the block raises, the temporary file is removed and `path` is unchanged.
    """
    check_target(Path(path))
    target = Path(path).resolve()  # writes through a link, as open() does
    temporary = target.with_name(f".flowinpaint-{secrets.token_hex(8)}{Path(path).suffix}")
    temporary.open("xb").close()  # permissions follow the umask; tempfile would set 0600
    try:
        if target.exists():
            shutil.copymode(target, temporary)
        yield temporary
        temporary.replace(target)
    except OSError as error:
        if error.filename is None and error.errno is not None:  # for example a full disk
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def existing_file(path: StrPath) -> Path:
    """The path; MissingFileError or FileFormatError unless it is a file with content."""
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file")
    check_file(path, not path.is_file() and "must be a file, got a folder or a device")
    check_file(path, path.stat().st_size == 0 and "must not be empty")
    check_budget(path, path.stat().st_size, "as a file")
    return path


def check_target(path: Path) -> None:
    """Raise InputError if no file can be written to `path`."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: must be a file, got a folder or a device")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: cannot write to the folder {path.parent}")


def check_output(path: Path) -> None:
    """Raise InputError if no file can be written to `path`, whose folder may be made first."""
    if path.parent.is_dir():
        check_target(path)
    else:
        check_folder_writable(path.parent)


def make_folder(path: StrPath) -> Path:
    """Make a folder with its parents if needed; InputError if it cannot be written to."""
    path = Path(path)
    check_folder_writable(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot make this folder ({error.strerror})") from None
    return path


@contextmanager
def new_folder(path: StrPath) -> Iterator[None]:
    """Make a folder with its parents if needed; if the block raises, remove those that are new and still empty."""
    path = Path(path)
    missing = [place for place in (path, *path.parents) if not place.exists()]
    make_folder(path)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty
            for place in missing:
                place.rmdir()
        raise


def check_folder_writable(path: StrPath) -> None:
    """Raise InputError if a folder at `path`, which may not exist yet, could not be written to."""
    path = Path(path)
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"{nearest}: must be a folder, got a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"{nearest}: cannot write to this folder")
