"""Lists of matches in text and CSV files: rows `x1 y1 x2 y2 [score …]`, or other columns by name."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io.budget import with_max_bytes
from flowinpaint.io.files import StrPath, existing_file

Array = npt.NDArray[np.float64]

MATCH_SUFFIXES = (".txt", ".csv", ".tsv", ".match", ".matches", ".dat")

MOST_ROWS = 2**24
_LONGEST_LINE = 65536
_ENDS = ("x1", "y1", "x2", "y2")
_SKIPPED = "_"
_HINTS = ("noise", "confidence")
_VALUES = frozenset(["u", "v", "w", "d", "z", "dx", "dy", "dz", "depth", "disparity", "value"])
"""Names in a header that are values; others are only allowed in `columns`, since a score is no value."""
_FEW = 4
"""With fewer rows the spread of a column says nothing."""


class Matches(NamedTuple):
    """Points and their values, as `inpaint_points` accepts them.

    points (N, 2): x and y in px. values (N, C), for example displacements. noise, confidence (N,): standard deviations
    and probabilities, or None.
    """

    points: Array
    values: Array
    noise: Array | None = None
    confidence: Array | None = None


class _Layout(NamedTuple):
    """The columns of a file: how many there are, and the index of each that is used, by name."""

    width: int
    used: dict[str, int]
    certain: bool


@with_max_bytes
def read_matches(path: StrPath, columns: str | Sequence[str] | None = None, *, max_bytes: int | None = None) -> Matches:
    """Read points with values from text (columns separated by spaces) or CSV (comma, semicolon or tab).

    Without `columns` and without a header line, the columns are x1 y1 x2 y2, as DeepMatching, CPM and EpicFlow write
    them, and further ones are ignored; the values are displacements x2 - x1, y2 - y1. `columns` or a header names
    others: "x,y,u,v" for displacements, "x,y,d" for one value. The names `noise` and `confidence` mean what they mean
    in `inpaint_points`; `_` skips a column. Lines that start with # are comments. max_bytes: the byte budget; default
    FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    path = existing_file(path)
    names = None if columns is None else _column_names(columns)
    numbers, layout = array("d"), None
    with path.open("rb") as stream:
        separator = header = None
        for line, text in _lines(path, stream):
            if text.startswith("#"):
                if layout is None:
                    header = text.lstrip("# ")
                continue
            if layout is None:
                separator = next((s for s in ";,\t" if s in text), None)
                cells = _cells(text, separator)
                named = _is_header(cells)
                listed = cells if named else _commented_header(header, separator, len(cells))
                layout = _layout(path, names, listed, len(cells))
                if named:
                    continue
            cells = _cells(text, separator)
            if len(cells) != layout.width:
                raise FileFormatError(f"{path}: line {line} must have {layout.width} columns, got {len(cells)}")
            try:
                numbers.extend([float(cells[i]) for i in layout.used.values()])
            except ValueError:
                bad = next(cells[i] for i in layout.used.values() if not _is_number(cells[i]))
                raise FileFormatError(f"{path}: line {line} must hold numbers, got {bad[:40]!r}") from None
            if len(numbers) > MOST_ROWS * len(layout.used):
                raise FileFormatError(f"{path}: must have at most {MOST_ROWS} rows")
    if layout is None or not numbers:
        raise FileFormatError(f"{path}: must have at least one row of numbers, got none")
    table = np.frombuffer(numbers).reshape(-1, len(layout.used))
    return _matches(path, {name: table[:, i] for i, name in enumerate(layout.used)}, layout.certain)


def _matches(path: Path, column: dict[str, Array], certain: bool) -> Matches:
    hints = [column.pop(name).copy() if name in column else None for name in _HINTS]
    if "x1" in column:
        start, end = (np.stack([column[x], column[y]], -1) for x, y in (("x1", "y1"), ("x2", "y2")))
        if not certain and _looks_like_displacements(start, end):
            raise FileFormatError(
                f"{path}: columns 3 and 4 must be end points, got values that look like displacements; pass "
                'columns="x,y,u,v", or columns="x1,y1,x2,y2" if they are end points'
            )
        return Matches(start, end - start, *hints)
    points = np.stack([column.pop("x"), column.pop("y")], -1)
    return Matches(points, np.stack(list(column.values()), -1), *hints)


