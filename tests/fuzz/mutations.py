"""Mutations of files: of bytes, of words and numbers in text, of JSON and TOML values, and inside containers.

A container's mutation keeps its checksums and lengths right, so that it reaches the code behind their check.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from fuzz import encoders

INTEGERS = (0, 1, 2, 3, 255, 256, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
DEEP = 20_000
NUMBERS = ("0", "-1", "1e999", "-1e999", "nan", "inf", "1e400", "0x10", "1_000", "1" * 400, "9" * 5000, "٣", "--1", "")
JSON_VALUES = (
    "null", "true", "[]", "{}", '""', '"x"', "0", "-1", "1.5", "1e308", "1e999", "NaN", "-Infinity", "1" + "0" * 400,
    "9" * 5000, '"\\ud800"', '"\\u0000"', '"' + "x" * 3000 + '"', "[" * DEEP + "]" * DEEP,
    '{"a":' * DEEP + "0" + "}" * DEEP,
    "[[[1]]]", '{"kind": []}', "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "9223372036854775808", '"neuroexplicit"', '"os:system"',
)  # fmt: skip
TOML_VALUES = (
    "true", "[]", "{}", '""', '"x"', "0", "-1", "1.5", "inf", "nan", "-inf", "1e308", "1" + "0" * 400, "9" * 5000,
    "9223372036854775808", "[1, 2, 3, 4, 5, 6]", '["x"]', "[[1], [2]]", "{ a = 1 }", '"pd"', '"wgain"', '"flownets"',
    "1979-05-27T07:32:00Z", "07:32:00", "[" * DEEP + "]" * DEEP, "{a=" * DEEP + "0" + "}" * DEEP, '"\\u0000"', '"""',
    "1__0", "[1, \"x\", [2]]", "-9223372036854775809", '"../../../etc/passwd"',
)  # fmt: skip
_NUMBER = re.compile(rb"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_PLACE = "@hostile@"

_HOSTILE_ENOUGH = (
    ValueError,
    LookupError,
    EOFError,
    OverflowError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
"""Errors of a mutation that meets what an earlier one has made."""

_SHAPES = (
    "()", "(0,)", "(3,)", "(2, 2)", "(-1, 4)", "(2**40, 2)", "(1, 1, 1, 1, 1)", "(1000000, 1000000)", "(True, 3)",
    "(2147483648, 2147483648)", "(0, 5, 2)", "(11, 13, 1048576)", "(9" + "9" * 4300 + ",)", "[11, 13]", "None",
)  # fmt: skip
_TYPES = (
    "'<f4'", "'>f8'", "'|O'", "'<f2'", "'<c8'", "'|S100'", "'<U7'", "'<M8[s]'", "'|V8'", "[('a', '<f4')]", "'<f16'",
    "'|b1'", "'<i8'", "'>u2'", "None", "(" * 300, "'" + "x" * 5000 + "'", "'<f4', 'descr': '|O'",
)  # fmt: skip

Mutation = Callable[[bytes, Random], bytes]


def _span(data: bytes, rng: Random, longest: int = 64) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randrange(1, longest + 1))


def flip_bits(data: bytes, rng: Random) -> bytes:
    """Change one to eight bits; half of the time in the header."""
    changed = bytearray(data)
    end = len(data) if rng.random() < 0.5 else min(len(data), 64)
    for _ in range(rng.randrange(1, 9)):
        if end:
            changed[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: Random) -> bytes:
    """Keep the beginning."""
    return data[: rng.randrange(len(data) + 1)]


def insert(data: bytes, rng: Random) -> bytes:
    """Insert random bytes, blanks or zeros."""
    place, count = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 100, 5000))
    filling = rng.choice((rng.randbytes(count), b"\0" * count, b" " * count, b"\n" * count, b"\xff" * count))
    return data[:place] + filling + data[place:]


def remove(data: bytes, rng: Random) -> bytes:
    """Remove a block."""
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def repeat(data: bytes, rng: Random) -> bytes:
    """Repeat a block up to a thousand times."""
    start, end = _span(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 2, 10, 1000)) + data[end:]


def swap(data: bytes, rng: Random) -> bytes:
    """Exchange two neighbouring blocks."""
    a, b, c = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def integer(data: bytes, rng: Random) -> bytes:
    """Set a field of one, two, four or eight bytes to an interesting value; half of the time in the header."""
    width = rng.choice((1, 2, 4, 8))
    if len(data) < width:
        return data
    last = len(data) - width
    place = rng.randrange(last + 1 if rng.random() < 0.5 else min(last, 64) + 1)
    value: int = (rng.choice(INTEGERS) + rng.choice((-1, 0, 0, 1))) % 256**width
    return data[:place] + value.to_bytes(width, rng.choice(("little", "big"))) + data[place + width :]


def number(data: bytes, rng: Random) -> bytes:
    """Replace a number in text."""
    found = list(_NUMBER.finditer(data[:20000]))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(NUMBERS).encode() + data[match.end() :]


