"""Frames with ground truth on disk, and folders of them: `<root>/<dataset>/<sample>/{image.png, flow.flo, …}`.

The truth in a folder is one of flow.flo, flow.png (KITTI), disp.pfm and disp.png (KITTI). mask_05.png is the mask for a
density of 5 %; for a density without such a file, and for a pattern, a random mask is drawn.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io import StrPath, read_flow, read_image, read_mask
from flowinpaint.masks.arrays import Mask, drawn_count
from flowinpaint.masks.cases import Case, Pattern, drawn_mask

MaskKind = Literal["fixed", "random"] | Pattern
"""Source of a mask: a file, random pixels, or a pattern."""
_Truth = npt.NDArray[np.floating[Any]]

IMAGE = "image.png"
TRUTHS = {"flow.flo": 2, "flow.png": 2, "disp.pfm": 1, "disp.png": 1}
"""Names of truth files in a folder, and their channels."""
_MASK = re.compile(r"mask_(\d+(?:\.\d+)?)\.png")
_LAYOUT = f"<root>/<dataset>/<sample>/{IMAGE} with {', '.join(TRUTHS)}"


@dataclass(frozen=True)
class Frame:
    """image (H, W, 3) or (H, W); truth (H, W, C), NaN where not valid (H, W); mask (H, W), the known pixels."""

    image: npt.NDArray[Any]
    truth: _Truth
    valid: Mask
    mask: Mask
    name: str = ""


class FrameSource(Protocol):
    """One frame of a data set, read on demand; `Sample` reads it from a folder."""

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
    """The files of one frame."""

    dataset: str
    name: str
    image: Path
    truth: Path
    channels: int = 2
    invalid: Path | None = None
    """An image that is not zero where the truth is not valid."""
    masks: tuple[tuple[float, Path], ...] = ()
    """Fixed masks by percentage of known pixels."""

    def mask_file(self, case: Case) -> Path | None:
        """The fixed mask of a density, or None; patterns have none."""
        if isinstance(case, str):
            return None
        return next((file for percent, file in self.masks if math.isclose(percent, 100 * case, rel_tol=1e-6)), None)

    def mask_kind(self, case: Case) -> MaskKind:
        """The source of the mask of a case."""
        if isinstance(case, str):
            return case
        return "random" if self.mask_file(case) is None else "fixed"

    def read(self) -> Frame:
        """Read the whole frame, with all valid pixels known."""
        image, (truth, valid) = read_image(self.image), self._read_truth()
        check_size(self.image, image, self.truth, truth)
        return Frame(image, truth, valid, valid, self.name)

    def _read_truth(self) -> tuple[_Truth, Mask]:
        truth, valid = read_flow(self.truth)
        # FlyingThings3D's .pfm files have a meaningless third channel.
        if self.truth.suffix == ".pfm" and self.channels == 2:
            truth = truth[..., :2]
        fault = f"must have {self.channels} channels, got {truth.shape[2]}"
        check_file(self.truth, truth.shape[2] != self.channels and fault)
        if self.invalid is not None:
            invalid = read_mask(self.invalid)
            check_size(self.invalid, invalid, self.truth, truth)
            valid = valid & ~invalid
            truth[~valid] = np.nan
        return truth, valid

    def load(self, case: Case, seed: int = 0, crop: int = 0) -> Frame:
        """Read the frame with the fixed mask of that density, restricted to valid pixels, or with a drawn mask.

        A crop n > 0 keeps the central n×n pixels; a mask is then drawn inside them.
        """
        frame, file = self.read(), self.mask_file(case)
        window = centre((frame.valid.shape[0], frame.valid.shape[1]), crop)
        valid = frame.valid[window]
        check_file(self.truth, not valid.any() and "at least one pixel must be valid, got none")
        if file is None:
            mask = sample_mask(self.dataset, self.name, case, seed, valid)
        else:
            fixed = read_mask(file)
            check_size(file, fixed, self.truth, frame.truth)
            mask = fixed[window] & valid
            check_file(file, not mask.any() and f"at least one known pixel must be valid in {self.truth}, got none")
        return Frame(frame.image[window], frame.truth[window], valid, mask, self.name)

    def possible(self, cases: Sequence[Case]) -> list[Case]:
        """Drop the densities (fractions of all pixels) for which the truth has too few valid pixels.

        For a truth that is unreadable or has no valid pixel, all cases are possible, and `load` raises the error.
        """
        if not any(self.mask_kind(case) == "random" for case in cases):
            return list(cases)
        try:
            _, valid = self._read_truth()
        except (FileFormatError, OSError):
            return list(cases)
        most = np.count_nonzero(valid) or valid.size
        return [c for c in cases if isinstance(c, str) or self.mask_file(c) or drawn_count(c, valid.size) <= most]

    def fingerprint(self, case: Case) -> str:
        """A hash of the files that `load` reads."""
        files = (self.image, self.truth, self.invalid, self.mask_file(case))
        return file_hash(*(file for file in files if file is not None))


def find_samples(root: StrPath, datasets: Collection[str] | None = None) -> list[Sample]:
    """List the samples, sorted by name, below a folder of data sets or below a single data set.

    datasets: names of the data sets to list; all by default.
    """
    root = Path(root)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise InputError(f"root: {root} {found}, expected a folder {_LAYOUT}")
    if (root / IMAGE).exists():
        raise InputError(f"root: {root} is a single sample, expected a folder of samples {_LAYOUT}")
    children = _folders(root)
    if any((child / IMAGE).exists() for child in children):
        folders = {root.resolve().name: root}
    else:
        folders = {child.name: child for child in children}
    if unknown := sorted(set(datasets or ()) - folders.keys()):
        raise InputError(f"datasets must be among {', '.join(folders) or 'none'} in {root}, got {unknown[0]!r}")
    chosen = [name for name in folders if datasets is None or name in datasets]
    below = {name: _folders(folders[name]) for name in chosen}
    if not below:
        raise InputError(f"root: {root} contains no folders, expected {_LAYOUT}")
    for name in chosen:
        if not below[name]:
            raise InputError(f"root: the data set {folders[name]} contains no samples, expected {_LAYOUT}")
    return [_sample(name, folder) for name in chosen for folder in below[name]]


def _sample(dataset: str, folder: Path) -> Sample:
    names = sorted(path.name for path in folder.iterdir())
    truths = [name for name in TRUTHS if name in names]
    if IMAGE not in names or len(truths) != 1:
        found = ", ".join(names[:8]) or "nothing"
        raise FileFormatError(f"{folder}: a sample must have {IMAGE} and one of {', '.join(TRUTHS)}, got {found}")
    masks = tuple((float(match[1]), folder / name) for name in names if (match := _MASK.fullmatch(name)))
    return Sample(dataset, folder.name, folder / IMAGE, folder / truths[0], TRUTHS[truths[0]], masks=masks)


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def sample_mask(dataset: str, name: str, case: Case, seed: int, valid: Mask) -> Mask:
    """Draw the mask of a sample: the names, the case, the seed and the valid pixels (H, W) determine it."""
    own_seed = stable_seed(dataset, name, case if isinstance(case, str) else f"{case:.6g}", str(seed))
    return drawn_mask(case, (valid.shape[0], valid.shape[1]), own_seed, valid)


def stable_seed(*parts: str) -> int:
    """A seed that depends only on the parts, not on the process or the order of work."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def centre(shape: tuple[int, int], crop: int) -> tuple[slice, slice]:
    """The rows and columns of the central crop×crop pixels; all of them if there are fewer or crop is 0."""
    rows, columns = (slice((n - crop) // 2, (n - crop) // 2 + crop) if 0 < crop < n else slice(None) for n in shape)
    return rows, columns


def file_hash(*paths: Path) -> str:
    """A hash of the contents of files, computed again only if a file has changed."""
    stats = [path.stat() for path in paths]
    return _file_hash(paths, tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats))


@lru_cache(maxsize=2**14)
def _file_hash(paths: tuple[Path, ...], _stamps: tuple[tuple[int, int, int], ...]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        data = path.read_bytes()
        digest.update(len(data).to_bytes(8, "big") + data)  # the length separates the files
    return digest.hexdigest()


def check_size(path: Path, array: npt.NDArray[Any], other_path: Path, other: npt.NDArray[Any]) -> None:
    """Raise FileFormatError unless the arrays of two files have the same height and width."""
    if array.shape[:2] != other.shape[:2]:
        (height, width), (h, w) = array.shape[:2], other.shape[:2]
        raise FileFormatError(f"{path}: must be {w}x{h} pixels as {other_path}, got {width}x{height}")
