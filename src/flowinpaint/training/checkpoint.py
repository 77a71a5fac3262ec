"""Folder of a run: its files, the lock against a second run, and its checkpoints.

A checkpoint is a safetensors file, written atomically, with the configuration in its metadata. The number of steps is
the whole random state: a sample is a function of its number.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import save
from torch import Tensor

from flowinpaint.config_parsing import build, check_ranges
from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io.files import write_bytes
from flowinpaint.io.temporaries import remove_stale
from flowinpaint.io.tensors import open_tensors
from flowinpaint.io.text import parse_json
from flowinpaint.training.config import TrainingConfig

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")

LOCK = ".lock"
KEY = "flowinpaint.training"
KEPT = 2
MOST_STEPS = 2**40
_NAME = re.compile(r"step-([0-9]{1,18})\.safetensors")


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
    """Lock the folder of a new run, which must not contain a run yet, or of a run to resume."""
    folder = RunFolder(path)
    check_run(path, resume)
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    with (path / LOCK).open("wb") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"--out: {path} must not be in use by another run; wait, or use another folder"
                ) from error
        for place in (folder.path, folder.checkpoints):
            remove_stale(place)  # from a run that was killed while writing
        try:
            yield folder
        except BaseException:
            left = {place.name for place in path.iterdir()}
            if left == {LOCK, folder.checkpoints.name} and not any(folder.checkpoints.iterdir()):  # nothing was written
                (path / LOCK).unlink()
                folder.checkpoints.rmdir()
                path.rmdir()
            raise


def check_run(path: Path, resume: bool) -> None:
    """Raise InputError if a folder holds a run without `resume`, or none with it."""
    if path.exists() and not path.is_dir():
        raise InputError(f"--out must be a folder, got the file {path}")
    there = bool(list_checkpoints(RunFolder(path).checkpoints)) if path.exists() else False
    if there and not resume:
        raise InputError(
            f"--out must be a folder without a run, got {path}; add --resume to continue it, or use another folder"
        )
    if resume and not there:
        raise InputError(f"--out must be the folder of a run with a checkpoint to resume from, got {path}")


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to resume a run: step, time, configuration, and the tensors of `TrainingStep.state`."""

    step: int
    seconds: float
    """Training time so far."""
    config: TrainingConfig
    tensors: Mapping[str, Tensor]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint to a folder, and keep only the last KEPT there."""
    path = folder / f"step-{checkpoint.step:09}.safetensors"
    about = {"step": checkpoint.step, "seconds": checkpoint.seconds, "config": asdict(checkpoint.config)}
    tensors = {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()}
    try:
        write_bytes(path, save(tensors, metadata={KEY: json.dumps(about)}), durable=True)
    except OSError as error:
        good = next(iter(list_checkpoints(folder)), None)
        kept = f"the last good one is {good.name}" if good else "there is no earlier one"
        raise OSError(f"{path}: cannot write the checkpoint ({error.strerror or error}); {kept}") from error
    for old in list_checkpoints(folder)[KEPT:]:
        old.unlink()
    return path


def read_newest(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The newest complete checkpoint, and the error of each newer damaged one."""
    return newest_that(folder, lambda checkpoint: checkpoint)


def newest_that(folder: Path, use: Callable[[Checkpoint], T]) -> tuple[T, list[str]]:
    """What a function makes of the newest complete checkpoint, and the error of each newer damaged one.

    A FileFormatError of the function, for example about tensors that do not fit, passes on to the previous checkpoint.
    """
    faults: list[str] = []
    for path in list_checkpoints(folder):
        try:
            checkpoint = read_checkpoint(path)
        except (FileFormatError, OSError) as error:
            faults.append(str(error))
            continue
        try:
            return use(checkpoint), faults
        except FileFormatError as error:
            faults.append(f"{path}: {error}")
    raise FileFormatError(faults[0] if faults else f"{folder}: there is no checkpoint to resume from")


@dataclass(frozen=True)
class _About:
    """The metadata of a checkpoint."""

    step: int
    seconds: float
    config: TrainingConfig

    def __post_init__(self) -> None:
        check_ranges(self, step=(0, MOST_STEPS), seconds=(0, math.inf))


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file, on the CPU."""
    with open_tensors(path) as file:
        check_file(path, KEY not in file.metadata and f"must be a checkpoint with metadata {KEY}, got other tensors")
        about = parse_json(file.metadata[KEY], path, f"metadata {KEY}")
        try:
            about = build(_About, about)
        except InputError as error:
            raise FileFormatError(f"{path}: the metadata do not describe a run of this version: {error}") from error
        match = _NAME.fullmatch(path.name)
        named = match is None or int(match[1]) == about.step
        check_file(path, not named and f"must hold the step of its name, got step {about.step}")
        return Checkpoint(about.step, about.seconds, about.config, file.read())


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the newest first."""
    found = [(int(match[1]), path) for path in folder.glob("*.safetensors") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


@torch.no_grad()
def restore(state: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy saved tensors into the tensors of a run; FileFormatError if names, shapes or types differ."""
    if differing := sorted(state.keys() ^ saved.keys()):
        raise FileFormatError(
            f"checkpoint must have the tensors of this run, got a difference at {differing[0]}; resume with the "
            "version of flowinpaint that started the run"
        )
    for name in state:
        if saved[name].shape != state[name].shape:
            shapes = [tuple(tensors[name].shape) for tensors in (saved, state)]
            raise FileFormatError(f"checkpoint: {name} must be of shape {shapes[1]}, got {shapes[0]}")
        if saved[name].dtype != state[name].dtype:
            raise FileFormatError(f"checkpoint: {name} must be {state[name].dtype}, got {saved[name].dtype}")
    for name, value in state.items():
        value.copy_(saved[name])
