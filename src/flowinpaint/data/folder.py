"""Frames with ground truth on disk, and folders of them: `<root>/<dataset>/<sample>/{image.png, flow.flo, …}`.

The truth in a folder is one of flow.flo, flow.png (KITTI), disp.pfm and disp.png (KITTI). mask_05.png is the mask for a
density of 5 %; for a density without such a file, and for a pattern, a random mask is drawn. image2.png is the next
image, from which vectors are computed. given.flo (or .png, .pfm, .npy) has vectors of another program.
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

from flowinpaint.data.inputs import DAMAGES, corrupted, matched
from flowinpaint.data.matchers import MATCHERS
from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io import StrPath, read_flow, read_image, read_mask
from flowinpaint.io.flow import in_every_channel
from flowinpaint.io.units import png_unit
from flowinpaint.masks.arrays import Mask, drawn_count
from flowinpaint.masks.cases import Case, Input, Pattern, drawn_mask, mask_case

MaskKind = Literal["fixed", "random"] | Pattern | Input
"""Source of a mask: a file, random pixels, a pattern, or an input."""
_Truth = npt.NDArray[np.floating[Any]]

IMAGE, SECOND = "image.png", "image2.png"
TRUTHS = {"flow.flo": 2, "flow.png": 2, "disp.pfm": 1, "disp.png": 1}
"""Names of truth files in a folder, and their channels."""
GIVEN = ("given.flo", "given.png", "given.pfm", "given.npy")
_MASK = re.compile(r"mask_(\d+(?:\.\d+)?)\.png")
_LAYOUT = f"<root>/<dataset>/<sample>/{IMAGE} with {', '.join(TRUTHS)}"


@dataclass(frozen=True)
class Frame:
    """image (H, W, 3) or (H, W); truth (H, W, C), NaN where not valid (H, W); mask (H, W), the known pixels.

    vectors: the vectors (H, W, C) of an imperfect input, None for the truth itself. They may be known where the truth
    is not valid. second: the next image, None if there is none.
    """

    image: npt.NDArray[Any]
    truth: _Truth
    valid: Mask
    mask: Mask
    name: str = ""
    vectors: _Truth | None = None
    second: npt.NDArray[Any] | None = None

    @property
    def given(self) -> _Truth:
        """The vectors (H, W, C) that a method receives, with the mask."""
        return self.truth if self.vectors is None else self.vectors


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
    second: Path | None = None
    """The next image."""
    given: Path | None = None
    """Vectors of another program."""

    def mask_file(self, case: Case) -> Path | None:
        """The fixed mask of a density or of a corrupted input, or None."""
        density = mask_case(case)
        if isinstance(density, str):
            return None
        return next((file for percent, file in self.masks if math.isclose(percent, 100 * density, rel_tol=1e-6)), None)

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
        truth, valid = read_flow(self.truth, png_unit(self.truth, "px/256"))  # KITTI's disparity
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
        """Read the frame with the vectors of a case.

        For a density they are the truth at the fixed mask, restricted to valid pixels, or at a drawn mask. A crop n > 0
        keeps the central n×n pixels; a mask is then drawn inside them.
        """
        frame = self.read()
        second = self._read_second(frame)
        vectors = self._read_vectors(case, frame, second)
        window = centre((frame.valid.shape[0], frame.valid.shape[1]), crop)
        truth, valid = frame.truth[window], frame.valid[window]
        check_file(self.truth, not valid.any() and "at least one pixel must be valid, got none")
        if vectors is not None:
            vectors = vectors[window]
            mask = in_every_channel(np.isfinite(vectors))
            check_file(self.image, not mask.any() and f"{case} must give at least one vector, got none")
        else:
            mask = self._read_mask(case, seed, frame, window)
            if case in DAMAGES:
                own_seed = stable_seed(self.dataset, self.name, str(case), str(seed))
                vectors = corrupted(DAMAGES[case], truth, mask, own_seed)
        return Frame(
            frame.image[window], truth, valid, mask, self.name, vectors, None if second is None else second[window]
        )

    def _read_second(self, frame: Frame) -> npt.NDArray[Any] | None:
        if self.second is None:
            return None
        second = read_image(self.second)
        check_size(self.second, second, self.truth, frame.truth)
        return second

    def _read_vectors(self, case: Case, frame: Frame, second: npt.NDArray[Any] | None) -> _Truth | None:
        """The vectors of an input that has its own pixels, None for other cases."""
        if case in MATCHERS:
            if second is None or self.channels != 2:
                raise InputError(f"{case} must have {SECOND} and a truth of two channels, got {self.image.parent}")
            return matched(case, frame.image, second)
        if case != "given":
            return None
        if self.given is None:
            raise InputError(f"{case} must have one of {', '.join(GIVEN)}, got {self.image.parent}")
        vectors, _ = read_flow(self.given, png_unit(self.given, "px/256"))
        check_size(self.given, vectors, self.truth, frame.truth)
        fault = f"must have {self.channels} channels, got {vectors.shape[2]}"
        check_file(self.given, vectors.shape[2] != self.channels and fault)
        return vectors

    def _read_mask(self, case: Case, seed: int, frame: Frame, window: tuple[slice, slice]) -> Mask:
        """The mask of a window: from a file, restricted to valid pixels, or drawn."""
        valid, file = frame.valid[window], self.mask_file(case)
        if file is None:
            return sample_mask(self.dataset, self.name, mask_case(case), seed, valid)
        fixed = read_mask(file)
        check_size(file, fixed, self.truth, frame.truth)
        mask: Mask = fixed[window] & valid
        check_file(file, not mask.any() and f"at least one known pixel must be valid in {self.truth}, got none")
        return mask

    def possible(self, cases: Sequence[Case]) -> list[Case]:
        """Drop inputs whose files are missing, and densities for which the truth has too few valid pixels.

        For a truth that is unreadable or has no valid pixel, all densities are possible, and `load` raises the error.
        """
        cases = [case for case in cases if self._has_files(case)]
        densities = {case: mask_case(case) for case in cases if self.mask_file(case) is None}
        drawn = {case: density for case, density in densities.items() if not isinstance(density, str)}
        if not drawn:
            return cases
        try:
            _, valid = self._read_truth()
        except (FileFormatError, OSError):
            return cases
        most = np.count_nonzero(valid) or valid.size
        return [case for case in cases if case not in drawn or drawn_count(drawn[case], valid.size) <= most]

    def _has_files(self, case: Case) -> bool:
        if case in MATCHERS:
            return self.second is not None and self.channels == 2
        return case != "given" or self.given is not None

    def fingerprint(self, case: Case) -> str:
        """A hash of the files that the image, the truth, the mask and the vectors of a case come from."""
        files = [self.image, self.truth, self.invalid, self.mask_file(case)]
        files += [self.second] if case in MATCHERS else [self.given] if case == "given" else []
        return file_hash(*(file for file in files if file is not None))


def find_samples(root: StrPath, datasets: Collection[str] | None = None) -> list[Sample]:
    """List the samples, sorted by name, below a folder of data sets or below a single data set.

    datasets: names of the data sets to list; all by default.
    """
    root = Path(root)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise InputError(f"root must be a folder {_LAYOUT}, but {root} {found}")
    if (root / IMAGE).exists():
        raise InputError(f"root must be a folder of samples {_LAYOUT}, got the single sample {root}")
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
        raise InputError(f"root must be a folder {_LAYOUT}, but {root} contains no folders")
    for name in chosen:
        if not below[name]:
            raise InputError(f"root must be a folder {_LAYOUT}, but the data set {folders[name]} contains no samples")
    return [_sample(name, folder) for name in chosen for folder in below[name]]


def _sample(dataset: str, folder: Path) -> Sample:
    names = sorted(path.name for path in folder.iterdir())
    truths = [name for name in TRUTHS if name in names]
    if IMAGE not in names or len(truths) != 1:
        found = ", ".join(names[:8]) or "nothing"
        raise FileFormatError(f"{folder}: a sample must have {IMAGE} and one of {', '.join(TRUTHS)}, got {found}")
    given = [name for name in GIVEN if name in names]
    if len(given) > 1:
        raise FileFormatError(f"{folder}: a sample must have at most one of {', '.join(GIVEN)}, got {', '.join(given)}")
    return Sample(
        dataset,
        folder.name,
        folder / IMAGE,
        folder / truths[0],
        TRUTHS[truths[0]],
        masks=tuple((float(match[1]), folder / name) for name in names if (match := _MASK.fullmatch(name))),
        second=folder / SECOND if SECOND in names else None,
        given=folder / given[0] if given else None,
    )


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
