"""The frames that a reproduction measures on: data sets as they are distributed, folders, and generated scenes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.data.bank import read_bank
from flowinpaint.data.datasets import Dataset, open_dataset
from flowinpaint.data.folder import Frame, MaskKind, Sample, file_hash, find_samples, stable_seed
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.errors import InputError, check_file
from flowinpaint.io import read_flow
from flowinpaint.masks.arrays import drawn_count
from flowinpaint.masks.cases import Case, drawn_mask
from flowinpaint.reproduction.scale import Scale, Size
from flowinpaint.training.config import GENERATED as LAYERED
from flowinpaint.training.config import DataConfig
from flowinpaint.viz.colours import as_rgb

GENERATED, GENERATED_WIDE, SCENES = "generated", "generated-wide", "scenes"
"""Data sets of generated scenes; the first is of the kind that networks are trained on, which the last is not."""
FIRST_SCENE = 2**61 + 2**20
"""The number of the first of them; training counts from 0 and does not get there."""
FLOW_CHANNELS = 2
_KEPT_SCENES, _KEPT_HASHES = 64, 2**14


@dataclass(frozen=True)
class LayoutSample:
    """A frame of a data set as it is distributed; its mask is always drawn."""

    dataset: str
    name: str
    entry: Sample

    def mask_kind(self, case: Case) -> MaskKind:
        """Where the mask of a case comes from."""
        return _drawn_kind(case)

    def load(self, case: Case, seed: int = 0, crop: int = 0) -> Frame:
        """The frame, or the crop×crop pixels in its middle, with a mask that the seed decides."""
        example = Dataset(self.dataset, [self.entry])[0]
        middle = centre((example.valid.shape[0], example.valid.shape[1]), crop)
        image, truth, valid = example.image[middle], example.truth[middle], example.valid[middle]
        check_file(self.entry.truth, not valid.any() and "no pixel of it is valid; at least one is needed")
        return Frame(image, truth, valid, _mask(self.dataset, self.name, case, seed, valid))

    def possible(self, cases: Sequence[Case]) -> list[Case]:
        """Those of the cases for which enough pixels were measured: a share of all is drawn among them."""
        _, valid = read_flow(self.entry.truth)
        most = np.count_nonzero(valid)
        return [case for case in cases if isinstance(case, str) or drawn_count(case, valid.size) <= most]

    def fingerprint(self, case: Case) -> str:
        """A hash of the contents of the files that `load` reads."""
        files = (self.entry.image, self.entry.truth, self.entry.invalid)
        return hash_of(*(file for file in files if file is not None))


@dataclass(frozen=True)
class SceneSample:
    """A scene of the generator, of a size and with a number, painted with the pictures of a bank or with drawn ones."""

    dataset: str
    number: int
    size: Size
    layered: LayeredConfig
    bank: str = ""

    @property
    def name(self) -> str:
        """Its place among the data set's."""
        return f"{self.number - FIRST_SCENE:04}"

    def mask_kind(self, case: Case) -> MaskKind:
        """Where the mask of a case comes from."""
        return _drawn_kind(case)

    def load(self, case: Case, seed: int = 0, crop: int = 0) -> Frame:
        """The scene, or the crop×crop pixels in its middle, with a mask that the seed decides."""
        image, truth = _scene(self)
        middle = centre(self.size, crop)
        image, truth = image[middle], truth[middle]
        valid = np.ones(truth.shape[:2], np.bool_)
        return Frame(image, truth, valid, _mask(self.dataset, self.name, case, seed, valid))

    def possible(self, cases: Sequence[Case]) -> list[Case]:
        """All: every pixel has a vector."""
        return list(cases)

    def fingerprint(self, case: Case) -> str:
        """What the scene is made from, not its pixels, whose last bits differ between processors."""
        pictures = hash_of(Path(self.bank)) if self.bank else ""
        return f"{stable_seed(str(self.number), str(self.size), str(asdict(self.layered)), pictures):016x}"


AnySample = Sample | LayoutSample | SceneSample


