"""The loader of untrusted text: JSON, JSON lines, TOML, lines and numbers.

Every failure is a FileFormatError that names the file and the place, a line with a column or a key. Sizes, and the
memory that parsed values need, are checked before parsing. `config_parsing.build` then checks the types of the values.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from flowinpaint.errors import FileFormatError, InputError, MissingFileError, check_file, shown
from flowinpaint.io.budget import check_budget

LARGEST_JSON = 2**24
LARGEST_TOML = 2**16
"""tomllib needs quadratic time for a dotted key, so files and lines are short."""
LONGEST_TOML_LINE = 2048
LONGEST_LINE = 2**20
"""Of JSON lines."""
DEEPEST = 32
"""Most tables and lists within each other."""
MOST_DIGITS = 300
"""Longest integer of JSON: any of them fits a float."""

MOST_SHORT = 10**6
_SHORT = 5
_VALUE, _LIST, _TABLE = 64, 64, 256
"""Upper bounds of the bytes that Python needs for a short value, an empty list and a table with one key."""


def read_text(path: Path, largest: int) -> str:
    """The UTF-8 text of a file of at most `largest` bytes."""
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file")
    check_file(path, not path.is_file() and "must be a file, got a folder or a device")
    with path.open("rb") as file:
        data = file.read(largest + 1)
    check_file(path, len(data) > largest and f"must have at most {largest} bytes, got {path.stat().st_size}")
    check_budget(path, 5 * len(data))
    return decoded(data, str(path))


def decoded(data: bytes, place: str) -> str:
    """UTF-8 as text, without a byte order mark; place: what an error names."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileFormatError(f"{place}: not a text file: line {line} is not UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FileFormatError(f"{place}: not a text file: line {line} has a zero byte")
    return text


def read_json(path: Path, largest: int = LARGEST_JSON) -> Any:
    """The value in a JSON file."""
    return parse_json(read_text(path, largest), path)


def parse_json(text: str, path: Path, part: str = "", line: int = 1, finite: bool = True) -> Any:
    """The value in JSON text: no key twice, limited depth and digits.

    part: the part of the file, such as "metadata"; line: the number of the first line in the file. finite: whether NaN
    and infinity, which Python's JSON can hold, are refused.
    """
    place = f"{path}: {part}: " if part else f"{path}: "
    numbered = place if part or line == 1 else f"{place}line {line}: "
    opened, lists = text.count("{"), text.count("[")
    check_budget(path, _TABLE * opened + _LIST * lists + _VALUE * (opened + lists + text.count(",")))
    try:
        constant = _constant if finite else None
        value = json.loads(text, object_pairs_hook=_table, parse_int=_integer, parse_constant=constant)
        _check_nesting(value, numbered, finite)
    except json.JSONDecodeError as error:
        where = f"line {line + error.lineno - 1}, column {error.colno}"
        found = shown(text[error.pos : error.pos + 20]) if error.pos < len(text) else "the end"
        raise FileFormatError(f"{place}{where}: must be JSON, got {found} ({error.msg})") from None
    except RecursionError:
        raise FileFormatError(f"{numbered}must be nested at most {DEEPEST} levels deep, got more") from None
    except FileFormatError:
        raise
    except ValueError as error:
        raise FileFormatError(f"{numbered}{error}") from None
    return value


