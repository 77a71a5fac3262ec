"""Validation of the averaged weights, on frames with ground truth and on generated scenes that training never sees."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.api import inpaint, to_batch
from flowinpaint.checks import check_image
from flowinpaint.config_parsing import convert
from flowinpaint.data import Batch
from flowinpaint.data.folder import Frame, find_samples
from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.io.text import read_json
from flowinpaint.masks import random_mask
from flowinpaint.metrics import epe, geometric_mean
from flowinpaint.networks.network import Network
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.text_tables import write_text
from flowinpaint.training.config import TrainingConfig, of_table
from flowinpaint.version import __version__

FIRST_HELDOUT = 2**62
"""Held-out scenes are numbered downwards from here; training counts up from 0 and never reaches them."""
REFERENCE = "laplace-beltrami"
RIVALS = ("harmonic", REFERENCE)
OURS = "this model"


@dataclass(frozen=True)
class Scores:
    """Scores of a validation, by density in per cent, as in "5".

    frames: R, the mean EPE relative to laplace-beltrami, on each data set of real frames; ratio: their geometric mean.
    heldout: mean EPE on held-out scenes, of this model and of the reference methods.
    """

    frames: dict[str, dict[str, float]]
    ratio: dict[str, float]
    heldout: dict[str, dict[str, float]]

    @property
    def tables(self) -> dict[str, dict[str, float] | dict[str, dict[str, float]]]:
        """The scores that were measured, for a line of the log."""
        return {name: values for name, values in asdict(self).items() if values}

    @property
    def summary(self) -> str:
        """One number for a progress display, at the middle density: R, or else the error on held-out scenes."""
        densities = list(self.ratio or self.heldout)
        if not densities:
            return ""
        middle = densities[len(densities) // 2]
        if self.ratio:
            return f"R {self.ratio[middle]:.3f} at {middle} %"
        return f"EPE {self.heldout[middle][OURS]:.3f} at {middle} %"


class Validator:
    """Frames and scenes of a run's validations, and the errors of reference methods on them, computed once."""

    def __init__(
        self,
        config: TrainingConfig,
        device: torch.device,
        references: Path,
        scenes: Callable[[torch.Tensor], Batch] | None = None,
    ) -> None:
        self.densities = config.validation.densities
        self.device = device
        self._size = config.data.size
        self._file = references
        self._known: dict[str, float] = _read_references(references)
        wanted = config.validation
        with of_table("validation"):
            self._samples = find_samples(wanted.root, wanted.datasets or None) if wanted.root else []
        model = config.model
        for sample in self._samples:
            if isinstance(model, NeuroexplicitConfig) and model.learn_kernels and sample.channels != model.channels:
                raise InputError(
                    f"validation.datasets must have {model.channels} channels, as the learned kernels, but "
                    f"{sample.dataset} has {sample.channels}"
                )
        self._scenes = [] if scenes is None else [self._scene(scenes, i) for i in range(wanted.heldout)]

    def __bool__(self) -> bool:
        return bool(self._samples or self._scenes)

    def prepare(self, note: Callable[[str], None]) -> None:
        """Compute the errors of the reference methods, and save them for resumed runs."""
        known = len(self._known)
        for density in self.densities:
            # Frames are read again each time: together they may not fit into memory.
            frames = ((sample.load(density), REFERENCE) for sample in self._samples)
            for frame, method in chain(frames, product(self.heldout(density), RIVALS)):
                if len(self._known) == known and self._key(method, frame) not in self._known:
                    note("Running the reference methods on the frames and scenes of the validation.")
                self._reference(method, frame)
        write_text(self._file, json.dumps(self._known))

    def measure(self, model: Network) -> Scores:
        """The scores of a model."""
        frames: dict[str, dict[str, float]] = {}
        ratio: dict[str, float] = {}
        heldout: dict[str, dict[str, float]] = {}
        for density in self.densities:
            label = f"{100 * density:g}"
            sums: dict[str, list[float]] = {}
            for sample in self._samples:
                frame = sample.load(density)
                pair = sums.setdefault(sample.dataset, [0.0, 0.0])
                pair[0] += epe(self.fill(model, frame), frame.truth, frame.valid)
                pair[1] += self._reference(REFERENCE, frame)
            own = {name: a / b for name, (a, b) in sums.items() if b > 0}
            if (mean := geometric_mean(list(own.values()))) is not None:
                frames[label], ratio[label] = own, mean
            if scenes := self.heldout(density):
                errors = {rival: [self._reference(rival, scene) for scene in scenes] for rival in RIVALS}
                errors[OURS] = [epe(self.fill(model, scene), scene.truth, scene.valid) for scene in scenes]
                heldout[label] = {name: sum(values) / len(values) for name, values in errors.items()}
        return Scores(frames, ratio, heldout)

    @torch.inference_mode()
    def fill(self, model: Network, frame: Frame) -> npt.NDArray[np.float32]:
        """The dense field (H, W, C) of a model for a frame, as `inpaint` computes it."""
        image = check_image(frame.image, frame.mask.shape)
        given = np.where(frame.mask[..., None], frame.truth, 0).astype(np.float32)
        u: torch.Tensor = model(*(to_batch(x, self.device) for x in (image, given, frame.mask[..., None])))
        return np.where(frame.mask[..., None], given, u[0].permute(1, 2, 0).cpu().numpy())

    def heldout(self, density: float) -> list[Frame]:
        """The held-out scenes with a mask of this density."""
        return [replace(scene, mask=random_mask(self._size, density, i)) for i, scene in enumerate(self._scenes)]

    def examples(self, density: float, count: int) -> list[Frame]:
        """Up to `count` held-out scenes with a mask of this density, and as many frames, from different data sets."""
        firsts = {sample.dataset: sample for sample in reversed(self._samples)}.values()
        return [*self.heldout(density)[:count], *(sample.load(density) for sample in list(reversed(firsts))[:count])]

    def _reference(self, method: str, frame: Frame) -> float:
        key = self._key(method, frame)
        if key not in self._known:
            filled = inpaint(frame.image, frame.truth, frame.mask, method, self.device).flow
            self._known[key] = epe(filled, frame.truth, frame.valid)
        return self._known[key]

    def _key(self, method: str, frame: Frame) -> str:
        return f"{method} {__version__} {_hash(frame)}"

    def _scene(self, scenes: Callable[[torch.Tensor], Batch], number: int) -> Frame:
        """A held-out scene, without a mask."""
        batch = scenes(torch.tensor([FIRST_HELDOUT - 1 - number], device=self.device))
        image, truth, valid = (x[0].permute(1, 2, 0).cpu().numpy() for x in batch)
        return Frame(image, truth, valid[..., 0] > 0, np.zeros(valid.shape[:2], np.bool_))


def _hash(frame: Frame) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in (frame.image, frame.truth, frame.valid, frame.mask):
        digest.update(f"{array.shape}{array.dtype}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _read_references(path: Path) -> dict[str, float]:
    try:
        known: dict[str, float] = convert(read_json(path), dict[str, float], path.name)
        return known
    except (OSError, FileFormatError, InputError):
        return {}  # only a cache
