"""Log of a run: lines of JSON, and TensorBoard's scalars and pictures where it is installed."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flowinpaint.training.run_folder import RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

TRAIN, VALIDATION = "train", "validation"


class Log:
    """Appends to log.jsonl, after cutting it back to the step that the run resumes from."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        self.validated = cut_back(folder.log, step)
        self._file: IO[str] = folder.log.open("a", encoding="utf-8")
        self._board = _tensorboard(folder.tensorboard, step)
        self.has_tensorboard = self._board is not None

    def add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write a line and hand it to the operating system, so that it survives the end of this process."""
        self._file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        self._file.flush()

        def add_scalars(board: SummaryWriter) -> None:
            for name, value in _scalars(values).items():
                board.add_scalar(f"{kind}/{name}", value, step)

        self._show(add_scalars)

    def picture(self, name: str, step: int, picture: npt.NDArray[np.uint8]) -> None:
        """Show a picture (H, W, 3) in TensorBoard."""
        self._show(lambda board: board.add_image(name, picture, step, dataformats="HWC"))

    def settle(self) -> None:
        """Flush to disk: a checkpoint must not be newer than the log."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the files; errors of a full disk have been raised before."""
        with suppress(OSError):
            self._file.close()
        self._show(lambda board: board.close())

    def _show(self, work: Callable[[SummaryWriter], object]) -> None:
        """Call TensorBoard; its files only copy the log, so a full disk ends them and not the run."""
        if self._board is not None:
            try:
                work(self._board)
            except OSError:
                self._board = None


def cut_back(path: Path, step: int) -> bool:
    """Drop the lines of a log after a step and broken lines; return whether a validation of that step is left."""
    if not path.exists():
        return False
    kept, validated = 0, False
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            values = json.loads(line)
            late = values["step"] > step
        except (ValueError, KeyError, TypeError):
            break
        if late or not line.endswith(b"\n"):
            break
        validated = values["kind"] == VALIDATION and values["step"] == step
        kept += len(line)
    with path.open("r+b") as file:
        file.truncate(kept)
    return validated


def _tensorboard(path: Path, step: int) -> SummaryWriter | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of TensorBoard's imports
            from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(path), purge_step=step + 1)


def _scalars(values: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """The numbers in nested tables, by path."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            numbers |= _scalars(value, f"{path}{name}/")
        elif isinstance(value, int | float):
            numbers[f"{path}{name}"] = value
    return numbers
