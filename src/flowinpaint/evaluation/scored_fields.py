"""Fields that another program computed: their files, and what makes one comparable with a frame's truth.

    <folder>/<case>/<dataset>/<sample>.flo          or <sample>/flow.flo, in any format that `read_flow` reads
    <folder>/<dataset>/<sample>.flo                 if only one case is evaluated

The case is the density in per cent as in mask files (01, 05, 0.5), or the name of a pattern or input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flowinpaint.data.folder import Frame, Sample
from flowinpaint.errors import InputError, MissingFileError, check_file
from flowinpaint.evaluation.measure import Field
from flowinpaint.io import FLOW_SUFFIXES, StrPath, png_unit, read_flow
from flowinpaint.masks.cases import Case, case_label
from flowinpaint.methods.registry import find_method
from flowinpaint.metrics import epe

OPTION = "fields"
_SUSPECT = 0.5
"""Errors at the given vectors, relative to those elsewhere, above which a field seems to come from other vectors."""
_PICTURE = ".png"
"""A format that is also used to draw fields: such a file counts only if there is no other."""


@dataclass(frozen=True)
class FieldFolder:
    """The fields of one program; by_case: in one folder per case."""

    name: str
    folder: Path
    by_case: bool

    def file(self, sample: Sample, case: Case) -> Path:
        """The file with the field of a sample; the one that should exist if there is none."""
        home = (self.folder / case_label(case) if self.by_case else self.folder) / sample.dataset
        stems = (home / sample.name, home / sample.name / "flow")
        names = [stem.with_name(stem.name + suffix) for stem in stems for suffix in FLOW_SUFFIXES]
        found = [name for name in names if name.is_file()]
        found = [name for name in found if name.suffix != _PICTURE] or found
        if len(found) > 1:
            raise InputError(f"{OPTION} {self.name!r}: must have one field per sample, got {found[0]} and {found[1]}")
        if found and found[0].samefile(sample.truth):
            raise InputError(f"{OPTION} {self.name!r}: must be computed fields, got the truth {found[0]}")
        return found[0] if found else names[0]


def field_folders(
    fields: Mapping[str, StrPath], cases: Sequence[Case], samples: Sequence[Sample], taken: Collection[str]
) -> list[FieldFolder]:
    """The folders by name; InputError unless the names are new, and each has a field for at least one frame.

    taken: names of the methods that run next to them.
    """
    found = []
    for name, path in fields.items():
        _check_name(name, taken)
        folder = Path(path)
        if not folder.is_dir():
            raise InputError(f"{OPTION} {name!r}: must be a folder, got {path}, which does not exist or is a file")
        labels = [case_label(case) for case in cases]
        by_case = any((folder / label).is_dir() for label in labels)
        if not by_case and len(cases) > 1:
            raise InputError(
                f"{OPTION} {name!r}: {path} must have a folder for each of {', '.join(labels)}, got none; evaluate one "
                "case, for example one density, if all fields were computed for that"
            )
        own = FieldFolder(name, folder, by_case)
        if not any(own.file(sample, case).is_file() for sample in samples for case in sample.possible(cases)):
            first = own.file(samples[0], cases[0])
            raise InputError(
                f"{OPTION} {name!r}: {path} must have fields for the frames, got no files such as {first} or "
                f"{_in_folder(first)}"
            )
        found.append(own)
    return found


def read_field(path: Path, frame: Frame) -> Field:
    """Read a field for a frame; FileFormatError unless it has the size, channels and values to be compared with it."""
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file, and no {_in_folder(path)}")
    flow, finite = read_flow(path, png_unit(path, "px/256"))  # KITTI's disparity, as the truth
    (height, width, channels), (h, w, c) = frame.truth.shape, flow.shape
    check_file(path, (h, w) != (height, width) and f"must be {width}x{height} pixels as the truth, got {w}x{h}")
    check_file(path, c != channels and f"must have {channels} channels as the truth, got {c}")
    count, unfilled = np.count_nonzero(frame.valid), np.count_nonzero(frame.valid & ~finite)
    fault = f"must have a vector at all {count} pixels where the truth is valid, got none at {unfilled} of them"
    check_file(path, bool(unfilled) and fault)
    return flow


def _in_folder(file: Path) -> Path:
    """The other place of a sample's field."""
    return file.with_suffix("") / f"flow{file.suffix}"


def doubts(flow: Field, frame: Frame) -> list[str]:
    """A sentence if a field (H, W, C) was probably not computed from the exact vectors of its frame."""
    known, unknown = frame.valid & frame.mask, frame.valid & ~frame.mask
    if frame.vectors is not None or not known.any() or not unknown.any():
        return []
    here, elsewhere = (epe(flow, frame.truth, pixels) for pixels in (known, unknown))
    if here <= _SUSPECT * elsewhere:
        return []
    return [
        f"The field is off by {here:.3g} px at the given vectors and {elsewhere:.3g} px elsewhere: check that it was "
        "computed from these vectors, that is, from this seed and density."
    ]


def _check_name(name: str, taken: Collection[str]) -> None:
    if not name or set(name) & set("+,:/ \t\n"):
        raise InputError(f"{OPTION} must have names without spaces, commas, '+', ':' and '/', got {name!r}")
    if name in taken or find_method(name) is not None:
        raise InputError(f"{OPTION} must have names that no method has, got {name!r}")