def _looks_like_displacements(start: Array, end: Array) -> bool:
    """Whether end points (N, 2) are nearer to each other, or to zero, than to where they start."""
    finite = np.isfinite(start).all(1) & np.isfinite(end).all(1)
    start, end = start[finite], end[finite]
    if not len(start):
        return False

    def size(x: Array) -> float:
        centre = np.median(x, axis=0) if len(x) >= _FEW else 0.0
        return float(np.median(np.abs(x - centre).sum(1)))

    return size(end) < size(end - start)


def _lines(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    """The numbers and texts of the lines that are not empty."""
    number = 0
    while line := stream.readline(_LONGEST_LINE + 1):
        number += 1
        check_file(path, b"\0" in line and "not a text file: it has a zero byte")
        check_file(path, len(line) > _LONGEST_LINE and f"line {number} must have at most {_LONGEST_LINE} characters")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise FileFormatError(f"{path}: not a text file: line {number} is not UTF-8") from None
        if text:
            yield number, text


def _cells(text: str, separator: str | None) -> list[str]:
    """The cells of a line; a separator at its end does not open another."""
    if separator is None:
        return text.split()
    return [cell.strip().strip('"') for cell in text.removesuffix(separator).split(separator)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_header(cells: list[str]) -> bool:
    """Whether no cell is a number and each is a name."""
    return all(re.fullmatch(r"[A-Za-z_][\w .\-\[\]()/]*", cell) and not _is_number(cell) for cell in cells)


def _commented_header(text: str | None, separator: str | None, width: int) -> list[str] | None:
    """The names in a comment before the first row, as numpy.savetxt writes them."""
    if text is None:
        return None
    cells = [cell.lower() for cell in _cells(text, separator)]
    named = {"x", "y"} <= set(cells) or set(_ENDS) <= set(cells)
    return cells if named and len(cells) == width else None


def _column_names(columns: str | Sequence[str]) -> list[str]:
    """The names of `columns`, lower case; InputError unless they can be used."""
    if isinstance(columns, str):
        columns = re.split(r"[,;\s]+", columns.strip())
    names: list[Any] = list(columns)
    if not all(isinstance(name, str) and re.fullmatch(r"\w+", name) for name in names):
        raise InputError(f'columns must be names such as "x,y,u,v", got {columns!r:.80}')
    names = [name.lower() for name in names]
    if fault := _fault_of(names):
        raise InputError(f"columns must {fault}, got {','.join(names)}")
    return names


def _fault_of(names: list[str]) -> str | None:
    """What columns of these names lack, as the end of "must …"; None if they can be read."""
    named = [name for name in names if name != _SKIPPED]
    if len(set(named)) < len(named):
        return "have different names (_ to skip one)"
    ends, places = set(_ENDS) & set(named), {"x", "y"} & set(named)
    if ends and places:
        return "have either x and y, or x1, y1, x2 and y2"
    if ends == set(_ENDS):
        others = set(named) - ends - set(_HINTS)
        return f"have _ instead of {sorted(others)[0]} next to x1, y1, x2 and y2" if others else None
    if len(places) < 2:
        return "have x and y, or x1, y1, x2 and y2"
    if not set(named) - places - set(_HINTS):
        return 'have a value next to x and y, for example "x,y,u,v" or "x,y,d"'
    return None


def _layout(path: Path, names: list[str] | None, header: list[str] | None, width: int) -> _Layout:
    """The columns of a file from `columns`, from its header, or by default."""
    if names is not None:
        check_file(path, len(names) > width and f"must have the {len(names)} columns {','.join(names)}, got {width}")
        return _Layout(width, {name: i for i, name in enumerate(names) if name != _SKIPPED}, True)
    if header is None:
        check_file(path, width < 4 and f'must have columns x1 y1 x2 y2, got {width}; pass columns="x,y,d" for others')
        return _Layout(width, {name: i for i, name in enumerate(_ENDS)}, False)
    found = [name.lower() for name in header]
    if set(_ENDS) <= set(found):  # further columns are ignored
        found = [name if name in (*_ENDS, *_HINTS) else _SKIPPED for name in found]
    strange = [name for name in found if name not in {*_ENDS, *_HINTS, *_VALUES, "x", "y", _SKIPPED}]
    if strange or _fault_of(found):
        why = f"the meaning of {strange[0]!r} is unknown" if strange else f"they must {_fault_of(found)}"
        raise FileFormatError(
            f"{path}: its header must name known columns, got {','.join(header)[:200]}, and {why}; pass "
            'columns="x,y,u,v" or other names, with _ for a column to skip'
        )
    return _Layout(width, {name: i for i, name in enumerate(found) if name != _SKIPPED}, True)
