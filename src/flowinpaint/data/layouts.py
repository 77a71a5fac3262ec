"""Where the files of each data set are, as its authors distribute it.

A layout lists the entries of a data set without reading them. What is missing is told in one sentence: what was found
and what is expected. An image may lack a truth only where the data set is distributed that way; a truth never lacks
its image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from flowinpaint.data.folder import IMAGE, TRUTHS, find_samples
from flowinpaint.errors import InputError, MissingFileError, check_file


class Entry(NamedTuple):
    """The files of one example, and the channels of its truth."""

    name: str
    image: Path
    truth: Path
    invalid: Path | None = None
    """A picture that is not zero where the truth is not to be trusted."""
    channels: int = 2


@dataclass(frozen=True)
class Layout:
    """How to list a data set below a root, by split and render; the first of each is the default."""

    entries: Callable[[Path, str, str], list[Entry]]
    splits: tuple[str, ...] = ()
    renders: tuple[str, ...] = ()


def _flyingthings3d(root: Path, split: str, render: str) -> list[Entry]:
    """The subset, or the full set, whose TEST is val; all cameras and directions, for no second frame is needed."""
    if (root / "optical_flow").is_dir():
        part = {"train": "TRAIN", "val": "TEST"}[split]
        images, flows = _folder(root, f"frames_{render}pass/{part}"), _folder(root, f"optical_flow/{part}")
        # A/0000/into_future/left/OpticalFlowIntoFuture_0006_L.pfm belongs to A/0000/left/0006.png.
        truths = _files(flows, "*/*/into_*/*/OpticalFlowInto*_[0-9]*_[LR].pfm")
        wanted = {
            truth: images / truth.parents[2].relative_to(flows) / truth.parent.name / f"{truth.stem.split('_')[1]}.png"
            for truth in truths
        }
        return _pair(flows, wanted, _files(images, "*/*/*/[0-9]*.png"))
    images, flows = (
        _folder(root, f"{split}/{kind}", f"FlyingThings3D_subset/{split}/{kind}")
        for kind in (f"image_{render}", "flow")
    )
    truths = _files(flows, "*/into_*/[0-9]*.flo")
    wanted = {truth: images / truth.parents[1].name / f"{truth.stem}.png" for truth in truths}
    return _pair(flows, wanted, _files(images, "*/[0-9]*.png"))


def _sintel(root: Path, _split: str, render: str) -> list[Entry]:
    images, flows = _folder(root, f"training/{render}"), _folder(root, "training/flow")
    frames, truths = _files(images, "*/frame_*.png"), _files(flows, "*/frame_*.flo")
    wanted = {truth: images / truth.parent.name / f"{truth.stem}.png" for truth in truths}
    # All frames but the last of a scene have a flow.
    entries = _pair(flows, wanted, frames, [a for a, b in pairwise(frames) if a.parent == b.parent])
    masks = root / "training" / "invalid"
    return [entry._replace(invalid=masks / f"{entry.name}.png") for entry in entries] if masks.is_dir() else entries


def _kitti(*cameras: str) -> Callable[[Path, str, str], list[Entry]]:
    """The layout of both years; of the folders of the left camera the first that is there serves."""

    def entries(root: Path, split: str, _render: str) -> list[Entry]:
        flows = _folder(root, f"training/flow_{split}")
        images = _folder(root, *(f"training/{camera}" for camera in cameras))
        truths, frames = _files(flows, "[0-9]*_10.png"), _files(images, "[0-9]*_10.png")
        return _pair(flows, {truth: images / truth.name for truth in truths}, frames, frames)

    return entries


def _middlebury(root: Path, _split: str, _render: str) -> list[Entry]:
    images, flows = _folder(root, "other-data"), _folder(root, "other-gt-flow")
    wanted = {truth: images / truth.parent.name / "frame10.png" for truth in _files(flows, "*/flow10.flo")}
    return _pair(flows, wanted, _files(images, "*/frame10.png"))


def _flyingchairs(root: Path, split: str, _render: str) -> list[Entry]:
    data = _folder(root, "data", "FlyingChairs_release/data")
    truths, frames = _files(data, "[0-9]*_flow.flo"), _files(data, "[0-9]*_img1.ppm")
    wanted = {truth: truth.with_name(truth.name.replace("_flow.flo", "_img1.ppm")) for truth in truths}
    entries = _pair(data, wanted, frames, frames)
    file = data.with_name("FlyingChairs_train_val.txt")
    if not file.is_file():
        raise MissingFileError(f"root: {data.parent} has {_names(data.parent)}; expected is also {file}.")
    marks = file.read_text(encoding="utf-8", errors="replace").split()
    count_fault = f"it has {len(marks)} marks, but there are {len(entries)} flows in {data}"
    check_file(file, len(marks) != len(entries) and count_fault)
    unknown = [mark for mark in marks if mark not in ("1", "2")]
    check_file(file, bool(unknown) and f"it has the mark {unknown[:1]}; 1 (training) and 2 (validation) are taken")
    chosen = {"train": "1", "val": "2"}[split]
    return [entry for entry, mark in zip(entries, marks, strict=True) if mark == chosen]


def _hd1k(root: Path, _split: str, _render: str) -> list[Entry]:
    images = _folder(root, "hd1k_input/image_2", "hd1k_full_package/hd1k_input/image_2")
    flows = _folder(root, "hd1k_flow_gt/flow_occ", "hd1k_full_package/hd1k_flow_gt/flow_occ")
    wanted = {truth: images / truth.name for truth in _files(flows, "[0-9]*_[0-9]*.png")}
    return _pair(flows, wanted, _files(images, "[0-9]*_[0-9]*.png"))


def _samples(root: Path, _split: str, _render: str) -> list[Entry]:
    return [
        Entry(f"{s.dataset}/{s.name}", s.folder / IMAGE, s.folder / s.truth, channels=TRUTHS[s.truth])
        for s in find_samples(root)
    ]


LAYOUTS = {
    "flyingthings3d": Layout(_flyingthings3d, ("train", "val"), ("final", "clean")),
    "sintel": Layout(_sintel, ("train",), ("final", "clean")),
    "kitti2012": Layout(_kitti("colored_0", "image_0"), ("occ", "noc")),
    "kitti2015": Layout(_kitti("image_2"), ("occ", "noc")),
    "middlebury": Layout(_middlebury, ("train",)),
    "flyingchairs": Layout(_flyingchairs, ("train", "val")),
    "hd1k": Layout(_hd1k, ("train",)),
    "folder": Layout(_samples),
}


def _folder(root: Path, *choices: str) -> Path:
    """The first of some folders below the root that is there."""
    for choice in choices:
        if (root / choice).is_dir():
            return root / choice
    expected = root / choices[0]
    there = next(path for path in expected.parents if path.exists())
    found = f"has {_names(there)}" if there.is_dir() else "is a file"
    if not root.exists():
        there, found = root, "does not exist"
    raise InputError(f"root: {there} {found}; expected is the folder {expected}.")


def _files(folder: Path, pattern: str) -> list[Path]:
    """The files of a pattern in a folder, at least one, in order."""
    if files := sorted(folder.glob(pattern)):
        return files
    raise InputError(f"root: {folder} has {_names(folder)}; expected are files {pattern} in it.")


def _pair(flows: Path, wanted: dict[Path, Path], images: list[Path], required: Iterable[Path] = ()) -> list[Entry]:
    """Entries, named by their place among the flows, from the image that each truth wants.

    images: those that are there; required: those of them that must have a truth.
    """
    there, used = set(images), set(wanted.values())
    if lacking := [truth for truth, image in wanted.items() if image not in there]:
        raise MissingFileError(
            f"root: no image was found for {len(lacking)} of {len(wanted)} flows, such as {lacking[0]}; "
            f"expected is {wanted[lacking[0]]}."
        )
    if idle := [image for image in required if image not in used]:
        raise MissingFileError(
            f"root: no flow was found in {flows} for {len(idle)} of {len(images)} images, such as {idle[0]}; "
            "expected is one for each."
        )
    return [Entry(truth.relative_to(flows).with_suffix("").as_posix(), image, truth) for truth, image in wanted.items()]


def _names(folder: Path, most: int = 5) -> str:
    """The first few names in a folder."""
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:most]) + (", …" if len(names) > most else "") or "nothing in it"
