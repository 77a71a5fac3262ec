"""Data sets with ground truth on disk, each in the layout in which it is distributed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from flowinpaint.data.folder import check_size
from flowinpaint.data.layouts import LAYOUTS, Entry
from flowinpaint.errors import InputError, check_file
from flowinpaint.io import StrPath, read_flow, read_image, read_mask


class Example(NamedTuple):
    """image (H, W, 3) uint8 or float32 in [0, 1]; truth (H, W, C), NaN where not valid (H, W)."""

    name: str
    image: npt.NDArray[Any]
    truth: npt.NDArray[np.floating[Any]]
    valid: npt.NDArray[np.bool_]


class Dataset(Sequence[Example]):
    """Examples that are read when asked for; a slice is a data set again."""

    def __init__(self, name: str, entries: Sequence[Entry]) -> None:
        self.name = name
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Example | Dataset:
        if isinstance(index, slice):
            return Dataset(self.name, self.entries[index])
        return _read(self.entries[index])

    @property
    def channels(self) -> int:
        """The channels that all truths have in common: 2 for flow, 1 for disparity."""
        first: dict[int, str] = {}
        for entry in self.entries:
            first.setdefault(entry.channels, entry.name)
        if len(first) != 1:
            found = " and ".join(f"{channels} channels ({name})" for channels, name in sorted(first.items()))
            raise InputError(f"dataset: {self.name} has truths of {found or 'no example'}; one kind is taken.")
        return next(iter(first))


def open_dataset(name: str, root: StrPath, split: str | None = None, render: str | None = None) -> Dataset:
    """List a data set: flyingthings3d, sintel, kitti2012, kitti2015, middlebury, flyingchairs, hd1k or folder.

    split and render (the pass, "final" or "clean") say which part; None is the first that docs/datasets.md names.
    """
    layout = LAYOUTS.get(name)
    if layout is None:
        raise InputError(f"name: {name!r} was given; one of {', '.join(LAYOUTS)} is taken.")
    split = _choice("split", split, layout.splits, name)
    render = _choice("render", render, layout.renders, name)
    entries = layout.entries(Path(root), split, render)
    if not entries:
        raise InputError(f"split: {split!r} was given, and no example of {root} is in it; another split is taken.")
    return Dataset(name, entries)


def _choice(argument: str, given: str | None, choices: tuple[str, ...], name: str) -> str:
    if given is not None and given not in choices:
        raise InputError(f"{argument}: {given!r} was given; {name} has {' and '.join(choices) or 'none to choose'}.")
    return given or next(iter(choices), "")


def _read(entry: Entry) -> Example:
    image: npt.NDArray[Any] = read_image(entry.image)
    truth, valid = read_flow(entry.truth)
    # FlyingThings3D's .pfm files have a third channel without a meaning.
    if entry.truth.suffix == ".pfm" and entry.channels == 2:
        truth = truth[..., :2]
    fault = f"it has {truth.shape[2]} channels; {entry.channels} are taken here"
    check_file(entry.truth, truth.shape[2] != entry.channels and fault)
    check_size(entry.image, image, str(entry.truth), truth)
    if entry.invalid is not None:
        invalid = read_mask(entry.invalid)
        check_size(entry.invalid, invalid, str(entry.truth), truth)
        valid = valid & ~invalid
        truth[~valid] = np.nan
    if image.ndim == 2:
        image = np.dstack([image] * 3)
    return Example(entry.name, image, truth, valid)
