"""Folders of frames with ground truth: `<root>/<dataset>/<sample>/{image.png, flow.flo, mask_01.png, …}`.

The truth of a sample is one of flow.flo, flow.png (KITTI), disp.pfm and disp.png (KITTI). mask_05.png marks the 5 % of
the pixels that are given; for a share without such a file, and for a pattern, a mask is drawn.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io import StrPath, read_flow, read_image, read_mask
from flowinpaint.masks.arrays import drawn_count
from flowinpaint.masks.cases import Case, Pattern, drawn_mask

MaskKind = Literal["fixed", "random"] | Pattern
"""Where a mask comes from: a file, a share of the pixels drawn at random, or a pattern."""

IMAGE = "image.png"
TRUTHS = {"flow.flo": 2, "flow.png": 2, "disp.pfm": 1, "disp.png": 1}
"""The files that may hold the truth, and their channels."""
_MASK = re.compile(r"mask_(\d+(?:\.\d+)?)\.png")
_LAYOUT = f"<root>/<dataset>/<sample>/{IMAGE} with {', '.join(TRUTHS)}"


@dataclass(frozen=True)
class Frame:
    """image (H, W, 3) or (H, W); truth (H, W, C), NaN where not valid (H, W); mask (H, W), the pixels given."""

    image: npt.NDArray[Any]
    truth: npt.NDArray[np.floating[Any]]
    valid: npt.NDArray[np.bool_]
    mask: npt.NDArray[np.bool_]


class FrameSource(Protocol):
    """One frame of a data set, read on demand; `Sample` is the one of a folder."""

    @property
    def dataset(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    def mask_kind(self, case: Case) -> MaskKind: ...  # noqa: D102
    def load(self, case: Case, seed: int = 0, crop: int = 0) -> Frame: ...  # noqa: D102
    def possible(self, cases: Sequence[Case]) -> list[Case]: ...  # noqa: D102
    def fingerprint(self, case: Case) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Sample:
    """One frame of a data set, read when asked for."""

    dataset: str
    name: str
    folder: Path
    truth: str
    masks: tuple[tuple[float, str], ...]
    """Percentages and files of the fixed masks."""

    def mask_file(self, case: Case) -> Path | None:
        """The fixed mask for a share of the pixels, or None; patterns have none."""
        if isinstance(case, str):
            return None
        files = (name for percent, name in self.masks if math.isclose(percent, 100 * case, rel_tol=1e-6))
        return next((self.folder / name for name in files), None)

    def mask_kind(self, case: Case) -> MaskKind:
        """Where the mask of a case comes from."""
        if isinstance(case, str):
            return case
        return "random" if self.mask_file(case) is None else "fixed"

    def load(self, case: Case, seed: int = 0, crop: int = 0) -> Frame:
        """The frame with the fixed mask of that density, cut to what is valid, or else one that the seed decides.

        A crop of n > 0 keeps the n×n pixels in the middle; a mask is then drawn inside of them.
        """
        image, (truth, valid) = read_image(self.folder / IMAGE), read_flow(self.folder / self.truth)
        check_size(self.folder / IMAGE, image, f"{self.truth} beside it", truth)
        channels = TRUTHS[self.truth]
        fault = f"it has {truth.shape[2]} channels; in a file of this name {channels} are taken"
        check_file(self.folder / self.truth, truth.shape[2] != channels and fault)
        file = self.mask_file(case)
        fixed = None if file is None else read_mask(file)
        if file is not None and fixed is not None:
            check_size(file, fixed, f"{self.truth} beside it", truth)
        middle = centre((truth.shape[0], truth.shape[1]), crop)
        image, truth, valid = image[middle], truth[middle], valid[middle]
        check_file(self.folder / self.truth, not valid.any() and "no pixel of it is valid; at least one is needed")
        mask = mask_of_case(self.dataset, self.name, case, seed, valid) if fixed is None else fixed[middle] & valid
        if not mask.any():
            raise FileFormatError(f"{file}: no pixel that it marks is valid in {self.truth}; at least one is needed")
        return Frame(image, truth, valid, mask)

    def possible(self, cases: Sequence[Case]) -> list[Case]:
        """Those of the cases for which the truth has pixels enough: a share of all is drawn among the valid ones.

        Of a truth that cannot be read or has no valid pixel all are possible: `load` says what is wrong.
        """
        if not any(self.mask_kind(case) == "random" for case in cases):
            return list(cases)
        try:
            _, valid = read_flow(self.folder / self.truth)
        except (FileFormatError, OSError):
            return list(cases)
        most = np.count_nonzero(valid) or valid.size
        return [c for c in cases if isinstance(c, str) or self.mask_file(c) or drawn_count(c, valid.size) <= most]

    def fingerprint(self, case: Case) -> str:
        """A hash of the contents of the files that `load` reads."""
        files = [self.folder / IMAGE, self.folder / self.truth, self.mask_file(case)]
        return file_hash(*(file for file in files if file is not None))


def find_samples(root: StrPath, datasets: Collection[str] | None = None) -> list[Sample]:
    """The samples below a root of data sets, or below a single data set, by name; of some data sets if so asked."""
    root = Path(root)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise InputError(f"root: {root} {found}; a folder is taken: {_LAYOUT}.")
    if (root / IMAGE).exists():
        raise InputError(f"root: {root} is a single sample; a folder is taken that holds samples: {_LAYOUT}.")
    children = _folders(root)
    if any((child / IMAGE).exists() for child in children):
        folders = {root.resolve().name: root}
    else:
        folders = {child.name: child for child in children}
    if unknown := sorted(set(datasets or ()) - folders.keys()):
        raise InputError(f"datasets: {unknown[0]!r} was given; {root} has {', '.join(folders) or 'none'}.")
    chosen = [name for name in folders if datasets is None or name in datasets]
    samples = [_sample(name, folder) for name in chosen for folder in _children(folders[name])]
    if not samples:
        raise InputError(f"root: {root} has no folders in it; expected is {_LAYOUT}.")
    return samples


def mask_of_case(dataset: str, name: str, case: Case, seed: int, valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The mask (H, W) that a frame without a mask file gets for a case: drawn among the valid pixels."""
    own_seed = stable_seed(dataset, name, case if isinstance(case, str) else f"{case:.6g}", str(seed))
    return drawn_mask(case, (valid.shape[0], valid.shape[1]), own_seed, valid)


