"""Frames to measure on: data sets in their authors' layout, folders of frames, and generated scenes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.data.bank import read_bank
from flowinpaint.data.datasets import open_dataset
from flowinpaint.data.folder import (
    Frame,
    FrameSource,
    MaskKind,
    Sample,
    centre,
    file_hash,
    find_samples,
    sample_mask,
    stable_seed,
)
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.errors import InputError
from flowinpaint.masks.cases import Case
from flowinpaint.reproduction.experiment import Scale, Size
from flowinpaint.training.config import GENERATED as LAYERED
from flowinpaint.training.config import DataConfig
from flowinpaint.viz.colours import as_rgb

GENERATED, GENERATED_WIDE, SCENES = "generated", "generated-wide", "scenes"
"""Data sets of generated scenes. Networks are trained on scenes like the first, but not like the last."""
FIRST_SCENE = 2**61 + 2**20
"""Number of the first generated frame; training counts from 0 and does not reach it."""
FLOW_CHANNELS = 2
_CACHED_SCENES = 64


@dataclass(frozen=True)
class SceneSample:
    """A generated scene, painted with the pictures of a bank or with procedural ones; its masks are always drawn."""

    dataset: str
    name: str
    number: int
    size: Size
    layered: LayeredConfig
    bank: str = ""

    def mask_kind(self, case: Case) -> MaskKind:
        """The pattern, or "random" for a density."""
        return case if isinstance(case, str) else "random"

    def load(self, case: Case, seed: int = 0, crop: int = 0) -> Frame:
        """The frame, or its central crop×crop pixels, with a mask drawn from the seed."""
        image, truth = _scene(self)
        middle = centre((truth.shape[0], truth.shape[1]), crop)
        image, truth = image[middle], truth[middle]
        valid = np.ones(truth.shape[:2], np.bool_)
        mask = sample_mask(self.dataset, self.name, case, seed, valid)
        return Frame(image, truth, valid, mask, self.name)

    def possible(self, cases: Sequence[Case]) -> list[Case]:
        """All cases: every pixel is valid."""
        return list(cases)

    def fingerprint(self, case: Case) -> str:
        """A hash of the scene's description, not of its pixels, whose last bits differ between processors."""
        pictures = file_hash(Path(self.bank)) if self.bank else ""
        return f"{stable_seed(str(self.number), str(self.size), str(asdict(self.layered)), pictures):016x}"