def json_lines(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """The number and the value of each line that is not blank; a FileFormatError instead of the value of a bad line.

    A line that is not complete, at the end of the file, is an error as well.
    """
    for number, line in raw_lines(path, stream, LONGEST_LINE):
        if not line.endswith(b"\n"):
            yield number, FileFormatError(f"{path}: line {number}: truncated: it must end in a line break")
        elif not line.isspace():
            try:
                yield number, parse_json(decoded(line.rstrip(), f"{path}: line {number}"), path, line=number)
            except FileFormatError as error:
                yield number, error


def read_toml(path: Path) -> dict[str, Any]:
    """The tables in a TOML file."""
    return parse_toml(read_text(path, LARGEST_TOML), str(path))


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """The tables in TOML text; place: what an error names."""
    lines = text.splitlines()
    if long := [i for i, line in enumerate(lines, 1) if len(line) > LONGEST_TOML_LINE]:
        raise FileFormatError(f"{place}: line {long[0]} must have at most {LONGEST_TOML_LINE} characters")
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise FileFormatError(f"{place}: must be nested at most {DEEPEST} levels deep, got more") from None
    except ValueError as error:  # also of an integer with thousands of digits
        found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error), re.DOTALL)
        fault, where = (found[1], f"line {found[2]}, column {found[3]}: ") if found else (str(error), "")
        row = lines[int(found[2]) - 1][int(found[3]) - 1 :] if found and int(found[2]) <= len(lines) else ""
        raise FileFormatError(f"{place}: {where}must be TOML, got {shown(row[:20])} ({fault[:100]})") from None
    _check_nesting(tables, f"{place}: ", finite=False)
    return tables


def raw_lines(path: Path, stream: IO[bytes], longest: int, before: int = 0) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a file with their ends; FileFormatError at one of more than `longest` bytes.

    A file may not consist of millions of short lines, such as blank ones, which no file needs and which take time.
    """
    number, short = before, 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) < _SHORT:
            short += 1
            check_file(path, short > MOST_SHORT and f"must have at most {MOST_SHORT} lines below {_SHORT} bytes")
        check_file(path, len(line) > longest and f"line {number} must have at most {longest} characters")
        stray = line.find(b"\r", 0, -2)
        check_file(path, stray >= 0 and f"lines must end in LF or CR LF, got CR alone in line {number}")
        yield number, line


def text_lines(path: Path, stream: IO[bytes], longest: int, before: int = 0) -> Iterator[tuple[int, str]]:
    """The numbered lines of a UTF-8 file that are not blank, stripped; before: the number of lines before the first."""
    for number, line in raw_lines(path, stream, longest, before):
        check_file(path, b"\0" in line and f"not a text file: line {number} has a zero byte")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise FileFormatError(f"{path}: not a text file: line {number} is not UTF-8") from None
        if text:
            yield number, text


def as_number(text: str | bytes) -> float:
    """The number in ASCII text, as C reads it; ValueError if it is none.

    float() alone also reads 1_0 and the digits of other scripts.
    """
    if not text.isascii() or (b"_" if isinstance(text, bytes) else "_") in text:  # type: ignore[operator]
        raise ValueError(text)
    return float(text)


def as_numbers(words: Sequence[bytes]) -> list[float]:
    """The numbers in ASCII words; ValueError if one is none."""
    if b"_" in (joined := b"".join(words)) or not joined.isascii():
        raise ValueError(joined[:40])
    return list(map(float, words))


@contextmanager
def checking_content(place: object) -> Iterator[None]:
    """Turn an InputError about what was read into a FileFormatError that names the file."""
    try:
        yield
    except InputError as error:
        raise FileFormatError(f"{place}: {error}") from error


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(twice)} must occur once, got it twice")
    return table


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"an integer must have at most {MOST_DIGITS} digits, got {len(text)}")
    return int(text)


def _constant(text: str) -> float:
    raise ValueError(f"a number must be finite, got {text}")


def _check_nesting(value: Any, place: str, finite: bool) -> None:
    """FileFormatError if tables and lists are nested so deep that a later recursion may fail, or at 1e400.

    finite: whether infinite numbers, which TOML can write, are refused here.
    """
    level: list[Any] = [[value]]
    for _ in range(DEEPEST + 1):
        parts = [part.values() if type(part) is dict else part for part in level]
        if finite and not all(map(_is_finite, parts)):
            raise FileFormatError(f"{place}a number must be finite, got one above {sys.float_info.max:.3g}")
        level = [entry for part in parts for entry in part if type(entry) is dict or type(entry) is list]
        if not level:
            return
    raise FileFormatError(f"{place}must be nested at most {DEEPEST} levels deep, got more")


def _is_finite(values: Collection[Any]) -> bool:
    kinds = set(map(type, values))
    if kinds == {float} and math.isfinite(sum(values)):  # fast, for curves in records
        return True
    return float not in kinds or all(type(value) is not float or math.isfinite(value) for value in values)
