"""Files of a run, written by its first process: log, validations, checkpoints, model and picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from flowinpaint.api import inpaint
from flowinpaint.io import write_image
from flowinpaint.metrics import epe
from flowinpaint.networks.network import Network
from flowinpaint.networks.weights import save_model
from flowinpaint.training.batches import GeneratedSource
from flowinpaint.training.checkpoint import Checkpoint, write_checkpoint
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.log import TRAIN, VALIDATION, Log
from flowinpaint.training.optimiser import Statistics
from flowinpaint.training.run_folder import RunFolder, writing
from flowinpaint.training.step import TrainingStep
from flowinpaint.training.validation import OURS, RIVALS, Scores, Validator
from flowinpaint.viz.colours import as_rgb, colour_field, draw_given, field_range, resized
from flowinpaint.viz.sheet import Panel, contact_sheet

if TYPE_CHECKING:
    from flowinpaint.training.loop import Progress

ROWS = 4
PANEL = (432, 288)
"""Largest width and height of a panel in the validation's picture."""


class Recorder:
    """Writes to a run folder; missing data raise errors when it is created, before the first step."""

    def __init__(
        self,
        config: TrainingConfig,
        folder: RunFolder,
        training: TrainingStep,
        saved: Checkpoint | None,
        note: Callable[[str], None],
    ) -> None:
        self._config, self._folder, self._training = config, folder, training
        self._saved_at = saved.step if saved else None
        self._scores: Scores | None = None
        self._scored_at: int | None = None
        scenes = training.source.scenes if isinstance(training.source, GeneratedSource) else None
        self._validator = Validator(config, training.world.device, folder.references, scenes)
        if self._validator:
            with writing(folder.references):
                self._validator.prepare(note)
        else:
            note("No data to validate on; add a folder of frames: --set validation.root=DIR.")
        with writing(folder.log):
            self._log = Log(folder, saved.step if saved else 0)
        self._logged_at = saved.step if saved and self._log.validated else None
        if not self._log.has_tensorboard:
            note("TensorBoard is not installed (extra 'train'); logging only to log.jsonl.")

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
        with writing(self._folder.log):
            self._log.add(TRAIN, at.step, values)

    def validate(self, at: Progress) -> Scores | None:
        """Validate the averaged weights, unless this step has been validated, and log the scores."""
        if not self._validator:
            return None
        if self._scored_at != at.step:
            self._scores = self._validator.measure(self._training.average)
            self._scored_at = at.step
            if self._logged_at != at.step:
                with writing(self._folder.log):
                    self._log.add(VALIDATION, at.step, self._scores.tables)
                    self._log.picture(VALIDATION, at.step, self._draw())
        return self._scores

    def save(self, at: Progress) -> None:
        """Write a checkpoint, unless this step has one, and the model with the averaged weights."""
        if self._saved_at != at.step:
            with writing(self._folder.log):
                self._log.settle()
            checkpoint = Checkpoint(at.step, at.seconds, self._config, self._training.state())
            write_checkpoint(self._folder.checkpoints, checkpoint)
            self._saved_at = at.step
        with writing(self._folder.model):  # also after a checkpoint of before: a kill may have come between the two
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
        with writing(self._folder.picture):
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
