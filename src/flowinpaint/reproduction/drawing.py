"""Drawing: the style of each method, figures as PNG and SVG, and tables in the paper's layout."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from flowinpaint.text_tables import markdown_table
from flowinpaint.viz.plots import can_plot, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pictures = dict[str, bytes]
"""Files of a picture, by suffix."""

GREY, RULE, RED = "#6b6b6b", "#bdbdbd", "#c0392b"
SHADE = "#eef1f6"
"""Background of our network's column."""
REHEARSAL = "rehearsal (--quick): results are meaningless"
_DOTS_PER_INCH = 150
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "flowinpaint",
}
_FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"pil_kwargs": {"optimize": True}},
    ".svg": {"metadata": {"Date": None}},  # so that the same picture is the same file
}

_INCHES_PER_LETTER, _INCHES_PER_ROW = 0.083, 0.235
_PADDING = 3.0
"""Space between two columns, in letters."""
_TITLE_ROWS = 1.6
_TITLE_LETTER = 0.97
"""Width of a title's letter relative to a cell's."""
_NARROWEST = 4.5
_MARGIN = 0.15
"""Margin around the figure, in inches."""


class Look(NamedTuple):
    """Style of a method: colour, and marker and line style, which also distinguish methods without colour."""

    colour: str
    marker: str
    line: str


LOOKS = {
    "ours": Look("#0b3c7d", "o", "-"),
    "flownets": Look("#c0392b", "s", "--"),
    "wgain": Look("#2e8b57", "^", "-."),
    "pd": Look("#8e5bb5", "D", ":"),
    "eed": Look("#4a4a4a", "x", "-"),
    "amle": Look("#b8860b", "v", "--"),
    "laplace-beltrami": Look("#7f8c8d", "P", "-."),
    "neuroexplicit": Look("#17a2c6", "*", "-"),
    "neuroexplicit-paper": Look("#e08e2b", "h", "--"),
}
"""Style by method; dark and light alternate, so that methods also differ in greyscale."""


def render(
    draw: Callable[[Figure], None], inches: tuple[float, float], rehearsal: bool, *, arranged: bool = True
) -> Pictures:
    """A figure as PNG and SVG, marked if it is from a rehearsal; empty without matplotlib.

    arranged: whether matplotlib arranges axes and legends; otherwise `draw` does.
    """
    if not can_plot():
        return {}
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):  # type: ignore[arg-type]
        figure = new_figure(inches, _DOTS_PER_INCH, arranged=arranged)
        draw(figure)
        if rehearsal:
            figure.suptitle(REHEARSAL, fontsize=8, color=RED)
        pictures = {}
        for suffix, options in _FORMATS.items():
            file = io.BytesIO()
            figure.savefig(file, format=suffix[1:], facecolor="white", **options)
            pictures[suffix] = file.getvalue()
    return pictures


@dataclass(frozen=True)
class Row:
    """A row of a table. quiet: it contains the paper's values. bold: indices of the best cells."""

    label: str
    cells: tuple[str, ...]
    quiet: bool = False
    bold: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Block:
    """A table with a title. own: index of our network's column."""

    title: str
    corner: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    own: int | None = None

    @property
    def markdown(self) -> str:
        """The table as Markdown, the paper's rows in italics."""
        rows = []
        for row in self.rows:
            texts = [row.label, *(f"**{cell}**" if i in row.bold else cell for i, cell in enumerate(row.cells))]
            rows.append([f"*{text}*" for text in texts] if row.quiet else texts)
        return f"### {self.title}\n\n" + markdown_table([self.corner, *self.headings], rows)

    @property
    def lines(self) -> float:
        """Height in rows."""
        return len(self.rows) + 1 + _TITLE_ROWS


def table_size(blocks: Sequence[Block]) -> tuple[float, float]:
    """Width and height in inches of vertically stacked blocks."""
    letters = max(sum(_widths(blocks)), *(len(block.title) * _TITLE_LETTER for block in blocks))
    rows = sum(block.lines for block in blocks)
    return max(_NARROWEST, letters * _INCHES_PER_LETTER + 2 * _MARGIN), rows * _INCHES_PER_ROW + 2 * _MARGIN


def draw_table(figure: Figure, blocks: Sequence[Block]) -> None:
    """Draw vertically stacked blocks in a figure of `table_size`."""
    width, height = table_size(blocks)
    letters = (width - 2 * _MARGIN) / _INCHES_PER_LETTER
    top = height - _MARGIN
    for block in blocks:
        own = block.lines * _INCHES_PER_ROW
        top -= own
        axes = figure.add_axes((_MARGIN / width, top / height, 1 - 2 * _MARGIN / width, own / height))
        _draw_block(axes, block, letters, _widths(blocks))


def _widths(blocks: Sequence[Block]) -> list[float]:
    """Width of each column in letters, the same in all blocks."""
    rows = [row for b in blocks for row in ((b.corner, *b.headings), *((r.label, *r.cells) for r in b.rows))]
    return [max(map(len, column)) + _PADDING for column in zip(*rows, strict=True)]


def _draw_block(axes: Axes, block: Block, widest: float, widths: Sequence[float]) -> None:
    lines = len(block.rows) + 1
    axes.set(xlim=(0, widest), ylim=(lines, -_TITLE_ROWS))
    axes.axis("off")
    edges = list(accumulate(widths, initial=0.0))
    axes.text(0, -0.75, block.title, weight="bold", va="center", fontsize=9.5)
    if block.own is not None:
        axes.fill_between(edges[block.own + 1 : block.own + 3], 0, lines, color=SHADE, linewidth=0)
    for y, width in ((0, 1.0), (1, 0.6), (lines, 1.0)):
        axes.plot([0, edges[-1]], [y, y], color="black" if width == 1 else RULE, linewidth=width, clip_on=False)

    def write(column: int, row: int, text: str, **look: Any) -> None:
        """Write a cell: words left-aligned, numbers right-aligned."""
        margin = _PADDING / 2
        x, side = (edges[column + 1] - margin, "right") if column else (edges[0] + margin / 2, "left")
        axes.text(x, row + 0.5, text, ha=side, va="center", fontsize=8.5, **look)

    for i, heading in enumerate((block.corner, *block.headings)):
        write(i, 0, heading, weight="bold" if i else "normal")
    for number, row in enumerate(block.rows, 1):
        look = {"color": GREY, "style": "italic"} if row.quiet else {"color": "black", "style": "normal"}
        for i, text in enumerate((row.label, *row.cells)):
            write(i, number, text, weight="bold" if i - 1 in row.bold and i else "normal", **look)
