"""Build a bank of pictures from folders of photos, cut-outs and textures.

NAME_coarse.png, NAME_fine.png and, unless the photo is itself a PNG, NAME.png are label maps of a photo's segments; the
photo enters the bank once with each. A photo without label maps is segmented here. A cut-out is a PNG with an alpha
channel, or a picture with a silhouette NAME.png, white inside. Textures have no second file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt

from flowinpaint.data.bank import (
    KINDS,
    MAX_SIDE,
    MIN_SIDE,
    STEP,
    Bytes,
    PackedPicture,
    Picture,
    check_bank_name,
    cut_to_silhouette,
    fill_outside,
    in_threads,
    pack_picture,
    save_pictures,
    side_fault,
)
from flowinpaint.data.folder import check_size, stable_seed
from flowinpaint.data.procedural_pictures import procedural_pictures
from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.extras import is_installed, needs
from flowinpaint.io import IMAGE_SUFFIXES, StrPath, read_image
from flowinpaint.io.files import check_target
from flowinpaint.io.images import decode_image, decode_with_alpha
from flowinpaint.opencv import cv2
from flowinpaint.viz.colours import as_rgb

LONGEST = 512
"""Larger pictures are reduced to this number of pixels on their longer side."""
OPTIONS = {"photos": "photos", "materials": "textures", "cutouts": "cutouts"}
"""User-visible names of the kinds of pictures."""

_LABEL_ENDS = ("_coarse", "_fine")
# Odd, so that labels below 256 stay different, and large, so that neighbouring numbers get distant labels.
_LABEL_STRIDE = 163
_SEGMENT_SCALES = (50.0, 400.0)
_SEGMENT_SMOOTHING = 0.8
_SMALLEST_SEGMENT = 50


@dataclass(frozen=True)
class Source:
    """A picture in a folder, with its label maps or silhouette."""

    kind: str
    image: Path
    maps: tuple[Path, ...] = ()


def build_bank(
    folders: Mapping[str, Sequence[StrPath]],
    out: StrPath,
    *,
    longest: int = LONGEST,
    jobs: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    skipped: Callable[[str], None] = lambda sentence: None,
) -> dict[str, int]:
    """Write a bank of the pictures in the folders of each of KINDS, and return the number of each.

    A kind without folders is drawn by `procedural_pictures`. progress is called with the files done and the total,
    skipped with the reason for each unusable file.
    """
    check_bank_name(out)
    if longest < MIN_SIDE:
        raise InputError(f"longest must be at least {MIN_SIDE} px, got {longest}")
    sources = [source for kind in KINDS for source in find_sources(kind, folders.get(kind, ()))]
    if not sources:
        names = ", ".join(OPTIONS.values())
        raise InputError(f"folders must have a folder for at least one of {names}, got none")
    _check_segmentation(sources)
    packed: dict[str, list[PackedPicture]] = {kind: [] for kind in KINDS}
    check_target(Path(out))
    with closing(in_threads(lambda source: _pack_source(source, longest), sources, jobs)) as work:
        for done, (source, outcome) in enumerate(zip(sources, work, strict=True), 1):
            if isinstance(outcome, str):
                skipped(outcome)
            else:
                packed[source.kind] += outcome
            progress(done, len(sources))
    for kind in KINDS:
        if folders.get(kind) and not packed[kind]:
            places = ", ".join(map(str, folders[kind]))
            raise InputError(f"{OPTIONS[kind]} must contain a usable picture, got none in {places}")
    for kind, pictures in procedural_pictures([kind for kind in KINDS if not packed[kind]]).items():
        packed[kind] = [pack_picture(kind, picture) for picture in pictures]
    save_pictures(packed, out)
    return {kind: len(packed[kind]) for kind in KINDS}


def find_sources(kind: str, folders: Iterable[StrPath]) -> list[Source]:
    """List the pictures of a kind in folders and their subfolders, sorted by name."""
    sources = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            found = "is a file" if folder.exists() else "does not exist"
            raise InputError(f"{OPTIONS[kind]} must be a folder of pictures, got {folder}, which {found}")
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
        if not files:
            raise InputError(
                f"{OPTIONS[kind]} must contain pictures ({', '.join(IMAGE_SUFFIXES)}), got none in {folder}"
            )
        sources += _pair(kind, files)
    return sources


def _pair(kind: str, files: list[Path]) -> list[Source]:
    """The pictures among the files, each with its maps."""
    if kind == "materials":
        return [Source(kind, file) for file in files]
    present = set(files)
    maps: dict[Path, tuple[Path, ...]] = {}
    for file in files:
        candidates = [] if file.suffix.lower() == ".png" else [file.with_suffix(".png")]
        if kind == "photos":
            candidates += [file.with_name(f"{file.stem}{end}.png") for end in _LABEL_ENDS]
        maps[file] = tuple(path for path in candidates if path in present)
    used = {path for paths in maps.values() for path in paths}
    return [Source(kind, file, paths) for file, paths in maps.items() if file not in used]


def _check_segmentation(sources: Iterable[Source]) -> None:
    alone = next((source.image for source in sources if source.kind == "photos" and not source.maps), None)
    if alone is not None and not is_installed("segmentation"):
        raise InputError(f"photos: {alone} has no label map, and its segmentation {needs('segmentation')}")


def _pack_source(source: Source, longest: int) -> list[PackedPicture] | str:
    """The packed pictures of a source, or the reason why it is unusable."""
    try:
        return [pack_picture(source.kind, picture) for picture in _pictures(source, longest)]
    except (FileFormatError, InputError, OSError) as error:
        return str(error)


def _pictures(source: Source, longest: int) -> list[Picture]:
    colour = as_rgb(read_image(source.image))
    height, width = colour.shape[:2]
    share = min(1.0, longest / max(height, width))
    size = max(1, round(width * share)), max(1, round(height * share))
    if source.kind == "cutouts":
        return [_cutout(source, colour, size)]
    small = _whole_steps(_reduced(colour, size))
    _check_size(source.image, small, size)
    if source.kind == "materials":
        return [Picture(small, np.zeros(small.shape[:2], np.uint8))]
    if not source.maps:
        return [Picture(small, segment(small, stable_seed(source.image.name) / 2**64))]
    labels = [(path, _read_map(path, source, colour)) for path in source.maps]
    for path, found in labels:
        check_file(path, found.ndim != 2 and "must be a grey map of labels, got colours")
    nearest = [cv2.resize(spread_labels(found), size, interpolation=cv2.INTER_NEAREST_EXACT) for _, found in labels]
    return [Picture(small, _whole_steps(np.asarray(found, np.uint8))) for found in nearest]


def _cutout(source: Source, colour: Bytes, size: tuple[int, int]) -> Picture:
    if source.maps:
        coverage = _read_map(source.maps[0], source, colour)
        coverage = (coverage if coverage.ndim == 2 else coverage[..., 0]) > 0
    else:
        coverage = _alpha(source.image) > 0.5
    check_file(source.image, not coverage.any() and "its silhouette must not be empty")
    # Filled before reduction, so that border colours do not mix with the background.
    inside = _reduced(coverage.astype(np.float32), size) >= 0.5
    check_file(source.image, not inside.any() and f"its silhouette must not be empty at {size[0]}x{size[1]} px")
    cutout = cut_to_silhouette(_reduced(fill_outside(colour, coverage), size), inside)
    _check_size(source.image, cutout.colour, (cutout.extra.shape[1], cutout.extra.shape[0]))
    return cutout


def segment(colour: Bytes, draw: float) -> Bytes:
    """Segment a photo (H, W, 3) by Felzenszwalb's method; a draw in [0, 1] sets the scale, 1 being the coarsest."""
    from skimage.segmentation import felzenszwalb  # optional, and slow to import

    low, high = _SEGMENT_SCALES
    smooth = cv2.GaussianBlur(colour, (0, 0), _SEGMENT_SMOOTHING)
    scale = low * (high / low) ** draw
    labels = felzenszwalb(smooth, scale=scale, sigma=_SEGMENT_SMOOTHING, min_size=_SMALLEST_SEGMENT)
    return spread_labels(without_slivers(np.asarray(labels)))


