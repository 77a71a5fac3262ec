"""Hostile files, made by hand and by small grammars: forged sizes, bombs, deep nesting, odd names, things not files.

`hostile()` yields the same cases in the same order in every process.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import cv2
import numpy as np

from fuzz import encoders, mutations
from fuzz.corpus import Seed, seeds

TINY_WEBP = bytes.fromhex("524946461a000000574542505650384c0e0000002ffebfff0f071011fd0f4444ff03")
"""34 bytes, 16383x16383 pixels."""
SIZES = (0, 1, 2, 255, 4096, 16383, 16384, 32767, 65535, 65536, 2**20, 2**28, 2**31 - 1, 2**31, 2**32 - 1)
CHANNELS = (
    "()",
    "(0,)",
    "(4, 0)",
    "(1000, 1000, 400)",
    "(1, 1, 100000000)",
    "(100000000, 1)",
    "(-1, -1)",
    "(2**31, 2**31)",
)
NAMES = ("new\nline", "tab\t", "ünïcode-☃", "quote'\"", "-rf", "%s%n{}", "x" * 200, ".hidden", "a b", "\x01", "emoji😀")
MEBI = 1 << 20


class Special(NamedTuple):
    """What is at the path in place of a file with these bytes."""

    kind: str


Content = bytes | Special | Callable[[], bytes]
"""Bytes, something else at the path, or a function that makes the bytes: bombs are large."""


class Case(NamedTuple):
    """A file for a reader, with the files next to it."""

    reader: str
    name: str
    data: Content
    suffix: str
    file: str = ""
    files: dict[str, bytes] = {}  # noqa: RUF012 (never changed)


SPECIALS: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "loop": lambda path: path.symlink_to(path.name),
    "broken link": lambda path: path.symlink_to("nowhere"),
    "link to a folder": lambda path: path.symlink_to("."),
    "process": lambda path: path.symlink_to("/proc/self/mem"),
    "kernel": lambda path: path.symlink_to("/proc/self/pagemap"),
    "sparse file": lambda path: _sparse(path, 2**36),
    "sparse file of 2 GiB": lambda path: _sparse(path, 2**31 + 12),
}
"""Things at a path that are not a file with bytes."""


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _one_of_each() -> list[Seed]:
    """The first seed of each reader and suffix."""
    found: dict[tuple[str, str], Seed] = {}
    for seed in seeds():
        found.setdefault((seed.reader, seed.suffix), seed)
    return list(found.values())


def _case(seed: Seed, name: str, data: Content, file: str | None = None) -> Case:
    return Case(seed.reader, name, data, seed.suffix, seed.file if file is None else file, seed.files)


def _not_files() -> Iterator[Case]:
    for seed in _one_of_each():
        for kind in SPECIALS:
            yield _case(seed, kind, Special(kind))


def _contents() -> Iterator[Case]:
    """Contents that no reader expects, and those of the other formats."""
    plain = {
        "empty": b"",
        "a byte": b"x",
        "zeros": bytes(1000),
        "blanks": b" " * MEBI,
        "line feeds": b"\n" * MEBI,
        "0xff": b"\xff" * 4096,
        "a million zeros": bytes(MEBI),
        "brackets": b"[" * MEBI,
        "braces": b'{"a":' * 200_000,
        "closed brackets": b"[" * 50_000 + b"]" * 50_000,
        "quote": b'"' + b"\\u0041" * 100_000,
        "digits": b"1" * MEBI,
        "nine digits": b"9" * 5000 + b" 1\n",
        "commas": b"," * MEBI,
        "one line of numbers": b"1 " * 500_000,
        "byte order mark": b"\xef\xbb\xbf1 2 3 4\n",
        "utf-16": "1 2 3 4\n".encode("utf-16"),
        "surrogates": b"\xed\xa0\x80\xed\xb0\x80",
        "carriage returns": b"1 2 3 4\r" * 1000,
        "shell": b"#!/bin/sh\nexit 1\n",
        "pickle": b"\x80\x04cos\nsystem\n(S'false'\ntR.",
        "webp bomb": TINY_WEBP,
    }
    starts = {seed.suffix: seed.data for seed in _one_of_each()}
    for seed in _one_of_each():
        for name, data in plain.items():
            yield _case(seed, name, data)
        for suffix, data in starts.items():
            if suffix != seed.suffix:
                yield _case(seed, f"content of a {suffix or 'SHA256SUMS'}", data)


def _names() -> Iterator[Case]:
    for seed in _one_of_each():
        if not seed.file:
            for k, name in enumerate(NAMES):
                data = seed.data if k % 2 else seed.data[: len(seed.data) // 2]
                yield _case(seed, f"name {name[:12]!r}", data, name + seed.suffix)


def _image(name: str, data: Content, suffix: str) -> Case:
    return Case("image", name, data, suffix)


def _forged_sizes() -> Iterator[Case]:
    """Every pair of sizes in every header, with little or no data behind it."""
    for width, height in itertools.product(SIZES, repeat=2):
        size = f"{width}x{height}"
        yield _image(f"png {size}", encoders.png(width % 2**32, height % 2**32, 8, 2, raster=b""), ".png")
        yield _image(f"tiff {size}", encoders.tiff(width, height, parts=[bytes(100)]), ".tif")
        yield Case(
            "flow", f"flo {size}", b"PIEH" + struct.pack("<II", width % 2**32, height % 2**32) + bytes(64), ".flo"
        )
        yield Case("flow", f"pfm {size}", b"PF\n%d %d\n-1\n" % (width, height) + bytes(64), ".pfm")
        yield Case("flow", f"npy {size}", encoders.npy((height, width, 2), data=bytes(64)), ".npy")
        yield _image(f"ppm {size}", b"P6\n%d %d\n255\n" % (width, height) + bytes(64), ".ppm")
        if max(width, height) < 2**31:
            yield _image(f"bmp {size}", encoders.bmp(width, height, 24, raster=bytes(64)), ".bmp")
        if max(width, height) < 2**16:
            jpeg = bytearray(next(s.data for s in seeds() if s.name == "jpeg, baseline"))
            jpeg[(place := jpeg.find(b"\xff\xc0")) + 5 : place + 9] = struct.pack(">HH", height, width)
            yield _image(f"jpeg {size}", bytes(jpeg), ".jpg")
        if 0 < max(width, height) <= 16384 and min(width, height) > 0:
            bits = struct.pack("<I", (width - 1) | (height - 1) << 14)
            yield _image(f"webp {size}", TINY_WEBP[:21] + bits + TINY_WEBP[25:], ".webp")
            large = b"VP8X" + struct.pack("<IBBBBHBHB", 10, 0, 0, 0, 0, width - 1, 0, height - 1, 0) + TINY_WEBP[12:]
            yield _image(
                f"webp, extended {size}", b"RIFF" + struct.pack("<I", len(large) + 4) + b"WEBP" + large, ".webp"
            )


def _scans(width: int, scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    good, data = cv2.imencode(".jpg", np.full((width, width), 128, np.uint8), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])
    assert good
    jpeg = data.tobytes()
    last = jpeg.rfind(b"\xff\xda")
    return jpeg[:last] + jpeg[last:-2] * scans + jpeg[-2:]


def _zeros(count: int) -> bytes:
    """`count` zeros, packed by deflate; quick, because equal blocks that refer to none before can be repeated."""
    packer = zlib.compressobj(9)
    block = packer.compress(bytes(MEBI)) + packer.flush(zlib.Z_FULL_FLUSH)
    rest = packer.compress(bytes(count % MEBI)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = struct.pack(">I", count % 65521 << 16 | 1)  # Adler-32 of zeros
    return block[:2] + block[2:] * (count // MEBI) + rest + b"\3\0" + checksum


def _png_bomb(side: int, depth: int, colour: int, interlaced: bool = False) -> bytes:
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    packed = _zeros(side * ((side * channels * depth + 7) // 8 + 1))
    head = encoders.png(side, side, depth, colour, interlaced, raster=b"")
    place = head.find(b"IDAT") - 4
    return head[:place] + encoders.png_chunk(b"IDAT", packed) + encoders.png_chunk(b"IEND", b"")


def _tiff_bomb(samples: int, depth: int) -> bytes:
    strip = _zeros(16000 * 4 * samples * depth // 8)
    return encoders.tiff(16000, 16000, samples, depth, deflated=True, parts=[strip] * 4000, floating=depth == 32)


def _long_tag() -> bytes:
    entry = struct.pack("<HHI", 273, 4, 3)
    return encoders.tiff(13, 11).replace(entry, entry[:4] + struct.pack("<I", 2**22)) + bytes(20 * MEBI)


def bombs() -> Iterator[Case]:
    """Small files that decode to much memory or take much time, and large ones that say little."""
    jpeg = next(s.data for s in seeds() if s.name == "jpeg, baseline")
    for colour, depth in ((0, 1), (0, 8), (0, 16), (2, 8), (2, 16), (3, 8), (6, 16)):
        yield _image(f"png of colour type {colour}, {depth} bits", partial(_png_bomb, 15000, depth, colour), ".png")
    images: dict[str, tuple[Callable[[], bytes], str]] = {
        "interlaced png": (partial(_png_bomb, 15000, 8, 2, True), ".png"),
        "webp": (lambda: TINY_WEBP, ".webp"),
        "bmp of runs": (partial(encoders.bmp_runs, 16384, 16383), ".bmp"),
        "tiff of one strip": (lambda: encoders.tiff(16000, 16000, 3, deflated=True, parts=[_zeros(192_000)]), ".tif"),
        "tiff of 60000 tags": (
            lambda: encoders.tiff(13, 11, extra=[(1000 + k, 3, 1, 1) for k in range(60000)]),
            ".tif",
        ),
        "tiff of forged counts": (
            lambda: encoders.tiff(13, 11, extra=[(273, 4, 2**31, 8), (279, 4, 2**31, 8)]),
            ".tif",
        ),
        "tiff with a long tag": (_long_tag, ".tif"),
        "jpeg cut in half with an end marker": (lambda: jpeg[: len(jpeg) // 2] + b"\xff\xd9", ".jpg"),
        "jpeg of many markers": (lambda: jpeg[:2] + b"\xff\xe0\0\2" * 500_000 + jpeg[2:], ".jpg"),
        "jpeg of fill bytes": (lambda: jpeg[:2] + b"\xff" * 5 * MEBI + jpeg[2:], ".jpg"),
        "png of many chunks": (
            lambda: encoders.png(13, 11, extra=encoders.png_chunk(b"tEXt", b"a\0b") * 500_000),
            ".png",
        ),
    }
    for name, part in (("text", b"zTXt"), ("profile", b"iCCP"), ("international text", b"iTXt")):
        data = b"a\0\1\0\0\0" if part == b"iTXt" else b"a\0\0"
        chunk = encoders.png_chunk(part, data + _zeros(200 * MEBI))
        images[f"png with a packed {name}"] = (partial(encoders.png, 13, 11, extra=chunk * 5), ".png")
    for scans in (10, 100, 1000, 4000):
        images[f"jpeg of {scans} scans"] = (partial(_scans, 1000, scans), ".jpg")
    for samples, depth in ((1, 8), (3, 8), (3, 16), (1, 32)):
        images[f"tiff of {samples} samples, {depth} bits"] = (partial(_tiff_bomb, samples, depth), ".tif")
        yield Case("flow", f"tiff of {samples} samples, {depth} bits", partial(_tiff_bomb, samples, depth), ".tif")
    fillings = {"blanks": b" ", "comments": b"#\n", "line feeds": b"\n", "text": b"#" + b"x" * 99 + b"\n"}
    for kind, (filling, blank) in itertools.product(b"123456", fillings.items()):
        count, end = 20 * MEBI // len(blank), b"1 1 255\n\0\0\0"
        images[f"pnm P{chr(kind)} of {filling}"] = (partial(_joined, b"P%c" % kind, blank, count, end), ".ppm")
    for name, (make, suffix) in images.items():
        yield _image(name, make, suffix)
    for reader, side, depth, colour in (
        ("flow", 12000, 16, 2), ("depth", 15000, 16, 0), ("map", 15000, 16, 0), ("mask", 16000, 1, 0),
        ("probability", 15000, 8, 0),
    ):  # fmt: skip
        yield Case(reader, "png", partial(_png_bomb, side, depth, colour), ".png")
    yield Case("mask", "webp", TINY_WEBP, ".webp")
    yield from _array_bombs()
    yield from _text_bombs()
    yield from _count_bombs()


def _joined(start: bytes, part: bytes, count: int, end: bytes) -> bytes:
    return start + part * count + end


def _array_bombs() -> Iterator[Case]:
    tracks = {"tracks.npy": ((4, 5, 2), "<f4"), "visibles.npy": ((4, 5), "|b1")}
    many = {"tracks.npy": ((1000, 30000, 2), "<f4"), "visibles.npy": ((1000, 30000), "|b1")}

    def archive(members: dict[str, tuple[tuple[int, ...], str]]) -> bytes:
        return encoders.npz({name: encoders.npy(*about) for name, about in members.items()})

    large = cache(lambda: encoders.npz({"flow.npy": encoders.npy((16000, 16000, 2), data=bytes(300 * MEBI))}))
    yield Case("flow", "npz", large, ".npz")
    yield Case("map", "npz", large, ".npz")
    yield Case("flow", "npz of many channels", partial(archive, {"flow.npy": ((200, 200, 4000), "<f4")}), ".npz")
    yield Case("flow", "npz of 300 MB", partial(archive, {"flow.npy": ((5000, 8000, 2), "<f4")}), ".npz")
    yield Case("tracks", "npz", partial(archive, many), ".npz")
    yield Case("tracks", "npz of forged sizes", lambda: encoders.with_zip_sizes(archive(tracks), 2**32 - 2), ".npz")
    yield Case("flow", "npz of many members", lambda: encoders.npz({f"x{k}.npy": b"" for k in range(20_000)}), ".npz")
    for text, reader in itertools.product(CHANNELS, ("flow", "map")):
        body = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {text}, }}"
        yield Case(reader, f"npy of shape {text}", encoders.npy_of(body, bytes(64)), ".npy")
        yield Case(reader, f"npz of shape {text}", encoders.npz({"flow.npy": encoders.npy_of(body, bytes(64))}), ".npz")
    for depth in (100, 5000, 60000):
        yield Case("flow", f"npy header nested {depth}", encoders.npy_of("(" * depth + ")" * depth, b"", 2), ".npy")
        yield Case("flow", f"npy header of {depth} minus signs", encoders.npy_of("-" * depth + "1", b"", 2), ".npy")
    yield Case("flow", "npy header of 40 MB", lambda: encoders.npy_of(" " * 40 * MEBI, b"", 2), ".npy")
    yield Case("mask", "npy of 250 MB", lambda: encoders.npy((5000, 50_000), "|b1"), ".npy")


def _text_bombs() -> Iterator[Case]:
    for reader, suffix in (("matches", ".txt"), ("matches", ".csv"), ("matches with columns", ".csv")):
        for name, (start, part, count, end) in {
            "20 MB in a line": (b"", b"1,", 10 * MEBI, b"\n"),
            "20 MB of comments": (b"", b"#\n", 10 * MEBI, b""),
            "many columns": (b"", b"1 ", 30_000, b"\n"),
            "many short lines": (b"", b"1 2 3 4\n", 300_000, b""),
            "long header": (b"x1,y1,x2,y2,", b"a,", 30_000, b"\n"),
            "blank lines": (b"", b"\n", 10 * MEBI, b"1 2 3 4\n"),
        }.items():
            yield Case(reader, name, partial(_joined, start, part, count, end), suffix)
    yield Case("calibration", "many lines", b"P2: 1\n" * 160_000, ".txt")
    yield Case("calibration", "long line", b"P2:" + b" 1" * 500_000, ".txt")
    contents: dict[str, Callable[[], bytes]] = {
        "many lines": lambda: b"{}\n" * MEBI,
        "many keys": lambda: b"{" + b",".join(b'"k%d":1' % k for k in range(200_000)) + b"}",
        "a large list": lambda: b"[" + b"0," * 5 * MEBI + b"0]",
        "deep and closed": lambda: b"[" * 900_000 + b"]" * 900_000,
        "many tables": lambda: b"\n".join(b"[a%d]" % k for k in range(100_000)),
        "dotted": lambda: b"a." * 100_000 + b"a = 1",
        "inline": lambda: b"a = " + b"{a=" * 50_000 + b"1" + b"}" * 50_000,
        "text of 20 MB": lambda: b'"' + b"x" * 20 * MEBI + b'"',
        "a number of 5 MB": lambda: b"1" * 5 * MEBI,
    }
    text = [
        seed for seed in _one_of_each() if seed.suffix in (".json", ".jsonl", ".toml") or seed.reader == "checksums"
    ]
    for seed, (name, make) in itertools.product(text, contents.items()):
        yield _case(seed, name, make)


def _count_bombs() -> Iterator[Case]:
    colmap = [seed for seed in seeds() if seed.reader == "colmap" and seed.suffix == ".bin"]
    for seed, count in itertools.product(colmap, (0, 2**16, 2**31, 2**32, 2**60, 2**63, 2**64 - 1)):
        announced = struct.pack("<Q", count)
        yield _case(seed, f"{count} announced", announced + seed.data[8:])
        yield _case(seed, f"{count} announced in 20 MB", partial(_joined, announced, b"\0", 20 * MEBI, b""))
    headers = (
        b"{}",
        b"[" * 100_000,
        b'{"__metadata__":' + b"{" * 100_000,
        b" " * MEBI,
        b"{" + b'"a":{},' * 9999 + b"}",
    )
    for length, header, reader in itertools.product(
        (0, 1, 2**20, 2**31, 2**64 - 1), headers, ("weights", "checkpoint")
    ):
        data = encoders.safetensors(header, bytes(99), length)
        yield Case(reader, f"header of {length} bytes {header[:2]!r}", data, ".safetensors")
    shapes = ([2**40], [2**31, 2**31], [-1], [0], [1] * 5000, [1e400], "x")
    for shape, reader in itertools.product(shapes, ("weights", "checkpoint")):
        header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
        yield Case(reader, f"tensor of {str(shape)[:20]}", encoders.safetensors(header, bytes(4)), ".safetensors")


def _values() -> Iterator[Case]:
    """Every value of every JSON and TOML seed replaced by every hostile one."""
    for seed in seeds():
        if seed.suffix in (".json", ".jsonl"):
            first, *rest = seed.data.splitlines(keepends=True) if seed.suffix == ".jsonl" else [seed.data]
            for path, value in itertools.product(mutations.json_paths(first)[:40], (None, *mutations.JSON_VALUES)):
                make = partial(_with_value, first, path, value, b"".join(rest))
                yield _case(seed, f"{'.'.join(map(str, path))} = {str(value)[:12]}", make)
        if seed.suffix == ".toml":
            lines = seed.data.decode().splitlines()
            settings = [(i, text.partition("=")[0]) for i, text in enumerate(lines) if "=" in text]
            for (i, key), value in itertools.product(settings, mutations.TOML_VALUES):
                start, end = "\n".join([*lines[:i], f"{key} = "]), "\n".join(["", *lines[i + 1 :]])
                make = partial(_joined, start.encode(), value.encode(), 1, end.encode())
                yield _case(seed, f"{key.strip()} = {value[:12]}", make)
        if seed.suffix == ".safetensors" and seed.reader != "configuration of weights":
            yield from _metadata(seed)


def _metadata(seed: Seed) -> Iterator[Case]:
    """Every value of the configuration in a safetensors file replaced by every hostile one."""
    (length,) = struct.unpack_from("<Q", seed.data)
    about = json.loads(seed.data[8 : 8 + length])
    for key, text in about.get("__metadata__", {}).items():
        for path, value in itertools.product(mutations.json_paths(text), (None, *mutations.JSON_VALUES)):
            make = partial(_with_metadata, about, key, path, value, seed.data[8 + length :])
            yield _case(seed, f"{'.'.join(map(str, path))} = {str(value)[:12]}", make)


def _with_value(text: bytes, path: tuple[object, ...], value: str | None, rest: bytes) -> bytes:
    return mutations.json_with(text, path, value) + b"\n" + rest


def _with_metadata(about: dict[str, Any], key: str, path: tuple[object, ...], value: str | None, body: bytes) -> bytes:
    changed = mutations.json_with(about["__metadata__"][key], path, value).decode()
    return encoders.safetensors(json.dumps(about | {"__metadata__": {key: changed}}).encode(), body)


_PARTS = (_not_files, _contents, _names, _forged_sizes, _values)


@cache
def _without_bombs() -> list[Case]:
    """The cases in an order that mixes all kinds, so that the first thousands are a sample of all."""
    parts = [list(part()) for part in _PARTS]
    for part in parts:
        Random(0).shuffle(part)
    return [case for group in itertools.zip_longest(*parts) for case in group if case is not None]


def hostile(with_bombs: bool = True) -> list[Case]:
    """All hostile cases: the bombs first, if they are wanted, then the others in a mixed order."""
    return [*(bombs() if with_bombs else ()), *_without_bombs()]