@dataclass(frozen=True)
class FrameSet:
    """Frames to measure on. crop: side of the central part to use, 0 for all. about: a description per data set."""

    samples: tuple[FrameSource, ...]
    crop: int
    about: dict[str, str]

    @property
    def datasets(self) -> list[str]:
        """The names of the data sets."""
        return list(dict.fromkeys(sample.dataset for sample in self.samples))

    def spread(self, most: int) -> FrameSet:
        """At most `most` frames: if possible the same number from each data set, evenly spread over it."""
        names = self.datasets[:most]
        chosen: list[FrameSource] = []
        about = {}
        for place, name in enumerate(names):
            own = [sample for sample in self.samples if sample.dataset == name]
            count = min(len(own), most // len(names) + (place < most % len(names)))
            some = [own[i * len(own) // count] for i in range(count)]
            chosen += some
            frames = f"the frame{'s' if count > 1 else ''} {', '.join(sample.name for sample in some)}"
            about[name] = f"{frames}; {self.about[name]}"
        return FrameSet(tuple(chosen), self.crop, about)


@dataclass(frozen=True)
class FrameOptions:
    """Sources of frames. Without any folder, frames are generated.

    sintel, kitti, flyingthings: roots of data sets in their authors' layout. root: data sets in folders
    (`data.folder`). scenes: number of generated frames to add, painted with a bank of pictures if there is one.
    most: frames per data set, evenly spread, 0 for all.
    """

    sintel: Path | None = None
    kitti: Path | None = None
    flyingthings: Path | None = None
    root: Path | None = None
    scenes: int = 0
    most: int = 0
    bank: str = ""


_LAYOUTS = {
    "flyingthings": ("FlyingThings3D", "val", "final", "test split, final pass, left camera, flow into the future"),
    "sintel": ("Sintel", None, "final", "training frames, final pass"),
    "kitti": ("KITTI2015", None, None, "training frames"),
}
"""Name, split, render pass and description of the data set of each option."""
_Found = dict[str, tuple[Sequence[FrameSource], str]]
"""Samples and description by data set."""


def square_frames(options: FrameOptions, scale: Scale, training: DataConfig) -> FrameSet:
    """The frames of Table 1, Table 2 and the figures: the central part of all frames but KITTI's.

    training: the data that networks are trained on; generated frames are of the same kind.
    """
    found = _on_disk(options, f"the {scale.crop}×{scale.crop} pixels in their middle", kitti=False)
    on_disk = (options.sintel, options.kitti, options.flyingthings, options.root)
    if count := options.scenes or (scale.scenes if not any(on_disk) else 0):
        name = GENERATED if training.source == LAYERED else SCENES
        found[name] = _generated(name, count, (scale.crop, scale.crop), training, options.bank)
    if not found:
        raise InputError(
            "--sintel, --flyingthings or --root must name frames other than KITTI's, or --scenes a number of generated "
            "ones"
        )
    return _frame_set(found, scale.crop, options.most)


def wide_frames(options: FrameOptions, scale: Scale, training: DataConfig) -> FrameSet:
    """The frames of Table 3: whole KITTI frames, or wide generated ones without KITTI."""
    found = _on_disk(options, "whole", kitti=True)
    if not found:
        scenes = _generated(GENERATED_WIDE, scale.wide_scenes, scale.wide_size, training, options.bank)
        found[GENERATED_WIDE] = scenes
    return _frame_set(found, 0, options.most)


def folders_without_flow(options: FrameOptions) -> list[str]:
    """The data sets below the root that contain disparity, which the tables omit."""
    return sorted({sample.dataset for sample in _below(options.root) if sample.channels != FLOW_CHANNELS})


def _on_disk(options: FrameOptions, part: str, *, kitti: bool) -> _Found:
    """The data sets with flow, KITTI's or all others; part: the part of their frames that is used, in words."""
    found: _Found = {}
    for option, (name, split, render, about) in _LAYOUTS.items():
        root = getattr(options, option)
        if root is None or (option == "kitti") != kitti:
            continue
        with _errors_name(f"--{option}"):
            samples = [replace(s, dataset=name) for s in open_dataset(name.lower(), root, split, render).samples]
        if option == "flyingthings":
            samples = [sample for sample in samples if {"left", "into_future"} <= set(Path(sample.name).parts)]
        found[name] = samples, f"{about}, {part}"
    below = [s for s in _below(options.root) if s.channels == FLOW_CHANNELS and ("kitti" in s.dataset.lower()) == kitti]
    for name in dict.fromkeys(sample.dataset for sample in below):
        found[name] = [sample for sample in below if sample.dataset == name], f"a folder of frames, {part}"
    return found


@lru_cache(maxsize=4)
def _generator(size: Size, layered: LayeredConfig, bank: str) -> LayeredFlow:
    return LayeredFlow(layered, size, read_bank(bank) if bank else None)


@lru_cache(maxsize=_CACHED_SCENES)
def _scene(sample: SceneSample) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    batch = _generator(sample.size, sample.layered, sample.bank).scenes(torch.tensor([sample.number]))
    image, flow = (planes[0].movedim(0, -1).numpy() for planes in (batch.image, batch.flow))
    return as_rgb(image), flow


@contextmanager
def _errors_name(option: str) -> Iterator[None]:
    """Name the command-line option, not `root`, in an error about a root."""
    try:
        yield
    except InputError as error:
        raise type(error)(re.sub(r"^root\b", option, str(error))) from error


def _below(root: Path | None) -> list[Sample]:
    with _errors_name("--root"):
        return [] if root is None else find_samples(root)


def _generated(name: str, count: int, size: Size, training: DataConfig, bank: str) -> tuple[list[SceneSample], str]:
    """Generated scenes, and a description of them."""
    kind = "of the kind that networks are trained on" if training.source == LAYERED else "not of the training's kind"
    painted = f"with pictures of {Path(bank).name}" if bank else "with drawn pictures"
    text = f"generated scenes of {size[0]}×{size[1]}, {kind}, {painted}, not seen in training"
    return [SceneSample(name, f"{i:04}", FIRST_SCENE + i, size, training.layered, bank) for i in range(count)], text


def _frame_set(found: _Found, crop: int, most: int) -> FrameSet:
    chosen: list[FrameSource] = []
    about = {}
    for name, (samples, text) in found.items():
        count = min(most, len(samples)) if most else len(samples)
        places = np.linspace(0, len(samples) - 1, count).round().astype(int)
        chosen += [samples[place] for place in places]
        frames = f"{count} frames" if count > 1 else "1 frame"
        about[name] = f"{frames}{f' of {len(samples)}' if count < len(samples) else ''}: {text}"
    return FrameSet(tuple(chosen), crop, about)