def without_slivers(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Merge segments (H, W) less than 3 px wide everywhere, as along blurred edges, into their neighbours."""
    numbers, square = labels.astype(np.float32), np.ones((3, 3), np.uint8)
    inner = np.asarray(cv2.erode(numbers, square)) == np.asarray(cv2.dilate(numbers, square))
    kept = np.isin(labels, labels[inner])
    if not kept.any():
        return labels
    nearest = distance_transform_edt(~kept, return_distances=False, return_indices=True)
    return np.asarray(labels[tuple(nearest)])


def spread_labels(labels: npt.NDArray[Any]) -> Bytes:
    """Map labels (H, W) to 0 … 255, one to one if there are at most 256."""
    _, numbers = np.unique(labels, return_inverse=True)
    return (numbers.reshape(labels.shape) * _LABEL_STRIDE % 256).astype(np.uint8)


def _read_map(path: Path, source: Source, colour: Bytes) -> npt.NDArray[Any]:
    pixels = decode_image(path, path.read_bytes())
    check_size(path, pixels, source.image, colour)
    return pixels


def _alpha(path: Path) -> npt.NDArray[np.float32]:
    """The opacity (H, W) from 0 to 1 of a picture."""
    pixels = decode_with_alpha(path, path.read_bytes())
    check_file(path, pixels.dtype.kind != "u" and f"must have integer pixels, got {pixels.dtype}")
    check_file(path, pixels.shape[2:] != (4,) and "must have an alpha channel or a silhouette .png, got neither")
    return np.asarray(pixels[..., 3] / np.float32(np.iinfo(pixels.dtype).max), np.float32)


def _reduced(pixels: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))


def _whole_steps(pixels: Bytes) -> Bytes:
    """Crop the last rows and columns to multiples of STEP."""
    height, width = pixels.shape[:2]
    return pixels[: height // STEP * STEP, : width // STEP * STEP]


def _check_size(path: Path, pixels: Bytes, size: tuple[int, int]) -> None:
    """Raise FileFormatError for a picture too small after cropping to STEP; the message states its original size."""
    small = side_fault(*pixels.shape[:2])
    check_file(path, small and f"must have sides of {MIN_SIDE} to {MAX_SIDE} px, got {size[0]}x{size[1]}")