def line(data: bytes, rng: Random) -> bytes:
    """Remove, repeat, join, cut or exchange lines of text."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines[i] *= rng.choice((2, 1000))
    elif kind == 2:
        lines[i] = lines[i].rstrip(b"\n")
    elif kind == 3:
        lines[i] = lines[i][: rng.randrange(len(lines[i]) + 1)] + b"\n"
    elif kind == 4:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        words = lines[i].split(b" ")
        words.insert(rng.randrange(len(words) + 1), rng.choice(NUMBERS).encode())
        lines[i] = b" ".join(words)
    return b"".join(lines)


def word(data: bytes, rng: Random) -> bytes:
    """Replace bytes by what text readers stumble over."""
    place = rng.randrange(len(data) + 1)
    odd = (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\x0b", b"\x1c", "\u2028".encode(), b"\xed\xa0\x80", b"#", b":")
    return data[:place] + rng.choice(odd) + data[place + rng.randrange(2) :]


def _walk(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in nested lists and objects."""
    paths = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        paths += _walk(inner, (*path, key))
    return paths


def json_with(text: bytes | str, path: tuple[Any, ...], value: str | None) -> bytes:
    """JSON with another text at a path; None removes it."""
    root = json.loads(text)
    parent = root
    for key in path[:-1]:
        parent = parent[key]
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = _PLACE
    return json.dumps(root).replace(f'"{_PLACE}"', value or "").encode()


def json_paths(text: bytes | str) -> list[tuple[Any, ...]]:
    """The paths of all values in JSON."""
    return _walk(json.loads(text))


def json_value(data: bytes, rng: Random) -> bytes:
    """Replace or remove a value in JSON or in a line of JSON."""
    lines = data.splitlines(keepends=True) if data.count(b"\n{") else [data]
    i = rng.randrange(len(lines))
    value = rng.choice((None, *JSON_VALUES))
    paths = json_paths(lines[i])
    changed = json_with(lines[i], rng.choice(paths), value) if paths else b""
    end = b"\n" if lines[i].endswith(b"\n") else b""
    lines[i] = (changed if rng.random() < 0.95 else (value or "").encode()) + end
    return b"".join(lines)


def toml_value(data: bytes, rng: Random) -> bytes:
    """Replace a value in TOML, or add a key or a table."""
    lines = data.decode(errors="replace").splitlines()
    settings = [i for i, text in enumerate(lines) if "=" in text]
    if not settings:
        return data
    i, value = rng.choice(settings), rng.choice(TOML_VALUES)
    kind = rng.randrange(6)
    key = lines[i].partition("=")[0].strip()
    if kind < 4:
        lines[i] = f"{key} = {value}"
    elif kind == 4:
        lines.insert(i, rng.choice((f"kind = {value}", f"{key} = {value}", "unknown = 1", f"a.b.c = {value}")))
    else:
        lines.insert(i, rng.choice(("[model]", "[[data]]", "[a.b.c.d]", "[" * DEEP, "[]", "[model.model]")))
    return "\n".join(lines).encode()


def in_png(data: bytes, rng: Random) -> bytes:
    """Change, remove, repeat or move a chunk of a PNG, and keep the checksums right."""
    chunks, position = [], 8
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, position)
        chunks.append((data[position + 4 : position + 8], data[position + 8 : position + 8 + length]))
        position += 12 + length
    if not chunks:
        return data
    i, kind = rng.randrange(len(chunks)), rng.randrange(7)
    name, inner = chunks[i]
    if kind == 0:
        chunks.insert(rng.randrange(len(chunks)), chunks[i])
    elif kind == 1:
        del chunks[i]
    elif kind == 2:
        odd = rng.choice((b"tRNS", b"gAMA", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"zTXt", b"sBIT", b"abcd"))
        chunks.insert(i, (odd, rng.randbytes(rng.randrange(40))))
    elif kind == 3 and name == b"IDAT":
        raster = zlib.decompressobj().decompress(inner, 100_000)
        chunks[i] = (name, zlib.compress(any_bytes(raster, rng)))
    else:
        chunks[i] = (name, rng.choice((integer, flip_bits))(inner, rng))
    return encoders.PNG_SIGNATURE + b"".join(encoders.png_chunk(*chunk) for chunk in chunks)


def in_zip(data: bytes, rng: Random) -> bytes:
    """Change, rename, repeat or forge a member of an archive, and keep its checksums right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if not members:
        return data
    name, kind = rng.choice(list(members)), rng.randrange(5)
    if kind == 0:
        members[rng.choice(("x.npy", "../x.npy", "flow", "valid.npy", "flow.npy", "tracks.npy"))] = members.pop(name)
    elif kind == 1:
        members[rng.choice(("", "a/b/", "x" * 300, "\u2028.npy"))] = members[name]
    elif kind == 2:
        return encoders.with_zip_sizes(data, rng.choice(INTEGERS))
    else:
        members[name] = in_npy(members[name], rng) if kind == 3 else any_bytes(members[name], rng)
    return encoders.npz(members, rng.random() < 0.5)


def in_npy(data: bytes, rng: Random) -> bytes:
    """Change the shape or the type of a .npy."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        return data
    header = f"{{'descr': {rng.choice(_TYPES)}, 'fortran_order': {rng.choice(('False', 'True', '1', '[]'))}, "
    header += f"'shape': {rng.choice(_SHAPES)}, }}" + rng.choice(("", " " * 70000, "\0", "'x': 1"))
    (length,) = struct.unpack_from("<H", data, 8)
    return encoders.npy_of(header, data[10 + length :], 1 if len(header) < 60000 else 2)


