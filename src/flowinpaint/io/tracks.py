"""Tracks of points through a video in .npz files, as CoTracker and TAPIR compute them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io.arrays import Npz, open_npz
from flowinpaint.io.budget import with_max_bytes
from flowinpaint.io.files import StrPath, existing_file
from flowinpaint.io.matches import Matches

Array = npt.NDArray[Any]

LAYOUTS = ("TN", "NT")
_CLEARLY = 2.0
"""Tracks that move by this multiple more between frames than between points have the other layout."""
_JUDGED = 512
"""Frames and points that are judged; all of a large file would take seconds."""


class _Names(NamedTuple):
    """Arrays that a program writes: the visibility, whether it means hidden, the layout, and the first pixel's centre.

    TAPIR counts from the corner of the first pixel, so that its centre is at 0.5; CoTracker from its centre.
    """

    visibility: str
    hidden: bool
    layout: str
    centre: float


_TRACKS = ("pred_tracks", "tracks")
_NAMES = (
    _Names("pred_visibility", False, "TN", 0.0),
    _Names("visibility", False, "TN", 0.0),
    _Names("visibles", False, "NT", 0.5),
    _Names("occluded", True, "NT", 0.5),
    _Names("occlusions", True, "NT", 0.5),
    _Names("occlusion", True, "NT", 0.5),
)


@np.errstate(all="ignore")
@with_max_bytes
def read_tracks(
    path: StrPath,
    start: int = 0,
    end: int = 1,
    layout: str | None = None,
    centre: float | None = None,
    *,
    max_bytes: int | None = None,
) -> Matches:
    """Read the motion of tracked points from frame `start` to frame `end`, of points visible in both.

    CoTracker: `pred_tracks` or `tracks` (B, T, N, 2) or (T, N, 2), with `pred_visibility` or `visibility`. TAPIR:
    `tracks` (N, T, 2), with `visibles`, `occluded` or `occlusions`. x and y are in px of the frames.

    layout: "TN" for tracks (T, N, 2), "NT" for (N, T, 2); by default as the program writes them.
    centre: the coordinate of the centre of the first pixel; by default 0.5 for TAPIR's arrays and 0 for CoTracker's.
    max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    if layout not in (None, *LAYOUTS):
        raise InputError(f'layout must be "TN" for tracks (T, N, 2), "NT" for (N, T, 2) or None, got {layout!r}')
    path = existing_file(path)
    with open_npz(path) as npz:
        tracks_name, names = _find(npz)
        tracks = npz.load(tracks_name, "iuf", (3, 4))
        seen = npz.load(names.visibility, "biuf", (2, 3, 4))
    tracks, seen = _without_batch(path, tracks_name, tracks, 3), _visible(path, names, seen, tracks.shape)
    if (layout or _checked_layout(path, tracks_name, tracks, names.layout)) == "NT":
        tracks, seen = tracks.swapaxes(0, 1), seen.swapaxes(0, 1)
    frames = len(tracks)
    for name, frame in (("start", start), ("end", end)):
        if not isinstance(frame, int | np.integer) or not 0 <= frame < frames:
            raise InputError(f"{name} must be a frame from 0 to {frames - 1} of {path}, got {frame!r}")
    if start == end:
        raise InputError(f"start and end must be different frames, got {start} twice")
    both = seen[start] & seen[end]
    check_file(path, not both.any() and f"a point must be visible in both frames {start} and {end}, got none")
    first, last = (tracks[frame][both].astype(np.float64) for frame in (start, end))
    return Matches(first - (names.centre if centre is None else centre), last - first)


def holds_tracks(path: StrPath) -> bool:
    """Whether an .npz file holds tracks rather than a field."""
    with open_npz(existing_file(path)) as npz:
        return "flow" not in npz.members and (len(npz.members) > 1 or not npz.members.keys().isdisjoint(_TRACKS))


def _find(npz: Npz) -> tuple[str, _Names]:
    """The name of the tracks, and those that go with their visibility."""
    held = ", ".join(sorted(npz.members)[:8])
    tracks = [name for name in _TRACKS if name in npz.members]
    found = [names for names in _NAMES if names.visibility in npz.members]
    if len(tracks) != 1:
        raise FileFormatError(f"{npz.path}: must hold one array of tracks, {' or '.join(_TRACKS)}, got {held}")
    if len(found) != 1:
        wanted = ", ".join(names.visibility for names in _NAMES)
        raise FileFormatError(f"{npz.path}: must hold the visibility of the tracks as one of {wanted}, got {held}")
    return tracks[0], found[0]


def _without_batch(path: Path, name: str, x: Array, dimensions: int) -> Array:
    """An array without its batch axis, which must have the length 1."""
    if x.ndim > dimensions:
        check_file(path, len(x) != 1 and f"{name} must hold one video, got a batch of {len(x)}")
        x = x[0]
    if dimensions == 3 and x.shape[-1] != 2:
        raise FileFormatError(f"{path}: {name} must have x and y as its last axis, got {x.shape}")
    return x


def _visible(path: Path, names: _Names, x: Array, tracks: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Which points are visible, in the layout of the tracks without their batch."""
    size = tracks[-3:-1]
    shape = x.shape
    if len(tracks) == 4 and x.ndim > 2 and len(x) == 1:
        x = x[0]
    if x.ndim == 3 and x.shape[-1] == 1:
        x = x[..., 0]
    if x.shape != size:
        hint = "; these are the axes of the other layout" if x.shape == size[::-1] else ""
        raise FileFormatError(
            f"{path}: {names.visibility} must have one value for each of the tracks {tracks}, got {shape}{hint}"
        )
    if not (np.isfinite(x).all() and x.min() >= 0 and x.max() <= 1):
        raise FileFormatError(
            f"{path}: {names.visibility} must be bool or probabilities, got values from {x.min():.3g} to "
            f"{x.max():.3g}; apply a sigmoid to logits"
        )
    return (x > 0.5) ^ names.hidden if x.dtype.kind != "b" else x ^ names.hidden


def _checked_layout(path: Path, name: str, tracks: Array, layout: str) -> str:
    """The layout that the names imply; FileFormatError if the tracks move as if they had the other."""
    shape, tracks = tracks.shape, tracks[:_JUDGED, :_JUDGED]
    finite = tracks[np.isfinite(tracks).all(-1)]
    check_file(
        path,
        bool(finite.size and finite.min() >= 0 and finite.max() <= 1)
        and f"{name} must be in px, got coordinates from 0 to 1; multiply them by width and height",
    )
    if min(tracks.shape[:2]) < 2 or name.startswith("pred_"):  # nobody but CoTracker has this name
        return layout
    steps = [np.abs(np.diff(tracks, axis=axis)).sum(-1) for axis in (0, 1)]
    steps = [step[np.isfinite(step)] for step in steps]
    if min(step.size for step in steps) == 0:
        return layout
    time = layout.index("T")
    if np.median(steps[time]) > _CLEARLY * np.median(steps[1 - time]):
        raise FileFormatError(
            f'{path}: the axes of {name} {shape} cannot be told apart; pass layout="TN" if the first is time, '
            'layout="NT" if the first is points'
        )
    return layout
