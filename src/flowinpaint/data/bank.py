"""Picture banks: the pictures that generated scenes are painted with, in one buffer, each at three sizes.

A pixel is four bytes in an int32, red in the lowest, so that one read fetches it. The fourth byte, `extra`, is

    photos      the number of the pixel's segment, modulo 256
    materials   unused
    cutouts     128 + 4 d, with the signed distance d from the silhouette in pixels of that size, up to ±31.75

On disk a bank is a .safetensors file of packed pictures at full size, a twentieth of the buffer: colours as WebP,
segments and silhouettes as PNG. Smaller sizes and distances are computed on reading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save
from torch import Tensor

from flowinpaint.errors import FileFormatError, InputError, check_file, shown
from flowinpaint.io.files import StrPath, atomic_path
from flowinpaint.io.image_headers import check_image_file
from flowinpaint.io.images import decode_image
from flowinpaint.io.tensors import open_tensors
from flowinpaint.opencv import cv2

SIZES = 3
"""Pictures are stored at full, half and quarter size."""
DISTANCE_UNIT = 4
DISTANCE_ZERO = 128
KINDS = ("photos", "materials", "cutouts")
BANK_SUFFIX = ".safetensors"
STEP = 2 ** (SIZES - 1)
"""Heights and widths are multiples of this, so that the smaller sizes are exact."""
MIN_SIDE, MAX_SIDE = 4 * STEP, 8192

_VERSION_KEY, _VERSION = "flowinpaint.bank", "1"
_DATA = "data"
_WEBP_QUALITY = 85
_MOST_PIXELS = 2**31 - 1  # offsets are int32
_CUTOUT_MARGIN = 2

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Shape = tuple[int, ...]
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class PictureBank:
    """pixels (P,) int32, and for each kind a table (N, SIZES, 3) int32 of offset, height and width."""

    pixels: Tensor
    photos: Tensor
    materials: Tensor
    cutouts: Tensor


class Picture(NamedTuple):
    """A picture at full size: colour (H, W, 3) RGB; extra (H, W), which for a cut-out is 255 inside and 0 outside."""

    colour: Bytes
    extra: Bytes


class PackedPicture(NamedTuple):
    """A picture in a file: colour as WebP and extra as PNG, empty for a material."""

    colour: bytes
    extra: bytes


def unpack(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Unpack pixels to colours (…, 3) float in [0, 255] and extra (…) int32."""
    colour = torch.stack([pixels & 255, pixels >> 8 & 255, pixels >> 16 & 255], -1)
    return colour.float(), pixels >> 24 & 255


def make_bank(pictures: Mapping[str, Sequence[Picture]]) -> PictureBank:
    """Make a bank from pictures of each of KINDS."""
    for kind in KINDS:
        if not pictures.get(kind):
            raise InputError(f"pictures must have at least one of {kind}, got none")
        for colour, extra in pictures[kind]:
            if fault := _fault(colour, extra):
                raise InputError(f"pictures: one of the {kind} {fault}")
    shapes = {kind: [picture.extra.shape for picture in pictures[kind]] for kind in KINDS}
    return _assemble(shapes, lambda kind, number: pictures[kind][number])


def bank_picture(bank: PictureBank, kind: str, number: int) -> Picture:
    """A picture of a bank on the CPU, at full size."""
    offset, height, width = getattr(bank, kind)[number, 0].tolist()
    colour, extra = unpack(bank.pixels[offset : offset + height * width].view(height, width))
    if kind == "cutouts":
        extra = 255 * (extra > DISTANCE_ZERO)
    return Picture(colour.byte().numpy(), extra.byte().numpy())


def pack_picture(kind: str, picture: Picture) -> PackedPicture:
    """Compress a picture for `save_pictures`; WebP changes its colours slightly."""
    bgr = np.ascontiguousarray(picture.colour[..., ::-1])
    webp = cv2.imencode(".webp", bgr, [cv2.IMWRITE_WEBP_QUALITY, _WEBP_QUALITY])[1].tobytes()
    if kind == "materials":
        return PackedPicture(webp, b"")
    settings = [cv2.IMWRITE_PNG_COMPRESSION, 9, cv2.IMWRITE_PNG_BILEVEL, int(kind == "cutouts")]
    return PackedPicture(webp, cv2.imencode(".png", picture.extra, settings)[1].tobytes())


def save_pictures(pictures: Mapping[str, Sequence[PackedPicture]], path: StrPath) -> None:
    """Write packed pictures of each of KINDS to a .safetensors file for `read_bank`, atomically."""
    check_bank_name(path)
    with atomic_path(path) as temporary:
        temporary.write_bytes(bank_bytes(pictures))


