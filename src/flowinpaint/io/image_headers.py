"""Headers of image files: size, and checks that run before OpenCV allocates memory for the pixels.

A fault is a phrase to append to "<file>: ", or None.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator

MAX_PIXELS = 2**28

# The largest ratio by which a deflate stream can expand.
MAX_EXPANSION = 1032

Size = tuple[int, int]
Tags = dict[str, tuple[int, ...]]

_SIGNATURES = {
    "PNG": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "JPEG": re.compile(rb"\xff\xd8\xff"),
    "BMP": re.compile(rb"BM"),
    "TIFF": re.compile(rb"II[*+]\x00|MM\x00[*+]"),
    "PNM": re.compile(rb"P[1-6][\s#]"),
    "WebP": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
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
    return next((kind for kind, signature in _SIGNATURES.items() if signature.match(data)), None)


def image_size(data: bytes) -> Size | None:
    """Width and height in pixels according to the header, or None."""
    kind = image_kind(data)
    try:
        return _KINDS[kind][0](data) if kind else None
    except (struct.error, OverflowError):
        return None


def size_fault(width: int, height: int, needed: int = 0, present: int = 0) -> str | None:
    """The fault of a size in pixels whose file should have `needed` bytes and has `present`."""
    if width < 1 or height < 1:
        return f"the header says {width}x{height}, an invalid size"
    if width * height > MAX_PIXELS:
        return f"the header says {width}x{height}, more than the limit of {MAX_PIXELS} pixels"
    if needed == present:
        return None
    word = "truncated" if present < needed else "too long"
    return f"{word}: the header says {width}x{height} ({needed} bytes), the file has {present}"


def image_fault(data: bytes) -> str | None:
    """The reason why `data` is not a complete image of at most MAX_PIXELS pixels, as far as headers tell."""
    kind = image_kind(data)
    if kind is None:
        return f"unknown image format; supported are {', '.join(_SIGNATURES)}"
    size = image_size(data)
    if size is None:
        return f"truncated or damaged: its {kind} header has no size"
    try:
        return size_fault(*size) or _KINDS[kind][1](data, *size)
    except (struct.error, OverflowError):
        return f"truncated: its {kind} data end after {len(data)} bytes"


def png_layout(data: bytes) -> tuple[int, int]:
    """Bit depth and colour type (0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA) of a PNG."""
    depth, colour = struct.unpack_from("BB", data, 24)
    return depth, colour


def _png_size(data: bytes) -> Size | None:
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _png_fault(data: bytes, width: int, height: int) -> str | None:
    view, position, packed, name = memoryview(data), 8, 0, b""
    while name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if end > len(data):
            return f"truncated: the header says {width}x{height}, its last chunk ends after byte {len(data)}"
        if zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            return f"damaged: the checksum of the chunk at byte {position} is wrong"
        packed += length if name == b"IDAT" else 0
        position = end
    if position != len(data):
        return f"too long: the PNG ends at byte {position}, the file has {len(data)}"
    depth, colour = png_layout(data)
    return _packed_fault(packed, width, height, depth * _PNG_CHANNELS.get(colour, 1) / 8)


def _packed_fault(packed: int, width: int, height: int, pixel_bytes: float = 1) -> str | None:
    if width * height * pixel_bytes > MAX_EXPANSION * packed:
        return f"truncated or forged: the header says {width}x{height}, {packed} packed bytes cannot hold that"
    return None


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Each marker and the position after it. Segments are skipped whole because they may hold thumbnails."""
    position = 2
    while match := _JPEG_MARKER.search(data, position):
        marker, position = match[1][0], match.end()
        yield marker, position
        if marker == _JPEG_END:
            return
        position += int.from_bytes(data[position : position + 2], "big")


def _jpeg_size(data: bytes) -> Size | None:
    for marker, position in _jpeg_segments(data):
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 3)
            return width, height
    return None


def _jpeg_fault(data: bytes, width: int, height: int) -> str | None:
    # Decoders fill missing data with grey. Bytes after the end marker are common and harmless.
    if all(marker != _JPEG_END for marker, _ in _jpeg_segments(data)):
        return f"truncated: the header says {width}x{height}, the file has no end-of-image marker"
    # A block of 64 pixels takes at least one bit, well within the limit for deflate.
    return _packed_fault(len(data), width, height)


def _bmp_size(data: bytes) -> Size:
    old = data[14:18] == b"\x0c\x00\x00\x00"
    width, height = struct.unpack_from("<HH" if old else "<ii", data, 18)
    return width, abs(height)  # negative: the top row comes first


def _bmp_fault(data: bytes, width: int, height: int) -> str | None:
    start, header = struct.unpack_from("<II", data, 10)
    layout = struct.unpack_from("<H", data, 24) if header == 12 else struct.unpack_from("<HI", data, 28)
    depth, packing = (*layout, 0)[:2]
    if packing in (1, 2):  # runs of at most 255 pixels in two bytes
        return _packed_fault(len(data), width, height)
    needed = start + (width * depth + 31) // 32 * 4 * height
    return size_fault(width, height, needed, len(data)) if needed > len(data) else None


