"""Atomic writes, and checks of paths before anything is read or computed."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowinpaint.errors import InputError, MissingFileError, check_file
from flowinpaint.io.budget import check_budget
from flowinpaint.io.publish import Publication, current_publication, flush, named
from flowinpaint.io.temporaries import keep_folders, remove_folders_at_exit

StrPath = str | os.PathLike[str]
_LONGEST_NAME = 255


@contextmanager
def atomic_path(path: StrPath, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary file next to `path`, with its suffix, that replaces `path` if the block succeeds.

    If the block raises, the temporary file is removed and `path` is unchanged. In a `publishing` block, `path` is
    replaced with the other outputs. durable: flush the file to disk before it gets its name.
    """
    path = Path(path)
    check_target(path)
    outer = current_publication()
    publication = Publication() if outer is None else outer
    publication.durable |= durable
    before = len(publication)
    try:
        with named(path):
            yield publication.add(path, real_path(path))  # writes through a link, as open() does
        if outer is None:
            publication.publish()
    except BaseException:
        publication.discard(before)
        raise


def write_bytes(path: Path, data: bytes, durable: bool = False) -> None:
    """Write a file atomically."""
    with atomic_path(path, durable) as temporary:
        temporary.write_bytes(data)


def real_path(path: StrPath) -> Path:
    """The absolute path behind all links; InputError if no file can have this path."""
    try:
        longest = max((len(os.fsencode(part)) for part in Path(path).parts), default=0)
    except UnicodeEncodeError:
        raise InputError(f"{os.fspath(path)!r}: a file name must have characters of the file system only") from None
    if longest > _LONGEST_NAME:
        raise InputError(f"{path}: a file name must have at most {_LONGEST_NAME} bytes")
    try:
        Path(path).stat()
    except ValueError:
        raise InputError(f"{os.fspath(path)!r}: a file name must not have null characters") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path}: must be a file or a folder, got a loop of symbolic links") from None
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(f"{path}: the path is too long") from None
    return Path(os.path.realpath(path))


def existing_file(path: StrPath, whole: bool = True) -> Path:
    """The path; MissingFileError or FileFormatError unless it is a file with content.

    whole: whether it is read as a whole, so that its size counts against the byte budget.
    """
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file")
    check_file(path, not path.is_file() and "must be a file, got a folder or a device")
    check_file(path, path.stat().st_size == 0 and "must not be empty")
    if whole:
        check_budget(path, path.stat().st_size, "as a file")
    return path


def check_target(path: Path) -> None:
    """Raise InputError if no file can be written to `path`."""
    real = real_path(path)
    folder = real.parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise InputError(f"{path}: the folder {folder} does not exist")
    if real.exists() and not real.is_file():
        raise InputError(f"{path}: must be a file, got a folder or a device")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: cannot write to the folder {folder}")
    if real.exists() and not os.access(real, os.W_OK):
        raise InputError(f"{path}: cannot write to this file, which is read-only")


def check_output(path: Path) -> None:
    """Raise InputError if no file can be written to `path`, whose folder may be made first."""
    real_path(path)
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
def new_folder(*paths: StrPath, durable: bool = False) -> Iterator[None]:
    """Make folders with their parents if needed; if the block raises, remove those that are new and still empty.

    durable: flush the names of the new folders to disk when the block ends.
    """
    missing = [place for path in map(Path, paths) for place in (path, *path.parents) if not place.exists()]
    remove_folders_at_exit(missing)
    try:
        for path in paths:
            make_folder(path)
        yield
        if durable:
            for parent in dict.fromkeys(place.parent for place in missing):
                with named(parent):
                    flush(parent)
    except BaseException:
        for place in missing:
            with suppress(OSError):  # not empty
                place.rmdir()
                keep_folders([place])
        raise
    keep_folders(missing)


def check_folder_writable(path: StrPath) -> None:
    """Raise InputError if a folder at `path`, which may not exist yet, could not be written to."""
    path = Path(path)
    real_path(path)
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"{nearest}: must be a folder, got a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"{nearest}: cannot write to this folder")
