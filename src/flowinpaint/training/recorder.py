"""All that the first process of a run writes: the log, validations, checkpoints, the model and a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from flowinpaint.io import write_image
from flowinpaint.networks.weights import save_model
from flowinpaint.training.checkpoint import Checkpoint, write_checkpoint
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.log import TRAIN, VALIDATION, Log
from flowinpaint.training.pictures import validation_sheet
from flowinpaint.training.run_folder import RunFolder, writing
from flowinpaint.training.source import GeneratedSource
from flowinpaint.training.step import TrainingStep
from flowinpaint.training.tally import Tally
from flowinpaint.training.validation import Scores, Validator

if TYPE_CHECKING:
    from flowinpaint.training.loop import Progress


class Recorder:
    """Writes to a run folder; whatever can fail for want of data fails when it is made, before the first step."""

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
            note("There is nothing to validate on; name a folder of frames: --set validation.root=DIR.")
        with writing(folder.log):
            self._log = Log(folder, saved.step if saved else 0)
        self._logged_at = saved.step if saved and self._log.validated else None
        if not self._log.has_tensorboard:
            note("TensorBoard is not installed (extra 'train'); the log goes to log.jsonl alone.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._log.close()

    def write_line(self, at: Progress, tally: Tally, rate: float) -> None:
        """Log an interval."""
        values = {
            "samples": at.step * self._config.data.batch,
            "seconds": round(at.seconds, 3),
            "loss": tally.loss,
            "lr": rate,
            "grad_norm": tally.grad_norm,
            "skipped": tally.skipped,
            "steps_per_second": round(1 / at.pace, 3) if at.pace else None,
        }
        with writing(self._folder.log):
            self._log.add(TRAIN, at.step, values)

    def validate(self, at: Progress) -> Scores | None:
        """Try the averaged weights, unless that was done at this step, and log what comes out."""
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
        """Write a checkpoint, unless there is one of this step, and the averaged weights beside it."""
        if self._saved_at != at.step:
            with writing(self._folder.log):
                self._log.settle()
            checkpoint = Checkpoint(at.step, at.seconds, self._config, self._training.state())
            write_checkpoint(self._folder.checkpoints, checkpoint)
            self._saved_at = at.step
        with writing(self._folder.model):  # also if a checkpoint was there: a kill may have come between the two
            save_model(self._training.average, self._folder.model)

    def finish(self, at: Progress) -> Scores | None:
        """Leave everything of a run that has come to its end."""
        scores = self.validate(at)
        self.save(at)
        if self._validator and not self._folder.picture.exists():
            self._draw()
        return scores

    def _draw(self) -> npt.NDArray[np.uint8]:
        """Draw and write what the averaged weights make of some scenes and frames."""
        sheet = validation_sheet(self._validator, self._training.average)
        with writing(self._folder.picture):
            write_image(self._folder.picture, sheet)
        return sheet
