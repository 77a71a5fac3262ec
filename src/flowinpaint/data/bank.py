"""The pictures that generated scenes are painted with, side by side in one buffer, each at three sizes.

A pixel is four bytes in an int32, red in the lowest: one read fetches it whole. The fourth byte, `extra`, tells
something else for each kind of picture:

    photos      the number of the segment that the pixel belongs to, modulo 256
    materials   nothing
    cutouts     128 + 4 d, d the distance from the silhouette in pixels of that size, positive inside, up to ±31.75

On disk a bank is a .safetensors file of packed pictures at their own size, a twentieth of the buffer: colours as WebP,
segments and silhouettes as PNG. Reading it makes the smaller sizes and the distances again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import cv2
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from flowinpaint.data.cutout import Bytes, silhouette_distance
from flowinpaint.errors import FileFormatError, InputError, MissingFileError, check_file
from flowinpaint.io import StrPath, atomic_path
from flowinpaint.io.image_headers import image_fault, image_size
from flowinpaint.io.images import decode_image

SIZES = 3
"""A picture is kept at its own size, at half and at a quarter of it."""
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

    def to(self, device: torch.device | str) -> PictureBank:
        """The same bank on a device."""
        tensors = {name: getattr(self, name).to(device) for name in self.__dataclass_fields__}
        return replace(self, **tensors)


class Picture(NamedTuple):
    """A picture at its own size: colour (H, W, 3) RGB; extra (H, W), but for a cut-out 255 inside and 0 outside."""

    colour: Bytes
    extra: Bytes


class PackedPicture(NamedTuple):
    """A picture as it lies in a file: colour as WebP and extra as PNG, empty for a material."""

    colour: bytes
    extra: bytes


def pack(colour: Tensor, extra: Tensor) -> Tensor:
    """Colours (H, W, 3) uint8 and extra (H, W) uint8 as (H·W,) int32."""
    r, g, b = colour.int().unbind(-1)
    return (r | g << 8 | b << 16 | extra.int() << 24).reshape(-1)


def unpack(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Colours (…, 3) float in [0, 255] and extra (…) int32 of packed pixels."""
    colour = torch.stack([pixels & 255, pixels >> 8 & 255, pixels >> 16 & 255], -1)
    return colour.float(), pixels >> 24 & 255


def make_bank(pictures: Mapping[str, Sequence[Picture]]) -> PictureBank:
    """The bank of some pictures of each of KINDS."""
    for kind in KINDS:
        if not pictures.get(kind):
            raise InputError(f"pictures: there are no {kind}; at least one is taken.")
        for colour, extra in pictures[kind]:
            if fault := _fault(colour, extra):
                raise InputError(f"pictures: one of the {kind} {fault}.")
    shapes = {kind: [picture.extra.shape for picture in pictures[kind]] for kind in KINDS}
    return _assemble(shapes, lambda kind, number: pictures[kind][number])


def bank_picture(bank: PictureBank, kind: str, number: int) -> Picture:
    """A picture of a bank on the CPU, at its own size."""
    offset, height, width = getattr(bank, kind)[number, 0].tolist()
    colour, extra = unpack(bank.pixels[offset : offset + height * width].view(height, width))
    if kind == "cutouts":
        extra = 255 * (extra > DISTANCE_ZERO)
    return Picture(colour.byte().numpy(), extra.byte().numpy())


def save_bank(bank: PictureBank, path: StrPath) -> None:
    """Write a bank to a .safetensors file, whole or not at all; WebP changes its colours a little."""
    check_bank_name(path)
    bank = bank.to("cpu")
    counts = {kind: len(getattr(bank, kind)) for kind in KINDS}
    packed = {kind: [pack_picture(kind, bank_picture(bank, kind, i)) for i in range(counts[kind])] for kind in KINDS}
    save_pictures(packed, path)


def pack_picture(kind: str, picture: Picture) -> PackedPicture:
    """The bytes of a picture for `save_pictures`."""
    bgr = np.ascontiguousarray(picture.colour[..., ::-1])
    webp = cv2.imencode(".webp", bgr, [cv2.IMWRITE_WEBP_QUALITY, _WEBP_QUALITY])[1].tobytes()
    if kind == "materials":
        return PackedPicture(webp, b"")
    settings = [cv2.IMWRITE_PNG_COMPRESSION, 9, cv2.IMWRITE_PNG_BILEVEL, int(kind == "cutouts")]
    return PackedPicture(webp, cv2.imencode(".png", picture.extra, settings)[1].tobytes())


def save_pictures(pictures: Mapping[str, Sequence[PackedPicture]], path: StrPath) -> None:
    """Write packed pictures of each of KINDS to a .safetensors file that `read_bank` reads, whole or not at all."""
    check_bank_name(path)
    places: dict[bytes, int] = {}  # a photo with two segmentations is stored once
    length = 0
    for data in (part for kind in KINDS for picture in pictures[kind] for part in picture):
        if data not in places:
            places[data] = length
            length += len(data)
    rows = {kind: [[places[c], len(c), places[e], len(e)] for c, e in pictures[kind]] for kind in KINDS}
    tensors = {kind: torch.tensor(rows[kind], dtype=torch.int64) for kind in KINDS}
    tensors[_DATA] = torch.frombuffer(bytearray(b"".join(places)), dtype=torch.uint8)
    with atomic_path(path) as temporary:
        temporary.write_bytes(save(tensors, metadata={_VERSION_KEY: _VERSION}))


def check_bank_name(path: StrPath) -> None:
    """Raise InputError unless a bank can be called so."""
    if Path(path).suffix != BANK_SUFFIX:
        raise InputError(f"path: {str(path)!r} was given; a name that ends in {BANK_SUFFIX} is taken.")


