"""Data sets with ground truth on disk, each in the layout in which its authors distribute it.

A layout lists the samples of a data set without reading them. A truth without its image is an error; so is an image
without truth, unless the data set is distributed that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import overload

import numpy as np

from flowinpaint.data.folder import Frame, Sample, find_samples
from flowinpaint.errors import InputError, MissingFileError, check_file
from flowinpaint.io import StrPath
from flowinpaint.io.text import read_text

_LARGEST_MARKS = 2**20
_List = Callable[[Path, str, str], list[Sample]]
"""List the samples of a data set by root, split and render."""


class Dataset(Sequence[Frame]):
    """Frames that are read on access, with image (H, W, 3) and all valid pixels known; a slice is a data set."""

    def __init__(self, name: str, samples: Sequence[Sample]) -> None:
        self.name = name
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Frame | Dataset:
        if isinstance(index, slice):
            return Dataset(self.name, self.samples[index])
        frame = self.samples[index].read()
        return replace(frame, image=np.dstack([frame.image] * 3)) if frame.image.ndim == 2 else frame

    @property
    def channels(self) -> int:
        """The number of channels of all truths: 2 for flow, 1 for disparity."""
        first = {sample.channels: sample.name for sample in reversed(self.samples)}
        if len(first) != 1:
            found = " and ".join(f"{channels} channels ({name})" for channels, name in sorted(first.items()))
            raise InputError(f"dataset: all truths in {self.name} must be of one kind, got {found or 'no sample'}")
        return next(iter(first))


def open_dataset(name: str, root: StrPath, split: str | None = None, render: str | None = None) -> Dataset:
    """List a data set: flyingthings3d, sintel, kitti2012, kitti2015, middlebury, flyingchairs, hd1k or folder.

    split and render (the pass, "final" or "clean") select a part; the default is the first in docs/datasets.md.
    """
    if name not in LAYOUTS:
        raise InputError(f"name must be one of {', '.join(LAYOUTS)}, got {name!r}")
    list_samples, splits, renders = LAYOUTS[name]
    split = _choice("split", split, splits, name)
    render = _choice("render", render, renders, name)
    samples = [replace(sample, dataset=name) for sample in list_samples(Path(root), split, render)]
    if not samples:
        raise InputError(f"split must have samples in {root}, got none in {split!r}")
    return Dataset(name, samples)


def _choice(argument: str, value: str | None, choices: tuple[str, ...], name: str) -> str:
    if value is not None and value not in choices:
        raise InputError(f"{argument} of {name} must be {' or '.join(choices) or 'omitted'}, got {value!r}")
    return value or next(iter(choices), "")


def _flyingthings3d(root: Path, split: str, render: str) -> list[Sample]:
    """The subset or the full set (TEST is val), with all cameras and both directions."""
    if (root / "optical_flow").is_dir():
        part = {"train": "TRAIN", "val": "TEST"}[split]
        images, flows = _folder(root, f"frames_{render}pass/{part}"), _folder(root, f"optical_flow/{part}")
        # A/0000/into_future/left/OpticalFlowIntoFuture_0006_L.pfm belongs to A/0000/left/0006.png.
        truths = _files(flows, "*/*/into_*/*/OpticalFlowInto*_[0-9]*_[LR].pfm")
        image_of = {
            truth: images / truth.parents[2].relative_to(flows) / truth.parent.name / f"{truth.stem.split('_')[1]}.png"
            for truth in truths
        }
        return _pair(flows, image_of, _files(images, "*/*/*/[0-9]*.png"))
    folders = f"{split}/image_{render}", f"{split}/flow"
    images, flows = (_folder(root, folder, f"FlyingThings3D_subset/{folder}") for folder in folders)
    truths = _files(flows, "*/into_*/[0-9]*.flo")
    image_of = {truth: images / truth.parents[1].name / f"{truth.stem}.png" for truth in truths}
    return _pair(flows, image_of, _files(images, "*/[0-9]*.png"))


def _sintel(root: Path, _split: str, render: str) -> list[Sample]:
    images, flows = _folder(root, f"training/{render}"), _folder(root, "training/flow")
    frames, truths = _files(images, "*/frame_*.png"), _files(flows, "*/frame_*.flo")
    image_of = {truth: images / truth.parent.name / f"{truth.stem}.png" for truth in truths}
    # The last frame of each scene has no flow.
    samples = _pair(flows, image_of, frames, [a for a, b in pairwise(frames) if a.parent == b.parent])
    masks = root / "training" / "invalid"
    return [replace(s, invalid=masks / f"{s.name}.png") for s in samples] if masks.is_dir() else samples


def _kitti(*cameras: str) -> _List:
    """The layout of both years; the first existing folder among those of the left camera is used."""

    def samples(root: Path, split: str, _render: str) -> list[Sample]:
        flows = _folder(root, f"training/flow_{split}")
        images = _folder(root, *(f"training/{camera}" for camera in cameras))
        truths, frames = _files(flows, "[0-9]*_10.png"), _files(images, "[0-9]*_10.png")
        return _pair(flows, {truth: images / truth.name for truth in truths}, frames, frames)

    return samples


def _middlebury(root: Path, _split: str, _render: str) -> list[Sample]:
    images, flows = _folder(root, "other-data"), _folder(root, "other-gt-flow")
    image_of = {truth: images / truth.parent.name / "frame10.png" for truth in _files(flows, "*/flow10.flo")}
    return _pair(flows, image_of, _files(images, "*/frame10.png"))


def _flyingchairs(root: Path, split: str, _render: str) -> list[Sample]:
    data = _folder(root, "data", "FlyingChairs_release/data")
    truths, frames = _files(data, "[0-9]*_flow.flo"), _files(data, "[0-9]*_img1.ppm")
    image_of = {truth: truth.with_name(truth.name.replace("_flow.flo", "_img1.ppm")) for truth in truths}
    samples = _pair(data, image_of, frames, frames)
    file = data.with_name("FlyingChairs_train_val.txt")
    if not file.is_file():
        raise MissingFileError(f"root must contain the file {file}, got {_names(data.parent)}")
    marks = read_text(file, _LARGEST_MARKS).split()
    count_fault = f"must have a mark for each of the {len(samples)} flows in {data}, got {len(marks)}"
    check_file(file, len(marks) != len(samples) and count_fault)
    unknown = [mark for mark in marks if mark not in ("1", "2")]
    check_file(file, bool(unknown) and f"marks must be 1 (training) or 2 (validation), got {unknown[:1]}")
    chosen = {"train": "1", "val": "2"}[split]
    return [sample for sample, mark in zip(samples, marks, strict=True) if mark == chosen]


def _hd1k(root: Path, _split: str, _render: str) -> list[Sample]:
    images = _folder(root, "hd1k_input/image_2", "hd1k_full_package/hd1k_input/image_2")
    flows = _folder(root, "hd1k_flow_gt/flow_occ", "hd1k_full_package/hd1k_flow_gt/flow_occ")
    image_of = {truth: images / truth.name for truth in _files(flows, "[0-9]*_[0-9]*.png")}
    return _pair(flows, image_of, _files(images, "[0-9]*_[0-9]*.png"))


def _own_folder(root: Path, _split: str, _render: str) -> list[Sample]:
    return [replace(sample, name=f"{sample.dataset}/{sample.name}") for sample in find_samples(root)]


LAYOUTS: dict[str, tuple[_List, tuple[str, ...], tuple[str, ...]]] = {
    "flyingthings3d": (_flyingthings3d, ("train", "val"), ("final", "clean")),
    "sintel": (_sintel, ("train",), ("final", "clean")),
    "kitti2012": (_kitti("colored_0", "image_0"), ("occ", "noc"), ()),
    "kitti2015": (_kitti("image_2"), ("occ", "noc"), ()),
    "middlebury": (_middlebury, ("train",), ()),
    "flyingchairs": (_flyingchairs, ("train", "val"), ()),
    "hd1k": (_hd1k, ("train",), ()),
    "folder": (_own_folder, (), ()),
}
"""For each data set: the function that lists it, its splits and its renders; the first of each is the default."""


def _folder(root: Path, *choices: str) -> Path:
    """The first of several folders below the root that exists."""
    for choice in choices:
        if (root / choice).is_dir():
            return root / choice
    expected = root / choices[0]
    nearest = next(path for path in expected.parents if path.exists())
    found = f"contains {_names(nearest)}" if nearest.is_dir() else "is a file"
    if not root.exists():
        nearest, found = root, "does not exist"
    raise InputError(f"root must contain the folder {expected}, but {nearest} {found}")


def _files(folder: Path, pattern: str) -> list[Path]:
    """The files in a folder that match a pattern, sorted; at least one."""
    if files := sorted(folder.glob(pattern)):
        return files
    raise InputError(f"root must contain files {pattern} in {folder}, got {_names(folder)}")


def _pair(flows: Path, image_of: dict[Path, Path], images: list[Path], required: Iterable[Path] = ()) -> list[Sample]:
    """Samples from truths and the images they belong to, named by their path below the folder of flows.

    images: all existing images; required: those that must have a truth.
    """
    existing, used = set(images), set(image_of.values())
    if lacking := [truth for truth, image in image_of.items() if image not in existing]:
        raise MissingFileError(
            f"root must contain an image for every flow, such as {image_of[lacking[0]]} for {lacking[0]}, got none for "
            f"{len(lacking)} of {len(image_of)}"
        )
    if unused := [image for image in required if image not in used]:
        raise MissingFileError(
            f"root must contain a flow in {flows} for every image, got none for {len(unused)} of {len(images)}: "
            f"{unused[0]}, …"
        )
    return [
        Sample("", truth.relative_to(flows).with_suffix("").as_posix(), image, truth)
        for truth, image in image_of.items()
    ]


def _names(folder: Path, most: int = 5) -> str:
    """The first names in a folder."""
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:most]) + (", …" if len(names) > most else "") or "nothing"
