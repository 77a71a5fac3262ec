"""Headers of image files: size, and checks that run before OpenCV allocates memory for the pixels.

A fault is a phrase to append to "<file>: ", or None.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flowinpaint.errors import FileFormatError, check_file

MAX_PIXELS = 2**28

# The largest ratio by which a deflate stream can expand.
MAX_EXPANSION = 1032

Size = tuple[int, int]
Findings = Iterator[Any]
"""Result of a header reader: the size (width, height), unless there is none; then faults, each false if absent."""

# 0xFF followed by 0x00 or 0xD0-0xD7 is coded data of a scan, not a segment.
_JPEG_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_JPEG_END = 0xD9
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PNM_NUMBER = rb"(?:\s|#[^\n]*\n)+(\d{1,10})"
_PNM_BITMAP = re.compile(rb"P([14])" + 2 * _PNM_NUMBER + rb"\s?")
_PNM_PIXMAP = re.compile(rb"P([2356])" + 3 * _PNM_NUMBER + rb"\s?")
_TIFF_CODES = {1: "B", 3: "H", 4: "I", 16: "Q"}
_TIFF_TAGS = {256: "width", 257: "height", 258: "depth", 259: "packing", 274: "orientation", 277: "samples"}
_TIFF_TAGS |= {273: "places", 279: "lengths", 324: "places", 325: "lengths"}  # of strips, and of tiles
_TIFF_TAGS |= {322: "tile width", 323: "tile height", 338: "alpha"}


def image_kind(data: bytes) -> str | None:
    """The format that the first bytes announce, or None."""
    return next((kind for kind, (signature, _) in _KINDS.items() if re.match(signature, data, re.DOTALL)), None)


def check_image_file(path: Path, data: bytes) -> Size:
    """Width and height of the image `data`; FileFormatError about `path` unless its headers say that it is complete.

    Its size is checked before anything else.
    """
    kind = image_kind(data)
    if kind is None:
        raise FileFormatError(f"{path}: must be an image in one of the formats {', '.join(_KINDS)}")
    findings = _KINDS[kind][1](data)
    try:
        width, height = next(findings)
    except (struct.error, OverflowError, StopIteration):
        raise FileFormatError(f"{path}: truncated or damaged: its {kind} header has no size") from None
    check_file(path, size_fault(width, height))
    try:
        for fault in findings:
            check_file(path, fault)
    except (struct.error, OverflowError):
        raise FileFormatError(f"{path}: truncated: its {kind} data end after {len(data)} bytes") from None
    return width, height


def size_fault(width: int, height: int, needed: int = 0, present: int = 0, longer: bool = False) -> str | None:
    """The fault of a size in pixels, of any file format, whose file needs `needed` bytes and has `present`.

    longer: the format allows more bytes than it needs.
    """
    if width < 1 or height < 1:
        return f"must have at least 1x1 pixels, got {width}x{height}"
    if width * height > MAX_PIXELS:
        return f"must have at most {MAX_PIXELS} pixels, got {width}x{height}"
    if needed == present or (longer and needed < present):
        return None
    word = "truncated" if present < needed else "too long"
    return f"{word}: the header says {width}x{height} ({needed} bytes), the file has {present}"


def _packed_fault(packed: int, width: int, height: int, pixel_bytes: float = 1) -> str | None:
    if width * height * pixel_bytes > MAX_EXPANSION * packed:
        return f"truncated or forged: the header says {width}x{height}, {packed} packed bytes cannot hold that"
    return None


def png_layout(data: bytes) -> tuple[int, int]:
    """Bit depth and colour type (0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA) of a PNG."""
    depth, colour = struct.unpack_from("BB", data, 24)
    return depth, colour


def _png(data: bytes) -> Findings:
    if data[12:16] != b"IHDR":
        return
    width, height = struct.unpack_from(">II", data, 16)
    yield width, height
    view, position, packed, name = memoryview(data), 8, 0, b""
    while name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        fault = f"truncated: the header says {width}x{height}, its last chunk ends after byte {len(data)}"
        yield end > len(data) and fault
        wrong = zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big")
        yield wrong and f"damaged: the checksum of the chunk at byte {position} is wrong"
        packed += length if name == b"IDAT" else 0
        position = end
    yield position != len(data) and f"too long: the PNG ends at byte {position}, the file has {len(data)}"
    depth, colour = png_layout(data)
    yield _packed_fault(packed, width, height, depth * _PNG_CHANNELS.get(colour, 1) / 8)


def _jpeg(data: bytes) -> Findings:
    places: dict[int, int] = {}  # of the first segment with each marker
    position = 2
    while _JPEG_END not in places and (match := _JPEG_MARKER.search(data, position)):
        position = match.end()
        places.setdefault(match[1][0], position)
        position += int.from_bytes(data[position : position + 2], "big")  # to the next: it may hold a thumbnail
    frame = next((place for marker, place in places.items() if marker in _JPEG_FRAMES), len(data))
    height, width = struct.unpack_from(">HH", data, frame + 3)
    yield width, height
    # Decoders fill missing data with grey. Bytes after the end marker are common and harmless.
    endless = _JPEG_END not in places
    yield endless and f"truncated: the header says {width}x{height}, the file has no end-of-image marker"
    # A block of 64 pixels takes at least one bit, well within the limit for deflate.
    yield _packed_fault(len(data), width, height)


def _bmp(data: bytes) -> Findings:
    start, header = struct.unpack_from("<II", data, 10)
    width, rows = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    height = abs(rows)  # negative: the top row comes first
    yield width, height
    layout = struct.unpack_from("<H", data, 24) if header == 12 else struct.unpack_from("<HI", data, 28)
    depth, packing = (*layout, 0)[:2]
    if packing in (1, 2):  # runs of at most 255 pixels in two bytes
        yield _packed_fault(len(data), width, height)
    else:
        yield size_fault(width, height, start + (width * depth + 31) // 32 * 4 * height, len(data), longer=True)


def _tiff_tags(data: bytes) -> dict[str, tuple[int, ...]]:
    """The tags in _TIFF_TAGS of the first image."""
    order = "<" if data[:1] == b"I" else ">"
    word, count, width = ("Q", "Q", 8) if 43 in data[2:4] else ("I", "H", 4)
    (start,) = struct.unpack_from(order + word, data, width)
    (entries,) = struct.unpack_from(order + count, data, start)
    start, step = start + struct.calcsize(order + count), 4 + 2 * width
    tags: dict[str, tuple[int, ...]] = {}
    for position in range(start, start + entries * step, step):
        tag, kind, length = struct.unpack_from(order + "HH" + word, data, position)
        name = _TIFF_TAGS.get(tag)
        if name and name not in tags and kind in _TIFF_CODES and length:
            values, place = f"{order}{length}{_TIFF_CODES[kind]}", position + step - width
            if struct.calcsize(values) > width:  # the entry's last word is their position
                (place,) = struct.unpack_from(order + word, data, place)
            tags[name] = struct.unpack_from(values, data, place)
    return tags


def _tiff(data: bytes) -> Findings:
    tags = _tiff_tags(data)
    if not {"width", "height"} <= tags.keys():
        return
    first = {name: tags.get(name, (1,))[0] for name in _TIFF_TAGS.values()}
    width, height = first["width"], first["height"]
    yield width, height
    places, lengths = tags.get("places", ()), tags.get("lengths", ())
    end = max((place + length for place, length in zip(places, lengths, strict=False)), default=0)
    yield end > len(data) and f"truncated: its TIFF data end at byte {end}, the file has {len(data)}"
    needed = width * height * first["depth"] * first["samples"] // 8
    short = first["packing"] == 1 and sum(lengths) < needed
    yield short and f"truncated: {width}x{height} pixels need {needed} bytes, its TIFF data have {sum(lengths)}"
    turn = first["orientation"]
    yield turn != 1 and f"TIFF orientation {turn} would rotate it against its flow, it must be 1"
    # OpenCV premultiplies straight 8-bit alpha and reduces 16-bit grey with alpha to 8 bits.
    straight = 2 in tags.get("alpha", ()) and first["samples"] > 3 and first["depth"] == 8
    altered = straight or (first["samples"] == 2 and first["depth"] > 8)
    yield altered and "TIFF with this kind of alpha is not supported, save it without alpha"
    yield size_fault(first["tile width"], first["tile height"])


def _pnm(data: bytes) -> Findings:
    bitmap = _PNM_BITMAP.match(data)
    match = bitmap or _PNM_PIXMAP.match(data)
    if match is None:
        return
    digit, width, height = (int(match[k]) for k in (1, 2, 3))
    yield width, height
    top = 255 if bitmap else int(match[4])
    # OpenCV scales other ranges only for some of the six kinds.
    yield top not in (255, 65535) and f"the maximum value of a PNM must be 255 or 65535, got {top}"
    samples = width * height * (3 if digit in (3, 6) else 1)
    if digit < 4:
        yield size_fault(width, height, match.end() + samples, len(data), longer=True)
    else:
        raster = (width + 7) // 8 * height if digit == 4 else samples * (1 if top == 255 else 2)
        yield size_fault(width, height, match.end() + raster, len(data))


def _webp(data: bytes) -> Findings:
    if data[12:16] == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        width, height = (high_w << 16 | low_w) + 1, (high_h << 16 | low_h) + 1
    elif data[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif data[12:16] == b"VP8 ":
        width, height = (x & 0x3FFF for x in struct.unpack_from("<HH", data, 26))
    else:
        return
    yield width, height
    yield size_fault(width, height, 8 + int.from_bytes(data[4:8], "little"), len(data), longer=True)


_KINDS: dict[str, tuple[bytes, Callable[[bytes], Findings]]] = {
    "PNG": (rb"\x89PNG\r\n\x1a\n", _png),
    "JPEG": (rb"\xff\xd8\xff", _jpeg),
    "BMP": (rb"BM", _bmp),
    "TIFF": (rb"II[*+]\x00|MM\x00[*+]", _tiff),
    "PNM": (rb"P[1-6][\s#]", _pnm),
    "WebP": (rb"RIFF....WEBP", _webp),
}
"""By name: the bytes a file starts with, a regular expression, and the reader of its headers."""
