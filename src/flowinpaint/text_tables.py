"""Tables of text, Markdown with lines of at most 120 characters, and text files."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from flowinpaint.io import atomic_path

NONE = "–"
"""The cell of a missing number."""


@dataclass(frozen=True)
class TextTable:
    """A table of text cells: words in the first column, numbers in the others."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """A Markdown table; columns in `words` are left-aligned, all others right-aligned."""
    rule = "|" + "|".join("---" if i in words else "--:" for i in range(len(headings))) + "|"
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def number(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """A number with this many decimals, a dash for None."""
    return NONE if value is None else f"{value:{'+' if sign else ''}z.{digits}f}"


def three_figures(value: float) -> str:
    """A number with three significant figures, without a power of ten if it is large."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def wrapped(text: str) -> str:
    """A paragraph or list, wrapped at 120 characters; tables, headings and pictures are unchanged."""
    if text.startswith(("|", "!", "#")):
        return text
    lines = []
    for line in text.splitlines():
        indent = "  " if line.startswith("- ") else ""
        lines.append(textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
    return "\n".join(lines)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically, with the line ends of the text; other bytes of file names are escaped."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