def in_safetensors(data: bytes, rng: Random) -> bytes:
    """Change the header of a safetensors file, or the configuration in it, and keep the lengths right."""
    (length,) = struct.unpack_from("<Q", data.ljust(8, b"\0"))
    header, body = data[8 : 8 + length], data[8 + length :]
    about = json.loads(header)
    metadata = about.get("__metadata__") if isinstance(about, dict) else None
    if isinstance(metadata, dict) and metadata and rng.random() < 0.7:
        key = rng.choice(list(metadata))
        metadata[key] = json_value(str(metadata[key]).encode(), rng).decode(errors="replace")
        if rng.random() < 0.2:
            metadata[rng.choice(("flowinpaint.", "flowinpaint.pd", "flowinpaint.x", ""))] = metadata.pop(key)
        header = json.dumps(about).encode()
    else:
        header = json_value(header, rng)
    return encoders.safetensors(header, body, rng.choice((None, None, None, *INTEGERS)))


def in_jpeg(data: bytes, rng: Random) -> bytes:
    """Change, remove, repeat or move a segment of a JPEG; repeat the scans."""
    places = [m.start() for m in re.finditer(rb"\xff[\xc0-\xcf\xda-\xdf\xe0-\xef]", data)]
    if len(places) < 2:
        return data
    i = rng.randrange(len(places) - 1)
    start, end = places[i], places[i + 1]
    segment, kind = data[start:end], rng.randrange(4)
    if kind == 0:
        return data[:start] + segment * rng.choice((2, 3, 200)) + data[end:]
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:start] + segment[:2] + integer(segment[2:], rng) + data[end:]
    return data[:-2] + rng.randbytes(rng.randrange(50)) + data[-2:]


def in_tiff(data: bytes, rng: Random) -> bytes:
    """Set the tag, the type, the count or the value of an entry of the directory."""
    order = ">" if data[:1] == b"M" else "<"
    big = data[2:4] in (b"+\0", b"\0+")
    (start,) = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)
    (count,) = struct.unpack_from(order + ("Q" if big else "H"), data, start)
    step, first = (20, start + 8) if big else (12, start + 2)
    if not 0 < count < 1000:
        return data
    place = first + rng.randrange(count) * step
    offset, width = rng.choice(((0, 2), (2, 2), (4, 8), (12, 8)) if big else ((0, 2), (2, 2), (4, 4), (8, 4)))
    value: int = rng.choice((*INTEGERS, 4, 5, 8, 16, 32, 64, 32946, 34712, 50000)) % 256**width
    packed = value.to_bytes(width, "big" if order == ">" else "little")
    return data[: place + offset] + packed + data[place + offset + width :]


def in_riff(data: bytes, rng: Random) -> bytes:
    """Change bytes of a WebP behind its first header, and keep its length right."""
    changed = any_bytes(data[12:], rng)
    return data[:4] + struct.pack("<I", (len(changed) + 4) & 0xFFFFFFFF) + data[8:12] + changed


_BYTES: tuple[Mutation, ...] = (flip_bits, truncate, insert, remove, repeat, swap, integer)
_TEXT: tuple[Mutation, ...] = (number, number, line, word)
_INSIDE: tuple[tuple[bytes, Mutation], ...] = (
    (b"\x89PNG", in_png),
    (b"PK\x03\x04", in_zip),
    (b"\x93NUMPY", in_npy),
    (b"\xff\xd8\xff", in_jpeg),
    (b"II", in_tiff),
    (b"MM", in_tiff),
    (b"RIFF", in_riff),
)


def any_bytes(data: bytes, rng: Random) -> bytes:
    """One of the mutations of bytes."""
    return rng.choice(_BYTES)(data, rng)


def mutated(data: bytes, suffix: str, other: bytes, rng: Random) -> bytes:
    """One to three mutations that suit the file; seldom a splice with another file."""
    fitting: list[Mutation] = [any_bytes]
    fitting += [mutation for start, mutation in _INSIDE if data.startswith(start)] * 2
    if suffix in (".json", ".jsonl"):
        fitting += [json_value] * 3
    if suffix == ".toml":
        fitting += [toml_value] * 3
    if suffix == ".safetensors":
        fitting += [in_safetensors] * 4
    if not data[:200].strip(b"\t\n\r").translate(None, bytes(range(32, 127))):
        fitting += _TEXT
    if rng.random() < 0.03:
        return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.choice((1, 1, 2, 3))):
        with suppress(*_HOSTILE_ENOUGH):
            data = rng.choice(fitting)(data, rng)
    return data