def _tiff_tags(data: bytes) -> Tags:
    """The tags in _TIFF_TAGS of the first image."""
    order = "<" if data[:1] == b"I" else ">"
    big = 43 in data[2:4]
    word, count, step = ("Q", "Q", 20) if big else ("I", "H", 12)
    (start,) = struct.unpack_from(order + word, data, 8 if big else 4)
    (entries,) = struct.unpack_from(order + count, data, start)
    start += struct.calcsize(order + count)
    tags: Tags = {}
    for position in range(start, start + entries * step, step):
        tag, kind, length = struct.unpack_from(order + "HH" + word, data, position)
        name = _TIFF_TAGS.get(tag)
        if name and name not in tags and kind in _TIFF_CODES and length:
            tags[name] = _tiff_values(data, order + word, position + step, f"{order}{length}{_TIFF_CODES[kind]}")
    return tags


def _tiff_values(data: bytes, word: str, end: int, values: str) -> tuple[int, ...]:
    """The values of the entry that ends at `end`: in its last word if they fit, else where that word points."""
    place = end - struct.calcsize(word)
    if struct.calcsize(values) > struct.calcsize(word):
        (place,) = struct.unpack_from(word, data, place)
    return struct.unpack_from(values, data, place)


def _tiff_size(data: bytes) -> Size | None:
    tags = _tiff_tags(data)
    return (tags["width"][0], tags["height"][0]) if {"width", "height"} <= tags.keys() else None


def _tiff_fault(data: bytes, width: int, height: int) -> str | None:
    tags = _tiff_tags(data)
    first = {name: tags.get(name, (1,))[0] for name in _TIFF_TAGS.values()}
    places, lengths = tags.get("places", ()), tags.get("lengths", ())
    end = max((place + length for place, length in zip(places, lengths, strict=False)), default=0)
    if end > len(data):
        return f"truncated: its TIFF data end at byte {end}, the file has {len(data)}"
    needed = width * height * first["depth"] * first["samples"] // 8
    if first["packing"] == 1 and sum(lengths) < needed:
        return f"truncated: {width}x{height} pixels need {needed} bytes, its TIFF data have {sum(lengths)}"
    if first["orientation"] != 1:
        return f"TIFF orientation {first['orientation']} would rotate it against its flow, it must be 1"
    # OpenCV premultiplies straight 8-bit alpha and reduces 16-bit grey with alpha to 8 bits.
    straight = 2 in tags.get("alpha", ()) and first["samples"] > 3 and first["depth"] == 8
    if straight or (first["samples"] == 2 and first["depth"] > 8):
        return "TIFF with this kind of alpha is not supported, save it without alpha"
    return size_fault(first["tile width"], first["tile height"])


def _pnm_match(data: bytes) -> re.Match[bytes] | None:
    return _PNM_BITMAP.match(data) or _PNM_PIXMAP.match(data)


def _pnm_size(data: bytes) -> Size | None:
    match = _pnm_match(data)
    return (int(match[2]), int(match[3])) if match else None


def _pnm_fault(data: bytes, width: int, height: int) -> str | None:
    match = _pnm_match(data)
    assert match is not None  # because it has a width
    digit, top = int(match[1]), int(match[4]) if match.re is _PNM_PIXMAP else 255
    if top not in (255, 65535):  # OpenCV scales other ranges only for some of the six kinds
        return f"the maximum value of a PNM must be 255 or 65535, got {top}"
    samples = width * height * (3 if digit in (3, 6) else 1)
    if digit < 4:
        needed = match.end() + samples
        return size_fault(width, height, needed, len(data)) if needed > len(data) else None
    raster = (width + 7) // 8 * height if digit == 4 else samples * (1 if top == 255 else 2)
    return size_fault(width, height, match.end() + raster, len(data))


def _webp_size(data: bytes) -> Size | None:
    if data[12:16] == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        return (high_w << 16 | low_w) + 1, (high_h << 16 | low_h) + 1
    if data[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _webp_fault(data: bytes, width: int, height: int) -> str | None:
    needed = 8 + int.from_bytes(data[4:8], "little")
    return size_fault(width, height, needed, len(data)) if needed > len(data) else None


_KINDS: dict[str, tuple[Callable[[bytes], Size | None], Callable[[bytes, int, int], str | None]]] = {
    "PNG": (_png_size, _png_fault),
    "JPEG": (_jpeg_size, _jpeg_fault),
    "BMP": (_bmp_size, _bmp_fault),
    "TIFF": (_tiff_size, _tiff_fault),
    "PNM": (_pnm_size, _pnm_fault),
    "WebP": (_webp_size, _webp_fault),
}