@dataclass(frozen=True)
class FrameSet:
    """Frames to measure on, and the side of the middle part that is used, 0 for all; about: data sets in words."""

    samples: tuple[AnySample, ...]
    crop: int
    about: dict[str, str]

    @property
    def datasets(self) -> list[str]:
        """The names of the data sets."""
        return list(dict.fromkeys(sample.dataset for sample in self.samples))

    def spread(self, most: int) -> FrameSet:
        """At most so many frames: as many of each data set, if there are enough, evenly spread over it."""
        names = self.datasets[:most]
        chosen: list[AnySample] = []
        about = {}
        for place, name in enumerate(names):
            own = [sample for sample in self.samples if sample.dataset == name]
            count = min(len(own), most // len(names) + (place < most % len(names)))
            some = [own[i * len(own) // count] for i in range(count)]
            chosen += some
            told = f"the frame{'s' if count > 1 else ''} {', '.join(sample.name for sample in some)}"
            about[name] = f"{told}; {self.about[name]}"
        return FrameSet(tuple(chosen), self.crop, about)


@dataclass(frozen=True)
class FrameChoice:
    """Where frames come from; without any folder they are generated.

    sintel, kitti, flyingthings: roots of data sets as they are distributed; root: data sets in folders (`data.folder`).
    scenes: how many generated ones to add, with the pictures of a bank if there is one. most: frames of a data set,
    evenly spread, 0 for all.
    """

    sintel: Path | None = None
    kitti: Path | None = None
    flyingthings: Path | None = None
    root: Path | None = None
    scenes: int = 0
    most: int = 0
    bank: str = ""

    @property
    def none_named(self) -> bool:
        """Whether no data set on disk was named."""
        return all(place is None for place in (self.sintel, self.kitti, self.flyingthings, self.root))


def square_frames(choice: FrameChoice, scale: Scale, training: DataConfig) -> FrameSet:
    """The frames of Table 1, Table 2 and the figures: all but KITTI's, cut to their middle.

    training: what networks are trained on; generated frames are of the same kind.
    """
    cut = f"the {scale.crop}×{scale.crop} pixels in their middle"
    found: dict[str, tuple[list[AnySample], str]] = {}
    if choice.flyingthings is not None:
        entries = _entries("--flyingthings", "flyingthings3d", choice.flyingthings, "val", "final")
        wanted = [entry for entry in entries if {"left", "into_future"} <= set(Path(entry.name).parts)]
        found["FlyingThings3D"] = (
            _layout_samples("FlyingThings3D", wanted),
            f"test split, final pass, left camera, flow into the future, {cut}",
        )
    if choice.sintel is not None:
        entries = _entries("--sintel", "sintel", choice.sintel, None, "final")
        found["Sintel"] = (_layout_samples("Sintel", entries), f"training frames, final pass, {cut}")
    for name, samples in _folders(choice.root).items():
        if not is_kitti(name):
            found[name] = (list(samples), f"a folder of frames, {cut}")
    count = choice.scenes or (scale.scenes if choice.none_named else 0)
    if count:
        name, size = GENERATED if training.source == LAYERED else SCENES, (scale.crop, scale.crop)
        found[name] = _generated(name, count, size, training, choice.bank)
    if not found:
        raise InputError(
            "--sintel, --flyingthings and --root: none was given that has frames other than KITTI's; one is taken, or "
            "--scenes for generated ones."
        )
    return _frame_set(found, scale.crop, choice.most)


def wide_frames(choice: FrameChoice, scale: Scale, training: DataConfig) -> FrameSet:
    """The frames of Table 3: KITTI's, whole, or where there are none, wide generated ones."""
    found: dict[str, tuple[list[AnySample], str]] = {}
    if choice.kitti is not None:
        entries = _entries("--kitti", "kitti2015", choice.kitti)
        found["KITTI2015"] = (_layout_samples("KITTI2015", entries), "training frames, whole")
    for name, samples in _folders(choice.root).items():
        if is_kitti(name):
            found[name] = (list(samples), "a folder of frames, whole")
    if not found:
        about = (scale.wide_scenes, scale.wide_size, training, choice.bank)
        found[GENERATED_WIDE] = _generated(GENERATED_WIDE, *about)
    return _frame_set(found, 0, choice.most)


def left_out_folders(choice: FrameChoice) -> list[str]:
    """The data sets below the root that hold no flow, and so have no place in a table."""
    if choice.root is None:
        return []
    return sorted({sample.dataset for sample in _found_below(choice.root) if sample.channels != FLOW_CHANNELS})


def is_kitti(dataset: str) -> bool:
    """Whether a data set is KITTI's, by its name."""
    return "kitti" in dataset.lower()


def centre(shape: Size, crop: int) -> tuple[slice, slice]:
    """The rows and columns of the middle crop×crop pixels, or all where there are fewer or crop is 0."""
    rows, columns = (slice((n - crop) // 2, (n - crop) // 2 + crop) if 0 < crop < n else slice(None) for n in shape)
    return rows, columns


def hash_of(*files: Path) -> str:
    """A hash of the contents of files, computed again only if one of them has changed."""
    abouts = [file.stat() for file in files]
    return _hash_at(files, tuple((about.st_mtime_ns, about.st_size, about.st_ino) for about in abouts))


@lru_cache(maxsize=_KEPT_HASHES)
def _hash_at(files: tuple[Path, ...], stamps: tuple[tuple[int, int, int], ...]) -> str:
    return file_hash(*files)


@lru_cache(maxsize=4)
def _generator(size: Size, layered: LayeredConfig, bank: str) -> LayeredFlow:
    return LayeredFlow(layered, size, read_bank(bank) if bank else None)


@lru_cache(maxsize=_KEPT_SCENES)
def _scene(sample: SceneSample) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    batch = _generator(sample.size, sample.layered, sample.bank).scenes(torch.tensor([sample.number]))
    image, flow = (planes[0].movedim(0, -1).numpy() for planes in (batch.image, batch.flow))
    return as_rgb(image), flow


def _mask(dataset: str, name: str, case: Case, seed: int, valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The mask of a case, drawn as for a frame in a folder."""
    own_seed = stable_seed(dataset, name, case if isinstance(case, str) else f"{case:.6g}", str(seed))
    return drawn_mask(case, (valid.shape[0], valid.shape[1]), own_seed, valid)


def _drawn_kind(case: Case) -> MaskKind:
    return case if isinstance(case, str) else "random"


def _entries(option: str, name: str, root: Path, split: str | None = None, render: str | None = None) -> list[Sample]:
    """The examples of a data set as it is distributed."""
    with _said_of(option):
        return list(open_dataset(name, root, split, render).samples)


def _found_below(root: Path) -> list[Sample]:
    """The samples in folders below a root."""
    with _said_of("--root"):
        return find_samples(root)


@contextmanager
def _said_of(option: str) -> Iterator[None]:
    """What is wrong with a root is said of the option that names it."""
    try:
        yield
    except InputError as error:
        raise type(error)(re.sub("^root:", f"{option}:", str(error))) from error


def _layout_samples(dataset: str, entries: Sequence[Sample]) -> list[AnySample]:
    return [LayoutSample(dataset, entry.name, entry) for entry in entries]


def _generated(name: str, count: int, size: Size, training: DataConfig, bank: str) -> tuple[list[AnySample], str]:
    """So many generated scenes, and what they are in words."""
    kind = "of the kind that networks are trained on" if training.source == LAYERED else "not of the training's kind"
    painted = f"with pictures of {Path(bank).name}" if bank else "with drawn pictures"
    text = f"generated scenes of {size[0]}×{size[1]}, {kind}, {painted}, not seen in training"
    return [SceneSample(name, FIRST_SCENE + i, size, training.layered, bank) for i in range(count)], text


def _folders(root: Path | None) -> dict[str, list[Sample]]:
    """The samples with flow below a root, by data set."""
    found: dict[str, list[Sample]] = {}
    for sample in [] if root is None else _found_below(root):
        if sample.channels == FLOW_CHANNELS:
            found.setdefault(sample.dataset, []).append(sample)
    return found


def _frame_set(found: dict[str, tuple[list[AnySample], str]], crop: int, most: int) -> FrameSet:
    chosen: list[AnySample] = []
    about = {}
    for name, (samples, text) in found.items():
        count = min(most, len(samples)) if most else len(samples)
        places = np.linspace(0, len(samples) - 1, count).round().astype(int)
        chosen += [samples[place] for place in places]
        frames = f"{count} frames" if count > 1 else "1 frame"
        about[name] = f"{frames}{f' of {len(samples)}' if count < len(samples) else ''}: {text}"
    return FrameSet(tuple(chosen), crop, about)