def read_bank(path: StrPath) -> PictureBank:
    """The bank in a file of `save_bank` or `flowinpaint assets build`, on the CPU."""
    path = Path(path)
    packed = _read_packed(path)
    # What all headers say is checked before memory is taken for any picture.
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


def in_threads(function: Callable[[Item], Outcome], items: Sequence[Item], jobs: int) -> Generator[Outcome, None, None]:
    """What a function gives for each item, in their order, by several threads that an error or Ctrl-C stops."""
    # `decode_image` silences OpenCV and lets it speak again; threads may do so in the wrong order.
    level = cv2.utils.logging.getLogLevel()
    try:
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(function, items)
    finally:
        cv2.utils.logging.setLogLevel(level)


def _assemble(shapes: Mapping[str, Sequence[Shape]], picture: Callable[[str, int], Picture]) -> PictureBank:
    """The bank of pictures of known shapes, each asked for once, by several threads."""
    tables, length = {}, 0
    for kind in KINDS:
        rows = []
        for height, width in shapes[kind]:
            for size in range(SIZES):
                h, w = height >> size, width >> size
                rows.append([length, h, w])
                length += h * w
        tables[kind] = rows
    if length > _MOST_PIXELS:
        raise InputError(f"pictures: they have {length} pixels at all sizes; up to {_MOST_PIXELS} are taken.")
    pixels = torch.empty(length, dtype=torch.int32)
    buffer = pixels.numpy()

    def paint(place: tuple[str, int]) -> None:
        kind, number = place
        rows = tables[kind][SIZES * number :]
        for (offset, h, w), (colour, extra) in zip(rows, _all_sizes(kind, picture(kind, number)), strict=False):
            buffer[offset : offset + h * w] = np.dstack([colour, extra]).view("<i4").reshape(-1)

    places = [(kind, number) for kind in KINDS for number in range(len(shapes[kind]))]
    for _ in in_threads(paint, places, os.cpu_count() or 1):
        pass
    return PictureBank(
        pixels, **{k: torch.tensor(rows, dtype=torch.int32).view(-1, SIZES, 3) for k, rows in tables.items()}
    )


def _all_sizes(kind: str, picture: Picture) -> Iterator[Picture]:
    """The picture at SIZES sizes, its extra as in the bank."""
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
    """What keeps a bank from holding a picture of that size."""
    if min(height, width) >= MIN_SIDE and max(height, width) <= MAX_SIDE and height % STEP == width % STEP == 0:
        return None
    return f"is {width}x{height} px; sides of {MIN_SIDE} to {MAX_SIDE} px, multiples of {STEP}, are taken"


def _fault(colour: Bytes, extra: Bytes) -> str | None:
    if colour.dtype != np.uint8 or extra.dtype != np.uint8 or extra.ndim != 2 or colour.shape != (*extra.shape, 3):
        found = f"is {colour.dtype} {colour.shape} with {extra.dtype} {extra.shape}"
        return f"{found}; uint8 (H, W, 3) with uint8 (H, W) is taken"
    return side_fault(*extra.shape)


def _name(path: Path, kind: str, number: int) -> Path:
    return Path(f"{path}: {kind}[{number}]")


def _read_packed(path: Path) -> dict[str, list[PackedPicture]]:
    """The packed pictures in a file, whose tables point nowhere else than into its data."""
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file.")
    check_file(path, not path.is_file() and f"is a folder; a {BANK_SUFFIX} file is taken")
    try:
        with safe_open(path, framework="np") as file:
            version = (file.metadata() or {}).get(_VERSION_KEY)
            check_file(path, version is None and "it holds no bank of pictures; 'flowinpaint assets build' makes one")
            check_file(path, version != _VERSION and f"it holds a bank of version {version}; {_VERSION} is taken")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise FileFormatError(f"{path}: not a readable safetensors file: {error}.") from error
    expected = {_DATA, *KINDS}
    check_file(path, arrays.keys() != expected and f"has {sorted(arrays)}; a bank has {sorted(expected)}")
    data = arrays[_DATA]
    check_file(path, (data.dtype != np.uint8 or data.ndim != 1) and f"data is {data.dtype} {data.shape}")
    for kind in KINDS:
        table = arrays[kind]
        fits = table.dtype == np.int64 and table.ndim == 2 and table.shape[1] == 4 and len(table) > 0
        check_file(path, not fits and f"{kind} is {table.dtype} {table.shape}; int64 (N, 4), N > 0, is taken")
        start, length = table[:, ::2], table[:, 1::2]
        # Not start + length, which may overflow.
        inside = (start >= 0) & (length >= 0) & (start <= data.size) & (length <= data.size - start)
        check_file(path, not inside.all() and f"{kind} points outside of its {data.size} bytes of data")
        check_file(path, ((length[:, 1] == 0) != (kind == "materials")).any() and f"{kind} has the wrong extras")
    return {kind: [_slices(data, row) for row in arrays[kind].tolist()] for kind in KINDS}


def _slices(data: Bytes, row: list[int]) -> PackedPicture:
    start, length, other, other_length = row
    return PackedPicture(data[start : start + length].tobytes(), data[other : other + other_length].tobytes())


def _header_shape(path: Path, kind: str, number: int, packed: PackedPicture) -> Shape:
    """The height and width that the headers of a packed picture agree on."""
    name = _name(path, kind, number)
    sizes = set()
    for part in packed[:1] if kind == "materials" else packed:
        check_file(name, image_fault(part))
        sizes.add(image_size(part) or (0, 0))
    check_file(name, len(sizes) > 1 and "its colour and extra differ in size")
    width, height = sizes.pop()
    check_file(name, side_fault(height, width))
    return height, width
