"""Matplotlib figures: check that they can be drawn, create them, and write them to files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flowinpaint.extras import is_installed, needs
from flowinpaint.io import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_PLOT = f"no plot was drawn; it {needs('plots')}."


def can_plot() -> bool:
    """Whether matplotlib, the extra `plots`, is installed."""
    return is_installed("plots")


def new_figure(inches: tuple[float, float], dpi: int, *, arranged: bool = True) -> Figure:
    """An empty figure on the Agg canvas; if arranged, matplotlib places axes and legends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, dpi=dpi, layout="constrained" if arranged else None)
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def plot_file(path: Path, inches: tuple[float, float] = (8.0, 5.0), dpi: int = 120) -> Iterator[Figure]:
    """A figure to draw into; written to a PNG file, whole or not at all, when the block ends."""
    figure = new_figure(inches, dpi)
    yield figure
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", pil_kwargs={"optimize": True})


def plain_number(value: float, _: object = None) -> str:
    """The tick label of a logarithmic axis: 1, 2 and 5 of each decade."""
    return f"{value:g}" if f"{value:e}"[0] in "125" else ""