def bank_bytes(pictures: Mapping[str, Sequence[PackedPicture]]) -> bytes:
    """The content of a bank's file."""
    places: dict[bytes, int] = {}  # a photo with two segmentations is stored once
    length = 0
    for data in (part for kind in KINDS for picture in pictures[kind] for part in picture):
        if data not in places:
            places[data] = length
            length += len(data)
    rows = {kind: [[places[c], len(c), places[e], len(e)] for c, e in pictures[kind]] for kind in KINDS}
    tensors = {kind: torch.tensor(rows[kind], dtype=torch.int64) for kind in KINDS}
    tensors[_DATA] = torch.frombuffer(bytearray(b"".join(places)), dtype=torch.uint8)
    return save(tensors, metadata={_VERSION_KEY: _VERSION})


def check_bank_name(path: StrPath) -> None:
    """Raise InputError unless the name of a bank has its suffix."""
    if Path(path).suffix != BANK_SUFFIX:
        raise InputError(f"path must end in {BANK_SUFFIX}, got {str(path)!r}")


def read_bank(path: StrPath) -> PictureBank:
    """Read a bank, written by `save_pictures` or `flowinpaint assets build`, to the CPU."""
    path = Path(path)
    packed = _read_packed(path)
    # All headers are checked before memory is allocated for any picture.
    shapes = {kind: [_header_shape(path, kind, i, p) for i, p in enumerate(packed[kind])] for kind in KINDS}

    def picture(kind: str, number: int) -> Picture:
        name, data, shape = _name(path, kind, number), packed[kind][number], shapes[kind][number]
        colour = decode_image(name, data.colour)
        extra = decode_image(name, data.extra) if data.extra else np.zeros(shape, np.uint8)
        check_file(name, _fault(colour, extra))
        return Picture(colour, extra)

    try:
        return _assemble(shapes, picture)
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error


