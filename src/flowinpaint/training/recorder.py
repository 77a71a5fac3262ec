"""Files of a run, written by its first process: log, validations, checkpoints, model and picture.

The log is a file of JSON lines; if TensorBoard is installed, it gets the same scalars and pictures.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from flowinpaint.api import inpaint
from flowinpaint.config_parsing import convert, flattened
from flowinpaint.extras import needs
from flowinpaint.io import write_image
from flowinpaint.io.publish import named
from flowinpaint.io.text import LONGEST_LINE, decoded, parse_json, raw_lines
from flowinpaint.metrics import epe
from flowinpaint.networks.network import Network
from flowinpaint.networks.weights import save_model
from flowinpaint.training.batches import GeneratedSource
from flowinpaint.training.checkpoint import Checkpoint, RunFolder, write_checkpoint
from flowinpaint.training.optimiser import Statistics
from flowinpaint.training.step import TrainingStep
from flowinpaint.training.validation import OURS, RIVALS, Scores, Validator
from flowinpaint.viz.colours import as_rgb, colour_field, draw_given, field_range, resized
from flowinpaint.viz.sheet import Panel, contact_sheet

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

    from flowinpaint.training.loop import Progress

TRAIN, VALIDATION = "train", "validation"
ROWS = 4
PANEL = (432, 288)
"""Largest width and height of a panel in the validation's picture."""


class Recorder:
    """Writes to a run folder; missing data raise errors when it is created, before the first step."""

    def __init__(
        self, folder: RunFolder, training: TrainingStep, saved: Checkpoint | None, note: Callable[[str], None]
    ) -> None:
        self._config, self._folder, self._training = training.config, folder, training
        self._saved_at = saved.step if saved else None
        self._scores: Scores | None = None
        self._scored_at: int | None = None
        scenes = training.source.scenes if isinstance(training.source, GeneratedSource) else None
        self._validator = Validator(training.config, training.world.device, folder.references, scenes)
        if self._validator:
            with named(folder.references):
                self._validator.prepare(note)
        else:
            note("No data to validate on; add a folder of frames: --set validation.root=DIR.")
        self._log = Log(folder, saved.step if saved else 0)
        self._logged_at = saved.step if saved and self._log.validated else None
        if not self._log.has_tensorboard:
            note(f"Logging to log.jsonl alone; TensorBoard's log {needs('train')}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._log.close()

    def write_line(self, at: Progress, statistics: Statistics, rate: float) -> None:
        """Log the steps since the last line."""
        values = {
            "samples": at.step * self._config.data.batch,
            "seconds": round(at.seconds, 3),
            "loss": statistics.loss,
            "lr": rate,
            "grad_norm": statistics.grad_norm,
            "skipped": statistics.skipped,
            "steps_per_second": round(1 / at.pace, 3) if at.pace else None,
        }
        self._log.add(TRAIN, at.step, values)

    def validate(self, at: Progress) -> Scores | None:
        """Validate the averaged weights, unless this step has been validated, and log the scores."""
        if not self._validator:
            return None
        if self._scored_at != at.step:
            self._scores = self._validator.measure(self._training.average)
            self._scored_at = at.step
            if self._logged_at != at.step:
                self._log.add(VALIDATION, at.step, self._scores.tables)
                self._log.picture(VALIDATION, at.step, self._draw())
        return self._scores

    def save(self, at: Progress) -> None:
        """Write a checkpoint, unless this step has one, and the model with the averaged weights."""
        if self._saved_at != at.step:
            self._log.settle()
            checkpoint = Checkpoint(at.step, at.seconds, self._config, self._training.state())
            write_checkpoint(self._folder.checkpoints, checkpoint)
            self._saved_at = at.step
        with named(self._folder.model):  # even if the checkpoint exists: the run may have been killed between the two
            save_model(self._training.average, self._folder.model)

    def finish(self, at: Progress) -> Scores | None:
        """Write the final state of a finished run."""
        scores = self.validate(at)
        self.save(at)
        if self._validator and not self._folder.picture.exists():
            self._draw()
        return scores

    def _draw(self) -> npt.NDArray[np.uint8]:
        """Draw and write the results of the averaged weights on some scenes and frames."""
        sheet = validation_sheet(self._validator, self._training.average)
        with named(self._folder.picture):
            write_image(self._folder.picture, sheet)
        return sheet


def validation_sheet(validator: Validator, model: Network) -> npt.NDArray[np.uint8]:
    """Contact sheet of some held-out scenes and frames, a row each: image, given vectors, truth, and all results."""
    density = validator.densities[len(validator.densities) // 2]
    panels: list[Panel | None] = []
    for frame in validator.examples(density, ROWS):
        limits = field_range(frame.truth)
        height, width = frame.mask.shape
        scale = min(PANEL[0] / width, PANEL[1] / height)
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        results = {
            rival: inpaint(frame.image, frame.truth, frame.mask, rival, validator.device).flow for rival in RIVALS
        }
        results[OURS] = validator.fill(model, frame)
        row = [
            ("Image", as_rgb(frame.image)),
            (f"Given\n{100 * density:g} %", draw_given(frame.image, frame.truth, frame.mask, limits, size)),
            ("Truth", colour_field(frame.truth, limits)),
        ]
        row += [
            (f"{name}\nEPE {epe(field, frame.truth, frame.valid):.3f} px", colour_field(field, limits))
            for name, field in results.items()
        ]
        panels += [(title, resized(rgb, size)) for title, rgb in row]
    return contact_sheet(panels, columns=6)


class Log:
    """Appends to log.jsonl, after cutting it back to the step that the run resumes from."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        self._path = folder.log
        with named(self._path):
            self.validated = cut_back(self._path, step)
            self._file: IO[str] = self._path.open("a", encoding="utf-8")
            self._board = _tensorboard(folder.tensorboard, step)
        self.has_tensorboard = self._board is not None

    def add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write a line and flush it to the operating system, so that it survives the end of this process."""
        with named(self._path):
            self._file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            self._file.flush()
        for name, value in flattened(values, "/").items():
            if isinstance(value, int | float):
                self._show("add_scalar", f"{kind}/{name}", value, step)

    def picture(self, name: str, step: int, picture: npt.NDArray[np.uint8]) -> None:
        """Show a picture (H, W, 3) in TensorBoard."""
        self._show("add_image", name, picture, step, dataformats="HWC")

    def settle(self) -> None:
        """Flush the log to disk: a checkpoint must not be newer than the log."""
        with named(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the files; errors of a full disk have been raised before."""
        with suppress(OSError):
            self._file.close()
        self._show("close")

    def _show(self, method: str, *arguments: Any, **options: Any) -> None:
        """Call TensorBoard; its files are copies of the log, so a full disk stops them and not the run."""
        try:
            if self._board is not None:
                getattr(self._board, method)(*arguments, **options)
        except OSError:
            self._board = None


def cut_back(path: Path, step: int) -> bool:
    """Drop the lines of a log after a step and broken lines; return whether a validation of that step is left."""
    if not path.exists():
        return False
    kept, validated = 0, False
    with path.open("r+b") as file:
        for number, line in raw_lines(path, file, LONGEST_LINE):
            try:
                values = parse_json(decoded(line, str(path)), path, line=number, finite=False)
                at, kind = (convert(values[key], wanted, key) for key, wanted in (("step", int), ("kind", str)))
            except (ValueError, KeyError, TypeError):
                break
            if at > step or not line.endswith(b"\n"):
                break
            validated = kind == VALIDATION and at == step
            kept += len(line)
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
