"""`SparseInput`: the given vectors of `fill`, a field of pixels or a list of points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from flowinpaint.api import inpaint
from flowinpaint.cli.console import say
from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.io import FLOW_SUFFIXES, Unit, clip_to_format, read_flow, read_mask
from flowinpaint.io.files import existing_file
from flowinpaint.io.matches import MATCH_SUFFIXES, Matches, read_matches
from flowinpaint.io.tracks import holds_tracks, read_tracks
from flowinpaint.points.fill import inpaint_points
from flowinpaint.result import Result

Array = npt.NDArray[Any]
Kind = Literal["field", "matches", "tracks"]


@dataclass
class SparseInput:
    """A sparse field (H, W, C) with its known pixels (H, W), or points with values.

    Without points, `field` and `known` are arrays from the start; with points they are those of the filled `Result`.
    """

    path: Path
    field: Array | None = None
    known: npt.NDArray[np.bool_] | None = None
    matches: Matches | None = None

    @property
    def channels(self) -> int:
        """C, the number of values of a vector."""
        values = self.field if self.matches is None else self.matches.values
        assert values is not None
        return int(values.shape[-1])

    def check_image(self, path: Path, image: Array) -> None:
        """Raise InputError unless the image has the size of the field; a list of points fits any."""
        if self.field is not None:
            check_size(path, image.shape, self.path, self.field.shape)

    def apply_mask(self, mask: Path | None, invert: bool) -> None:
        """Restrict the known pixels to those of a mask file."""
        if mask is not None and self.matches is not None:
            raise InputError(f"--mask needs a field, got the list of points {self.path}")
        if self.field is None or self.known is None:
            return
        if mask is not None:
            chosen = read_mask(mask) ^ invert
            check_size(mask, chosen.shape, self.path, self.field.shape)
            if dropped := int((chosen & ~self.known).sum()):
                say("Note:", "yellow", f"{dropped} pixels of {mask} are unknown in {self.path} and stay unknown.")
            self.known = chosen & self.known
        if not self.known.any():
            raise InputError(f"{mask or self.path}: at least one pixel must be known, got none")

    def keep(self, region: npt.NDArray[np.bool_]) -> None:
        """Restrict the known pixels, or the points, to a region (H, W); InputError if none is left."""
        if self.matches is not None:
            self.matches = _inside(self.matches, region)
        elif self.known is not None:
            self.known = self.known & region
            if not self.known.any():
                raise InputError(f"{self.path}: at least one vector must be known outside --remove, got none")

    def check_storable(self, out: Path, unit: Unit | None) -> None:
        """Raise InputError if the format of `out`, with the unit of a PNG, cannot hold the known vectors of a field."""
        if self.field is None or self.known is None:
            return
        if (clip_to_format(out, self.field, unit)[self.known] != self.field[self.known]).any():
            raise InputError(f"{out}: a 16-bit PNG cannot hold all vectors of {self.path}; use .flo, .pfm or .npy")

    def density(self, image: Array) -> float:
        """The share of the pixels that are known, approximately for points."""
        if self.matches is not None:
            return min(1.0, len(self.matches.points) / float(np.prod(image.shape[:2])))
        assert self.known is not None
        return float(self.known.mean())

    def fill(self, image: Array, method: str, device: str, **keywords: Any) -> Result:
        """The filled field; keywords are those of `inpaint`."""
        if self.matches is None:
            assert self.field is not None
            return inpaint(image, self.field, self.known, method, device, **keywords)
        points, values, noise, confidence = self.matches
        for name, column in (("noise", noise), ("confidence", confidence)):
            keywords[name] = _one(name, column, keywords.get(name))
        result = inpaint_points(image, points, values, method, device, **keywords)
        assert result.arrays is not None
        self.field = result.arrays.given
        self.known = np.asarray(np.isfinite(self.field).all(-1))
        return result

    def given(self, result: Result) -> str:
        """The number of known vectors or points, as the first part of a sentence."""
        assert self.known is not None
        if result.points is None:
            return f"from {self.known.sum()} of {self.known.size} vectors"
        used, count = int(result.points.used.sum()), len(result.points.used)
        skipped = f", {count - used} were skipped" if used < count else ""
        return f"{used} of {count} points were used{skipped}"

    def probabilities(self, result: Result) -> Array | None:
        """The probabilities (N,) that the given vectors or points are correct."""
        if result.points is not None:
            return None if result.points.inliers is None else result.points.inliers[result.points.used]
        return None if result.inliers is None else result.inliers[self.known]


def _inside(matches: Matches, region: npt.NDArray[np.bool_]) -> Matches:
    """The points whose pixel is in a region (H, W), or outside of it, which `inpaint_points` reports."""
    columns, rows = np.floor(matches.points + 0.5).astype(np.int64).T
    H, W = region.shape
    kept = (rows < 0) | (rows >= H) | (columns < 0) | (columns >= W)
    kept[~kept] = region[rows[~kept], columns[~kept]]
    return Matches(*(None if x is None else x[kept] for x in matches))  # type: ignore[arg-type]


def kind_of(path: Path) -> Kind:
    """The kind of a sparse input, by its suffix; of .npz files by their content."""
    suffix = path.suffix.lower()
    if suffix in MATCH_SUFFIXES:
        return "matches"
    return "tracks" if suffix == ".npz" and path.is_file() and holds_tracks(path) else "field"


def read_sparse(
    path: Path, kind: Kind, columns: str | None, frames: str | None, unit: Unit | None = None
) -> SparseInput:
    """Read a field, with the unit of a PNG; a list of matches; or tracks."""
    if columns is not None and kind != "matches":
        raise InputError(f"--columns needs a list of matches ({', '.join(MATCH_SUFFIXES)}), got {path}")
    if frames is not None and kind != "tracks":
        raise InputError(f"--frames needs tracks (.npz), got {path}")
    if kind == "matches":
        return SparseInput(path, matches=read_matches(path, columns))
    if kind == "tracks":
        return SparseInput(path, matches=read_tracks(path, *_frames(frames)))
    if existing_file(path).suffix.lower() not in (*FLOW_SUFFIXES, ".exr"):
        wanted = f"a field ({', '.join(FLOW_SUFFIXES)}), matches ({', '.join(MATCH_SUFFIXES)}) or tracks (.npz)"
        raise FileFormatError(f"{path}: must be {wanted}")
    field, valid = read_flow(path, unit)
    return SparseInput(path, field, valid)


def check_size(path: Path, shape: tuple[int, ...], flow: Path, size: tuple[int, ...]) -> None:
    """Raise InputError unless the arrays of two files have the same size."""
    if shape[:2] != size[:2]:
        raise InputError(
            f"{path}: must be {size[1]}x{size[0]} pixels (width x height) as {flow}, got {shape[1]}x{shape[0]}"
        )


def _frames(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 1
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"--frames must be two frame numbers such as 0,5, got {text!r}")
    return int(parts[0]), int(parts[1])


def _one(name: str, column: Array | None, option: Any) -> Any:
    """The noise or confidence of points: their column, or a number that an option gives."""
    if option is None:
        return column
    if column is not None:
        raise InputError(f"--{name} must be left out, because the points have a column of this name")
    if isinstance(option, np.ndarray):
        raise InputError(
            f"--{name} must be a number for points, got a file; put a value for each point into a column of this name"
        )
    return option