def in_threads(
    function: Callable[[Item], Outcome], items: Sequence[Item], jobs: int | None = os.cpu_count()
) -> Generator[Outcome, None, None]:
    """Map a function over items in threads, in order; an error or Ctrl-C stops the threads."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(function, items)


def _assemble(shapes: Mapping[str, Sequence[Shape]], picture: Callable[[str, int], Picture]) -> PictureBank:
    """Make a bank from pictures of known shapes; threads call `picture` once for each."""
    sides = np.concatenate([shapes[kind] for kind in KINDS])[:, None] >> np.arange(SIZES)[:, None]
    areas = sides.prod(-1)
    if areas.sum() > _MOST_PIXELS:
        raise InputError(f"pictures must have at most {_MOST_PIXELS} pixels in all sizes, got {areas.sum()}")
    offsets = areas.cumsum().reshape(areas.shape) - areas
    table = np.concatenate([offsets[..., None], sides], -1).astype(np.int32)
    buffer = np.empty(areas.sum(), np.int32)

    places = [(kind, number) for kind in KINDS for number in range(len(shapes[kind]))]

    def paint(i: int) -> None:
        kind, number = places[i]
        for (offset, h, w), own in zip(table[i].tolist(), _all_sizes(kind, picture(kind, number)), strict=True):
            buffer[offset : offset + h * w] = np.dstack(own).view("<i4").reshape(-1)

    for _ in in_threads(paint, range(len(places))):
        pass
    ends = np.cumsum([len(shapes[kind]) for kind in KINDS])
    return PictureBank(torch.from_numpy(buffer), *map(torch.from_numpy, np.split(table, ends[:-1])))


def _all_sizes(kind: str, picture: Picture) -> Iterator[Picture]:
    """The picture at SIZES sizes, with extra as in the bank."""
    height, width = picture.extra.shape
    distance = silhouette_distance(picture.extra > 0) if kind == "cutouts" else None
    for size in range(SIZES):
        factor, target = 1 << size, (width >> size, height >> size)
        colour = np.asarray(cv2.resize(picture.colour, target, interpolation=cv2.INTER_AREA), np.uint8)
        if distance is None:
            yield Picture(colour, picture.extra[factor // 2 :: factor, factor // 2 :: factor])
            continue
        reduced = np.asarray(cv2.resize(distance, target, interpolation=cv2.INTER_AREA)) / factor
        levels = np.clip(np.round(DISTANCE_ZERO + DISTANCE_UNIT * reduced), 1, 255)
        yield Picture(colour, levels.astype(np.uint8))


def side_fault(height: int, width: int) -> str | None:
    """The reason why a bank cannot hold a picture of this size, or None."""
    if min(height, width) >= MIN_SIDE and max(height, width) <= MAX_SIDE and height % STEP == width % STEP == 0:
        return None
    return f"must have sides of {MIN_SIDE} to {MAX_SIDE} px, multiples of {STEP}, got {width}x{height}"


def _fault(colour: Bytes, extra: Bytes) -> str | None:
    if colour.dtype != np.uint8 or extra.dtype != np.uint8 or extra.ndim != 2 or colour.shape != (*extra.shape, 3):
        found = f"{colour.dtype} {colour.shape} with {extra.dtype} {extra.shape}"
        return f"must be uint8 (H, W, 3) with uint8 (H, W), got {found}"
    return side_fault(*extra.shape)


def _name(path: Path, kind: str, number: int) -> Path:
    return Path(f"{path}: {kind}[{number}]")


def _read_packed(path: Path) -> dict[str, list[PackedPicture]]:
    """Read the packed pictures in a file, with all offsets checked."""
    with open_tensors(path) as file:
        version = file.metadata.get(_VERSION_KEY)
        check_file(path, version is None and "not a bank of pictures; 'flowinpaint assets build' makes one")
        check_file(path, version != _VERSION and f"must be a bank of version {_VERSION}, got {shown(version)}")
        dtypes, shapes, expected = file.dtypes, file.shapes, sorted({_DATA, *KINDS})
        check_file(path, sorted(shapes) != expected and f"must hold {expected}, got {shown(sorted(shapes))}")
        good = dtypes[_DATA] == "U8" and len(shapes[_DATA]) == 1
        check_file(path, not good and f"data must be U8 (N,), got {dtypes[_DATA]} {shown(shapes[_DATA])}")
        for kind in KINDS:
            good = dtypes[kind] == "I64" and shapes[kind][1:] == (4,) and shapes[kind][0] > 0
            found = f"{dtypes[kind]} {shown(shapes[kind])}"
            check_file(path, not good and f"{kind} must be I64 (N, 4), N > 0, got {found}")
        arrays = {name: tensor.numpy() for name, tensor in file.read().items()}
    data = arrays[_DATA]
    for kind in KINDS:
        table = arrays[kind]
        start, length = table[:, ::2], table[:, 1::2]
        # start + length could overflow.
        inside = (start >= 0) & (length >= 0) & (start <= data.size) & (length <= data.size - start)
        check_file(path, not inside.all() and f"{kind} must point inside its {data.size} bytes of data")
        check_file(
            path,
            ((length[:, 1] == 0) != (kind == "materials")).any()
            and f"{kind} must have {'no extras' if kind == 'materials' else 'an extra for each picture'}",
        )
    parts = {kind: arrays[kind].reshape(-1, 2, 2).tolist() for kind in KINDS}
    return {
        kind: [PackedPicture(*(data[start : start + length].tobytes() for start, length in row)) for row in parts[kind]]
        for kind in KINDS
    }


def _header_shape(path: Path, kind: str, number: int, packed: PackedPicture) -> Shape:
    """The height and width in the headers of a packed picture."""
    name = _name(path, kind, number)
    sizes = {check_image_file(name, part)[:2] for part in (packed[:1] if kind == "materials" else packed)}
    check_file(name, len(sizes) > 1 and "its colour and extra must have one size")
    width, height = sizes.pop()
    check_file(name, side_fault(height, width))
    return height, width


def silhouette_distance(inside: Mask) -> npt.NDArray[np.float32]:
    """The signed distance (H, W) in px of pixel centres from the border of a silhouette (H, W), positive inside.

    The border is halfway between pixels inside and outside, at ±0.5; there must be pixels of both kinds.
    """
    masks = (inside.astype(np.uint8), (~inside).astype(np.uint8))
    to_out, to_in = (np.asarray(cv2.distanceTransform(m, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)) for m in masks)
    return np.asarray(np.where(inside, to_out - 0.5, 0.5 - to_in), np.float32)


def fill_outside(colour: Bytes, inside: Mask) -> Bytes:
    """Replace the colours (H, W, 3) outside a silhouette (H, W) by the nearest ones inside."""
    outside = (~inside).astype(np.uint8)
    _, nearest = cv2.distanceTransformWithLabels(outside, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    table = np.zeros((int(nearest.max()) + 1, 3), np.uint8)
    table[nearest[inside]] = colour[inside]
    return np.asarray(table[nearest])


def cut_to_silhouette(colour: Bytes, inside: Mask) -> Picture:
    """Crop colours (H, W, 3) and inside (H, W) to the silhouette and a margin, with sides that are multiples of STEP.

    The colours outside, which interpolation reads at the border, become the nearest ones inside.
    """
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    window = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    borders = [(_CUTOUT_MARGIN, _CUTOUT_MARGIN + -(n + 2 * _CUTOUT_MARGIN) % STEP) for n in inside[window].shape]
    wide = np.pad(inside[window], borders)
    return Picture(fill_outside(np.pad(colour[window], [*borders, (0, 0)]), wide), wide * np.uint8(255))
