"""Encoders of image and array files in which every field can be set, for valid seeds and for forged files."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row, first column, step of rows and step of columns of each pass."""


def png_chunk(name: bytes, data: bytes) -> bytes:
    """A chunk with its length and checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    width: int,
    height: int,
    depth: int = 8,
    colour: int = 0,
    interlaced: bool = False,
    raster: bytes | None = None,
    extra: bytes = b"",
) -> bytes:
    """A PNG; raster: the bytes before compression, by default a pattern of the right length."""
    if raster is None:
        passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
        bits = depth * _PNG_CHANNELS[colour]
        sizes = [(-(-(height - y) // dy), -(-(width - x) // dx)) for y, x, dy, dx in passes]
        rows = [(h, (w * bits + 7) // 8) for h, w in sizes if h > 0 and w > 0]
        most = 2 if colour == 3 else 256  # palette indices
        raster = b"".join(b"\0" + bytes((7 * i + r) % most for i in range(n)) for h, n in rows for r in range(h))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    palette = png_chunk(b"PLTE", bytes(k % 256 for k in range(3 << depth))) if colour == 3 else b""
    packed = png_chunk(b"IDAT", zlib.compress(raster, 9))
    return PNG_SIGNATURE + png_chunk(b"IHDR", header) + palette + extra + packed + png_chunk(b"IEND", b"")


def bmp(width: int, height: int, depth: int = 24, packing: int = 0, raster: bytes | None = None) -> bytes:
    """A BMP; depth 8 has a grey palette."""
    palette = b"".join(bytes((k, k, k, 0)) for k in range(256)) if depth == 8 else b""
    if raster is None:
        row = (width * depth + 31) // 32 * 4
        raster = bytes(k % 251 for k in range(row * abs(height)))
    start = 54 + len(palette)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, depth, packing, len(raster), 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", start + len(raster), 0, 0, start) + header + palette + raster


def bmp_runs(width: int, height: int) -> bytes:
    """A BMP of 8 bits in runs, which takes two bytes for 255 pixels."""
    row = bytes((255, 7)) * (width // 255) + (bytes((width % 255, 9)) if width % 255 else b"") + b"\0\0"
    return bmp(width, height, 8, 1, row * height + b"\0\1")


def tiff(
    width: int,
    height: int,
    samples: int = 1,
    depth: int = 8,
    *,
    big_endian: bool = False,
    big: bool = False,
    tile: int = 0,
    deflated: bool = False,
    floating: bool = False,
    parts: Sequence[bytes] | None = None,
    extra: Sequence[tuple[int, int, int, int]] = (),
) -> bytes:
    """A TIFF in strips of four rows, or in square tiles. parts: the packed strips or tiles.

    extra: further entries tag, type, count, value.
    """
    order, word = (">" if big_endian else "<"), ("Q" if big else "I")
    rows = tile or 4
    across = -(-width // tile) if tile else 1
    if parts is None:
        size = (tile or width) * rows * samples * depth // 8
        parts = [bytes((3 * k + i) % 64 for k in range(size)) for i in range(across * -(-height // rows))]
        parts = [zlib.compress(part) if deflated else part for part in parts]
    start, places = 16 if big else 8, []
    for part in parts:
        places.append(start)
        start += len(part)
    layout = [(322, 3, [tile]), (323, 3, [tile]), (324, 4, places), (325, 4, [len(p) for p in parts])]
    if not tile:
        layout = [(273, 4, places), (278, 3, [rows]), (279, 4, [len(p) for p in parts])]
    entries: list[tuple[int, int, list[int]]] = [
        (256, 4, [width]),
        (257, 4, [height]),
        (258, 3, [depth] * samples),
        (259, 3, [8 if deflated else 1]),
        (262, 3, [2 if samples > 2 else 1]),
        (277, 3, [samples]),
        (339, 3, [3 if floating else 1] * samples),
        *layout,
    ]
    entries.sort()
    body, width_of_value, values = b"".join(parts), 8 if big else 4, b""
    directory = start
    count = len(entries) + len(extra)
    after = directory + (8 if big else 2) + count * (20 if big else 12) + width_of_value
    table = struct.pack(order + ("Q" if big else "H"), count)
    for tag, kind, numbers in entries:
        packed = struct.pack(f"{order}{len(numbers)}{'H' if kind == 3 else 'I'}", *numbers)
        table += struct.pack(order + "HH" + word, tag, kind, len(numbers))
        if len(packed) > width_of_value:
            table += struct.pack(order + word, after + len(values))
            values += packed
        else:
            table += packed.ljust(width_of_value, b"\0")
    for tag, kind, length, value in extra:
        table += struct.pack(order + "HH" + word + word, tag, kind, length, value)
    table += struct.pack(order + word, 0)
    mark = (b"MM" if big_endian else b"II") + struct.pack(order + "H", 43 if big else 42)
    mark += struct.pack(order + "HHQ", 8, 0, directory) if big else struct.pack(order + "I", directory)
    return mark + body + table + values


def npy(shape: Sequence[int], descr: str = "<f4", data: bytes | None = None, version: int = 1) -> bytes:
    """A .npy with this shape in its header, whatever the data."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    return npy_of(header, bytes(int(np.prod(shape)) * np.dtype(descr).itemsize) if data is None else data, version)


def npy_of(header: str, data: bytes, version: int = 1) -> bytes:
    """A .npy with this text as its header."""
    length = struct.pack("<H" if version == 1 else "<I", len(header) + 1)
    return b"\x93NUMPY" + bytes((version, 0)) + length + header.encode("latin1") + b"\n" + data


def npz(members: Mapping[str, bytes], packed: bool = True) -> bytes:
    """An archive of these files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, archive.compression)
    return stream.getvalue()


def with_zip_sizes(data: bytes, unpacked: int) -> bytes:
    """An archive whose directory and local headers claim this size for every member."""
    forged = bytearray(data)
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        position = forged.find(mark)
        while position >= 0:
            forged[position + place : position + place + 4] = struct.pack("<I", unpacked & 0xFFFFFFFF)
            position = forged.find(mark, position + 4)
    return bytes(forged)


def safetensors(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with this text as its header, and this length of it."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data
