"""Headers of image files: size, and checks that run before OpenCV allocates memory for the pixels.

A reader of headers yields the `Header`, then faults: phrases to append to "<file>: ", false if absent. It returns the
bytes to decode: those without animations, colour profiles and notes, whose decoders nothing limits.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from flowinpaint.errors import FileFormatError, check_file
from flowinpaint.io.budget import check_budget, check_expansion
from flowinpaint.io.jpeg import checked_jpeg, read_frame, segments
from flowinpaint.io.tiff import decoded_area, decoded_pixel_bytes, first_of, read_tags, tiff_faults

# The largest ratio by which a deflate stream can expand.
MAX_EXPANSION = 1032
MOST_CHUNKS = 2**17
_TEXT_HEADER = 4096
"""Bytes of a PNM that its header may have, with comments."""

_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PNG_ANIMATION = (b"acTL", b"fcTL", b"fdAT")
_ANCILLARY = 0x20
"""Bit of the first byte of a PNG chunk that is not needed for the colours: also of tRNS, which only adds alpha."""
_PNM_NUMBER = rb"(?:\s|#[^\n]*\n)+(\d{1,10})"
_PNM_BITMAP = re.compile(rb"P([14])" + 2 * _PNM_NUMBER + rb"\s?")
_PNM_PIXMAP = re.compile(rb"P([2356])" + 3 * _PNM_NUMBER + rb"\s?")


class Header(NamedTuple):
    """Size in pixels, and how many bytes OpenCV decodes them to, at most.

    packed: whether few bytes can hold many pixels. working: bytes that the decoder needs besides.
    """

    width: int
    height: int
    decoded: int
    packed: bool = True
    working: int = 0


class Picture(NamedTuple):
    """An image file that its headers describe as complete.

    data: the bytes to decode.
    """

    width: int
    height: int
    data: bytes


Findings = Generator[Header | str | bool | None, None, bytes]


def image_kind(data: bytes) -> str | None:
    """The format that the first bytes announce, or None."""
    return next((kind for kind, (signature, _) in _KINDS.items() if re.match(signature, data, re.DOTALL)), None)


def check_image_file(path: Path, data: bytes) -> Picture:
    """The picture in `data`; FileFormatError about `path` unless its headers say that it is complete.

    Its size is checked before anything else.
    """
    kind = image_kind(data)
    if kind is None:
        raise FileFormatError(f"{path}: must be an image in one of the formats {', '.join(_KINDS)}")
    findings = _KINDS[kind][1](data)
    try:
        header = next(findings)
    except (struct.error, OverflowError, StopIteration):
        header = None
    if not isinstance(header, Header):
        raise FileFormatError(f"{path}: truncated or damaged: its {kind} header has no size")
    check_file(path, size_fault(header.width, header.height))
    check_budget(path, header.decoded + header.working)
    if header.packed:
        check_expansion(path, header.decoded, len(data), header.width * header.height)
    try:
        while True:
            check_file(path, next(findings))  # type: ignore[arg-type]
    except StopIteration as end:
        return Picture(header.width, header.height, end.value)
    except (struct.error, OverflowError):
        raise FileFormatError(f"{path}: truncated: its {kind} data end after {len(data)} bytes") from None


def size_fault(width: int, height: int, needed: int = 0, present: int = 0, longer: bool = False) -> str | None:
    """The fault of a size in pixels, of any file format, whose file needs `needed` bytes and has `present`.

    longer: the format allows more bytes than it needs.
    """
    if width < 1 or height < 1:
        return f"must have at least 1x1 pixels, got {width}x{height}"
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
        return data
    width, height = struct.unpack_from(">II", data, 16)
    depth, colour = png_layout(data)
    # OpenCV turns palettes into colours and grey with alpha into four channels.
    channels = {0: 1, 2: 3, 3: 3}.get(colour, 4)
    yield Header(width, height, width * height * channels * (2 if depth == 16 else 1))
    view, position, packed, name, count = memoryview(data), 8, 0, b"", 0
    kept = [view[:8]]
    while name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        fault = f"truncated: the header says {width}x{height}, its last chunk ends after byte {len(data)}"
        yield end > len(data) and fault
        wrong = zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big")
        yield wrong and f"damaged: the checksum of the chunk at byte {position} is wrong"
        yield name in _PNG_ANIMATION and "must be a still picture, got an animated PNG"
        packed += length if name == b"IDAT" else 0
        if not name[0] & _ANCILLARY:
            kept.append(view[position:end])
        position, count = end, count + 1
        yield count > MOST_CHUNKS and f"a PNG must have at most {MOST_CHUNKS} chunks"
    yield position != len(data) and f"too long: the PNG ends at byte {position}, the file has {len(data)}"
    yield _packed_fault(packed, width, height, depth * _PNG_CHANNELS.get(colour, 1) / 8)
    return data if len(kept) == count + 1 else b"".join(kept)


def _jpeg(data: bytes) -> Findings:
    found = list(segments(data))
    frame = read_frame(data, found)
    if frame is None:
        return data
    several = frame.marker == 0xC2 or sum(segment.marker == 0xDA for segment in found) > 1
    coefficients = 2 * frame.samples if several else 0
    yield Header(frame.width, frame.height, frame.samples, working=coefficients)
    # A block of 64 pixels takes at least one bit, well within the limit for deflate.
    yield _packed_fault(len(data), frame.width, frame.height)
    return (yield from checked_jpeg(data, found, frame))


def _bmp(data: bytes) -> Findings:
    start, header = struct.unpack_from("<II", data, 10)
    width, rows = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    height = abs(rows)  # negative: the top row comes first
    layout = struct.unpack_from("<H", data, 24) if header == 12 else struct.unpack_from("<HI", data, 28)
    depth, packing = (*layout, 0)[:2]
    yield Header(width, height, width * height * (4 if depth == 32 else 3), packed=packing in (1, 2))
    if packing in (1, 2):  # runs of at most 255 pixels in two bytes
        yield _packed_fault(len(data), width, height)
    else:
        yield size_fault(width, height, start + (width * depth + 31) // 32 * 4 * height, len(data), longer=True)
    return data


def _tiff(data: bytes) -> Findings:
    tags, fault = read_tags(data)
    if not {"width", "height"} <= tags.keys():
        return data
    width, height = first_of(tags, "width"), first_of(tags, "height")
    yield Header(width, height, decoded_area(tags) * decoded_pixel_bytes(tags), first_of(tags, "packing") != 1)
    yield fault
    yield from tiff_faults(data, tags)
    if "tile width" in tags:
        yield size_fault(first_of(tags, "tile width"), first_of(tags, "tile height"))
    return data


def _pnm(data: bytes) -> Findings:
    start = data[:_TEXT_HEADER]
    bitmap = _PNM_BITMAP.match(start)
    match = bitmap or _PNM_PIXMAP.match(start)
    if match is None:
        return data
    digit, width, height = (int(match[k]) for k in (1, 2, 3))
    top = 255 if bitmap else int(match[4])
    samples = width * height * (3 if digit in (3, 6) else 1)
    yield Header(width, height, samples * (1 if top == 255 else 2), packed=digit == 4)
    # OpenCV scales other ranges only for some of the six kinds.
    yield top not in (255, 65535) and f"the maximum value of a PNM must be 255 or 65535, got {top}"
    if digit < 4:
        yield size_fault(width, height, match.end() + samples, len(data), longer=True)
        return data + b"\n"  # OpenCV wants a space behind the last number
    raster = (width + 7) // 8 * height if digit == 4 else samples * (1 if top == 255 else 2)
    yield size_fault(width, height, match.end() + raster, len(data))
    return data


def _webp(data: bytes) -> Findings:
    extended = data[12:16] == b"VP8X"
    place = 12
    if extended:
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        width, height = (high_w << 16 | low_w) + 1, (high_h << 16 | low_h) + 1
        yield Header(width, height, 4 * width * height)
        for _ in range(MOST_CHUNKS):
            name, length = struct.unpack_from("<4sI", data, place)
            yield name in (b"ANIM", b"ANMF") and "must be a still picture, got an animated WebP"
            if name in (b"VP8L", b"VP8 "):
                break
            place += 8 + length + length % 2
        else:
            yield f"a WebP must have at most {MOST_CHUNKS} chunks before its frame"
    size = _webp_size(data, place)
    if size is None:
        return data
    if extended:
        yield size != (width, height) and f"damaged: its frame must have {width}x{height} pixels, got {size}"
    else:
        width, height = size
        yield Header(width, height, 4 * width * height)
    yield size_fault(width, height, 8 + int.from_bytes(data[4:8], "little"), len(data), longer=True)
    if not extended:
        return data
    # Without alpha, animations, profiles and notes.
    end = place + 8 + int.from_bytes(data[place + 4 : place + 8], "little")
    frame = data[place : end + end % 2]
    return b"RIFF" + struct.pack("<I", 4 + len(frame)) + b"WEBP" + frame


def _webp_size(data: bytes, place: int) -> tuple[int, int] | None:
    """The size in the frame at a place; None if there is no frame."""
    name = data[place : place + 4]
    if name == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, place + 9)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if name == b"VP8 ":
        width, height = (x & 0x3FFF for x in struct.unpack_from("<HH", data, place + 14))
        return width, height
    return None


_KINDS: dict[str, tuple[bytes, Callable[[bytes], Findings]]] = {
    "PNG": (rb"\x89PNG\r\n\x1a\n", _png),
    "JPEG": (rb"\xff\xd8\xff", _jpeg),
    "BMP": (rb"BM", _bmp),
    "TIFF": (rb"II[*+]\x00|MM\x00[*+]", _tiff),
    "PNM": (rb"P[1-6][\s#]", _pnm),
    "WebP": (rb"RIFF....WEBP", _webp),
}
"""By name: the bytes a file starts with, a regular expression, and the reader of its headers."""
