"""The folder of a run: its files, and the lock that keeps a second run out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowinpaint.errors import InputError
from flowinpaint.training.checkpoint import list_checkpoints

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"


class RunFolder:
    """Paths of the files in a run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.model = path / "model.safetensors"
        """The averaged weights, for `load_model` and `--methods`."""
        self.log = path / "log.jsonl"
        """A line of JSON per log interval and validation."""
        self.references = path / "references.json"
        """Errors of the reference methods of the validation."""
        self.picture = path / "validation.png"
        """Results of the model on some held-out scenes and frames."""
        self.tensorboard = path / "tensorboard"


@contextmanager
def open_run(path: Path, resume: bool) -> Iterator[RunFolder]:
    """Lock the folder of a new run, which must not hold one yet, or of a run to resume."""
    folder = RunFolder(path)
    check_run(path, resume)
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    with (path / LOCK).open("wb") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"--out: {path} is in use by another run; wait, or use another folder.") from error
        for place in (folder.path, folder.checkpoints):
            for left_over in place.glob(".flowinpaint-*"):  # of a run that was killed while writing
                left_over.unlink()
        try:
            yield folder
        except BaseException:
            _leave_nothing(folder)
            raise


def check_run(path: Path, resume: bool) -> None:
    """Raise InputError if a folder holds a run without `resume`, or none with it."""
    if path.exists() and not path.is_dir():
        raise InputError(f"--out must be a folder, but {path} is a file.")
    there = bool(list_checkpoints(RunFolder(path).checkpoints)) if path.exists() else False
    if there and not resume:
        raise InputError(f"--out: {path} already holds a run; add --resume to continue it, or use another folder.")
    if resume and not there:
        raise InputError(f"--out: {path} holds no checkpoint to resume from; use the folder of a run.")


def _leave_nothing(folder: RunFolder) -> None:
    """Remove the folder of a run that failed before writing anything."""
    left = {path.name for path in folder.path.iterdir()}
    if left == {LOCK, folder.checkpoints.name} and not any(folder.checkpoints.iterdir()):
        (folder.path / LOCK).unlink()
        folder.checkpoints.rmdir()
        folder.path.rmdir()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Let an error of the operating system, such as a full disk, name the file being written."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path}: could not be written ({error.strerror or error}).") from error