def stable_seed(*parts: str) -> int:
    """A seed that depends on the parts and on nothing else, such as the process or the order of work."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def file_hash(*paths: Path) -> str:
    """A hash of the contents of files, each with its length so that their borders count."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        data = path.read_bytes()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _children(dataset: Path) -> list[Path]:
    if folders := _folders(dataset):
        return folders
    raise InputError(f"root: the data set {dataset} has no samples in it; expected is {_LAYOUT}.")


def _sample(dataset: str, folder: Path) -> Sample:
    names = sorted(path.name for path in folder.iterdir())
    truths = [name for name in TRUTHS if name in names]
    if IMAGE not in names or len(truths) != 1:
        found = ", ".join(names[:8]) or "nothing"
        raise FileFormatError(f"{folder}: found {found}; a sample has {IMAGE} and one of {', '.join(TRUTHS)}")
    masks = [(float(match[1]), name) for name in names if (match := _MASK.fullmatch(name))]
    return Sample(dataset, folder.name, folder, truths[0], tuple(masks))


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def centre(shape: tuple[int, int], crop: int) -> tuple[slice, slice]:
    """The rows and columns of the middle crop×crop pixels, or all where there are fewer or crop is 0."""
    rows, columns = (slice((n - crop) // 2, (n - crop) // 2 + crop) if 0 < crop < n else slice(None) for n in shape)
    return rows, columns


def check_size(path: Path, array: npt.NDArray[Any], name: str, other: npt.NDArray[Any]) -> None:
    """Raise FileFormatError unless two pictures, the second told by its name, are of one size."""
    if array.shape[:2] != other.shape[:2]:
        (height, width), (h, w) = array.shape[:2], other.shape[:2]
        raise FileFormatError(f"{path}: is {width}x{height} pixels (width x height), but {name} is {w}x{h}")
