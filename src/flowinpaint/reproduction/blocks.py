"""Tables as the paper sets them, as text and drawn: a column for each method, rows of densities, ours and theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowinpaint.reproduction.style import GREY, RULE, SHADE
from flowinpaint.text_tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES_PER_LETTER, _INCHES_PER_ROW = 0.083, 0.235
_PADDING = 3.0
"""Letters between two columns."""
_TITLE_ROWS = 1.6
_TITLE_LETTER = 0.97
"""The width of a title's letter over that of a cell's."""
_NARROWEST = 4.5
_MARGIN = 0.15
"""Inches around the whole."""


@dataclass(frozen=True)
class Row:
    """Cells behind a label; quiet ones are the paper's, bold marks the places of the best."""

    label: str
    cells: tuple[str, ...]
    quiet: bool = False
    bold: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Block:
    """A table with a title; `own` is the column of our network, if it has one."""

    title: str
    corner: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    own: int | None = None

    @property
    def markdown(self) -> str:
        """The block as Markdown, the paper's rows in italics."""
        rows = []
        for row in self.rows:
            cells = [f"**{cell}**" if i in row.bold else cell for i, cell in enumerate(row.cells)]
            texts = [row.label, *cells]
            rows.append([f"*{text}*" for text in texts] if row.quiet else texts)
        return f"### {self.title}\n\n" + markdown_table([self.corner, *self.headings], rows)

    @property
    def widths(self) -> list[float]:
        """Letters that each column takes."""
        columns = zip(*([self.corner, *self.headings], *((row.label, *row.cells) for row in self.rows)), strict=True)
        return [max(map(len, column)) + _PADDING for column in columns]


def blocks_size(blocks: Sequence[Block]) -> tuple[float, float]:
    """Width and height in inches of blocks below each other."""
    letters = max(sum(_widths(blocks)), *(len(block.title) * _TITLE_LETTER for block in blocks))
    width = letters * _INCHES_PER_LETTER
    rows = sum(_lines(block) for block in blocks)
    return max(_NARROWEST, width + 2 * _MARGIN), rows * _INCHES_PER_ROW + 2 * _MARGIN


def draw_blocks(figure: Figure, blocks: Sequence[Block]) -> None:
    """Draw blocks below each other in a figure of their size."""
    width, height = blocks_size(blocks)
    letters = (width - 2 * _MARGIN) / _INCHES_PER_LETTER
    top = height - _MARGIN
    for block in blocks:
        own = _lines(block) * _INCHES_PER_ROW
        top -= own
        axes = figure.add_axes((_MARGIN / width, top / height, 1 - 2 * _MARGIN / width, own / height))
        _draw(axes, block, letters, _widths(blocks))


def _widths(blocks: Sequence[Block]) -> list[float]:
    """Letters that each column takes, the same in all blocks, which have the same columns."""
    return [max(column) for column in zip(*(block.widths for block in blocks), strict=True)]


def _lines(block: Block) -> float:
    return len(block.rows) + 1 + _TITLE_ROWS


def _draw(axes: Axes, block: Block, widest: float, widths: Sequence[float]) -> None:
    lines = len(block.rows) + 1
    axes.set(xlim=(0, widest), ylim=(lines, -_TITLE_ROWS))
    axes.axis("off")
    edges = [0.0]
    for width in widths:
        edges.append(edges[-1] + width)
    axes.text(0, -0.75, block.title, weight="bold", va="center", fontsize=9.5)
    if block.own is not None:
        axes.fill_between(edges[block.own + 1 : block.own + 3], 0, lines, color=SHADE, linewidth=0)
    for y, width in ((0, 1.0), (1, 0.6), (lines, 1.0)):
        axes.plot([0, edges[-1]], [y, y], color="black" if width == 1 else RULE, linewidth=width, clip_on=False)
    for i, heading in enumerate((block.corner, *block.headings)):
        _write(axes, edges, i, 0.5, heading, weight="bold" if i else "normal")
    for number, row in enumerate(block.rows, 1):
        for i, text in enumerate((row.label, *row.cells)):
            _write(
                axes,
                edges,
                i,
                number + 0.5,
                text,
                color=GREY if row.quiet else "black",
                style="italic" if row.quiet else "normal",
                weight="bold" if i - 1 in row.bold and i else "normal",
            )


def _write(axes: Axes, edges: list[float], column: int, y: float, text: str, **look: str) -> None:
    """The text of a cell: words to the left, numbers to the right."""
    margin = _PADDING / 2
    x = edges[column] + margin / 2 if column == 0 else edges[column + 1] - margin
    axes.text(x, y, text, ha="left" if column == 0 else "right", va="center", fontsize=8.5, **look)  # type: ignore[arg-type]
