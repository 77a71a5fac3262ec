"""Lists of matches in text and CSV files: rows `x1 y1 x2 y2 [score …]`, or other columns by name."""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io.budget import check_budget, with_max_bytes
from flowinpaint.io.files import StrPath, existing_file
from flowinpaint.io.text import MOST_SHORT, as_number, text_lines

Array = npt.NDArray[np.float64]

MATCH_SUFFIXES = (".txt", ".csv", ".tsv", ".match", ".matches", ".dat")

MOST_ROWS = 2**24
_LONGEST_LINE = 65536
_BLOCK = 2**20
_PLAIN = b"0123456789+-.eEnaifNAIF \t\r\n"
"""The characters of numbers, nan and inf, and white space."""
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


@np.errstate(all="ignore")
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
    rows, number = _Rows(path, names), 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            block += b"" if block.endswith(b"\n") else stream.readline(_LONGEST_LINE + 1)
            if not rows.add_plain(block):
                for line, text in text_lines(path, io.BytesIO(block), _LONGEST_LINE, number):
                    rows.add(line, text)
            number += block.count(b"\n")
            check_budget(path, 3 * 8 * len(rows.numbers))
            idle = number - rows.count
            check_file(path, idle > MOST_SHORT and f"must have at most {MOST_SHORT} lines without numbers, got {idle}")
    if rows.layout is None or not rows.numbers:
        raise FileFormatError(f"{path}: must have at least one row of numbers, got none")
    used = rows.layout.used
    table = np.frombuffer(rows.numbers).reshape(-1, len(used))
    return _matches(path, {name: table[:, i] for i, name in enumerate(used)}, rows.layout.certain)


class _Rows:
    """The numbers of a file in the columns that are used, row by row, as lines are added."""

    def __init__(self, path: Path, names: list[str] | None) -> None:
        self._path, self._names = path, names
        self.layout: _Layout | None = None
        self.numbers = array("d")
        self._separator: str | None = None
        self._header: str | None = None

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.numbers) // len(self.layout.used) if self.layout else 0

    def add(self, line: int, text: str) -> None:
        """Add a line that is not blank; FileFormatError, which names the line, if it is no row."""
        if text.startswith("#"):
            if self.layout is None:
                self._header = text.lstrip("# ")
            return
        named = False
        if self.layout is None:
            self._separator = next((s for s in ";,\t" if s in text), None)
            cells = _cells(text, self._separator)
            named = _is_header(cells)
            listed = cells if named else _commented_header(self._header, self._separator, len(cells))
            self.layout = _layout(self._path, self._names, listed, len(cells))
        if named:
            return
        cells, used = _cells(text, self._separator), self.layout.used.values()
        if len(cells) != self.layout.width:
            raise FileFormatError(f"{self._path}: line {line} must have {self.layout.width} columns, got {len(cells)}")
        try:
            self.numbers.extend([as_number(cells[i]) for i in used])
        except ValueError:
            bad = next(cells[i] for i in used if not _is_number(cells[i]))
            raise FileFormatError(f"{self._path}: line {line} must hold numbers, got {bad[:40]!r}") from None
        self._check_count()

    def add_plain(self, block: bytes) -> bool:
        """Add whole lines of nothing but numbers, which is faster than line by line; False if they may be others."""
        if self.layout is None or not block.endswith(b"\n"):
            return False
        if self._separator is not None:
            separator = self._separator.encode()
            block = block.replace(b"\r\n", b"\n").replace(separator + b" ", separator)
            if block.startswith(separator) or any(s in block for s in (b" ", b"\n" + separator, 2 * separator)):
                return False
            block = block.replace(separator, b" ")
        if block.translate(None, _PLAIN):
            return False
        characters = np.frombuffer(block, np.uint8)
        solid = characters > ord(" ")
        words = np.cumsum(solid & ~np.concatenate([[False], solid[:-1]]))
        counts = np.diff(words[characters == ord("\n")], prepend=0)
        if not np.isin(counts, (0, self.layout.width)).all():
            return False
        try:
            values = np.array(list(map(float, block.split()))).reshape(-1, self.layout.width)
        except ValueError:
            return False
        self.numbers.frombytes(values[:, list(self.layout.used.values())].tobytes())
        self._check_count()
        return True

    def _check_count(self) -> None:
        check_file(self._path, self.count > MOST_ROWS and f"must have at most {MOST_ROWS} rows")


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


def _cells(text: str, separator: str | None) -> list[str]:
    """The cells of a line; a separator at its end does not open another."""
    if separator is None:
        return text.split()
    return [cell.strip().strip('"') for cell in text.removesuffix(separator).split(separator)]


def _is_number(text: str) -> bool:
    try:
        as_number(text)
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
