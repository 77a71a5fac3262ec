"""The tags of TIFF files that say how large the image is, and where its strips or tiles are."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_TAGS = 1000
MOST_PARTS = 2**20
"""Most strips or tiles; OpenCV reads at most 2**20 rows."""
_MOST_JPEG_SCANS = 4

_CODES = {1: "u1", 3: "u2", 4: "u4", 16: "u8"}
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_TAGS = {256: "width", 257: "height", 258: "depth", 259: "packing", 262: "colour", 274: "orientation", 277: "samples"}
_TAGS |= {273: "places", 279: "lengths", 324: "places", 325: "lengths"}  # of strips, and of tiles
_TAGS |= {284: "planes", 322: "tile width", 323: "tile height", 338: "alpha"}
_JPEG = 7
_PACKINGS = {1: "none", 2: "CCITT", 3: "CCITT", 4: "CCITT", 5: "LZW", _JPEG: "JPEG", 8: "deflate", 32773: "PackBits"}
_PACKINGS |= {32946: "deflate"}
"""Without 32771, CCITT with rows of whole words, called tiff_raw_16 by PIL: libtiff decodes it to wrong pixels."""

Tags = dict[str, npt.NDArray[Any]]
"""By name: the values of a tag, as views into the file."""


def read_tags(data: bytes) -> tuple[Tags, str | bool]:
    """The tags of the first image, and the fault of their table, if any."""
    order = "<" if data[:1] == b"I" else ">"
    word, count, width = ("Q", "Q", 8) if 43 in data[2:4] else ("I", "H", 4)
    (start,) = struct.unpack_from(order + word, data, width)
    (entries,) = struct.unpack_from(order + count, data, start)
    start, step = start + struct.calcsize(order + count), 4 + 2 * width
    tags: Tags = {}
    total = 0
    for position in range(start, start + min(entries, MOST_TAGS) * step, step):
        tag, kind, length = struct.unpack_from(order + "HH" + word, data, position)
        total += _BYTES.get(kind, 1) * length
        name, place = _TAGS.get(tag), position + step - width
        if name and kind not in _CODES:  # which libtiff may accept
            return tags, f"the tag {tag} of a TIFF must hold unsigned integers, got type {kind}"
        if name and name not in tags and length:
            values = np.dtype(order + _CODES[kind])
            if values.itemsize * length > width:  # the entry's last word is their position
                (place,) = struct.unpack_from(order + word, data, place)
            if place + values.itemsize * length > len(data):
                raise struct.error
            tags[name] = np.frombuffer(data, values, length, place)
    if entries > MOST_TAGS:
        return tags, f"a TIFF must have at most {MOST_TAGS} tags, got {entries}"
    return tags, total > len(data) and f"truncated or forged: its tags need {total} bytes, the file has {len(data)}"


def first_of(tags: Tags, name: str) -> int:
    """The first value of a tag; 1 without it."""
    return int(tags[name][0]) if name in tags else 1


def tiff_faults(data: bytes, tags: Tags) -> Iterator[str | bool]:
    """Faults of a TIFF's layout, each false if absent."""
    width, height, depth, samples = (first_of(tags, name) for name in ("width", "height", "depth", "samples"))
    none = np.zeros(0, np.uint64)
    places, lengths = tags.get("places", none), tags.get("lengths", none)
    parts = min(len(places), len(lengths))
    yield parts > MOST_PARTS and f"a TIFF must have at most {MOST_PARTS} strips or tiles, got {parts}"
    places, lengths = (values[:parts].astype(np.float64) for values in (places, lengths))
    end = int((places + lengths).max(initial=0))
    yield end > len(data) and f"truncated: its TIFF data end at byte {end}, the file has {len(data)}"
    total, needed = int(lengths.sum()), width * height * depth * samples // 8
    yield total > len(data) and f"truncated or forged: its strips or tiles have {total} bytes, the file {len(data)}"
    packing = first_of(tags, "packing")
    known = ", ".join(dict.fromkeys(_PACKINGS.values()))
    yield packing not in _PACKINGS and f"the compression of a TIFF must be one of {known}, got number {packing}"
    short = packing == 1 and total < needed
    yield short and f"truncated: {width}x{height} pixels need {needed} bytes, its TIFF data have {total}"
    if packing == _JPEG:
        parts_of = zip(places.astype(int), (places + lengths).astype(int), strict=True)
        scans = max((data.count(b"\xff\xda", start, stop) for start, stop in parts_of), default=0)
        yield scans > _MOST_JPEG_SCANS and f"a JPEG in a TIFF must have at most {_MOST_JPEG_SCANS} scans, got {scans}"
    turn = first_of(tags, "orientation")
    yield turn != 1 and f"TIFF orientation {turn} would rotate it against its flow, it must be 1"
    yield samples > 4 and f"a TIFF must have at most 4 samples per pixel, got {samples}"
    # OpenCV premultiplies straight 8-bit alpha and reduces 16-bit grey with alpha to 8 bits.
    straight = 2 in tags.get("alpha", ()) and samples > 3 and depth == 8
    altered = straight or (samples == 2 and depth > 8)
    yield altered and "TIFF with this kind of alpha is not supported, save it without alpha"
    planar = first_of(tags, "planes") != 1 and samples > 1 and depth > 8  # OpenCV fills only a part of the pixels
    yield planar and "a TIFF of more than 8 bits must store the samples of a pixel together, got planes"


def decoded_area(tags: Tags) -> int:
    """The pixels of the image, or of its tiles, which may exceed it."""
    width, height = first_of(tags, "width"), first_of(tags, "height")
    if not tags.keys() & {"tile width", "tile height"}:
        return width * height
    across, down = max(first_of(tags, "tile width"), 1), max(first_of(tags, "tile height"), 1)
    return -(-width // across) * across * (-(-height // down) * down)


def decoded_pixel_bytes(tags: Tags) -> int:
    """Bytes of a pixel as OpenCV decodes it, at most."""
    samples, depth = first_of(tags, "samples"), first_of(tags, "depth")
    channels = 1 if samples == 1 and first_of(tags, "colour") in (0, 1) else max(samples, 3)
    return channels * (1 if depth <= 8 else 2 if depth <= 16 else 4 if depth <= 32 else 8)
