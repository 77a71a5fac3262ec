"""What the plots share: whether they can be drawn, and a figure that ends as a PNG file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from flowinpaint.io import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES = (8.0, 5.0)
DOTS_PER_INCH = 120


def can_plot() -> bool:
    """Whether matplotlib is there: the extra `plots`."""
    return find_spec("matplotlib") is not None


@contextmanager
def plot_file(path: Path, inches: tuple[float, float] = INCHES, dots: int = DOTS_PER_INCH) -> Iterator[Figure]:
    """A figure to draw into, of dots per inch; written to the path, whole or not at all, when the block ends."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, dpi=dots, layout="constrained")
    FigureCanvasAgg(figure)
    yield figure
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", pil_kwargs={"optimize": True})


def plain_number(value: float, _: object = None) -> str:
    """The label of a tick on a logarithmic axis: 1, 2 and 5 of each decade."""
    return f"{value:g}" if f"{value:e}"[0] in "125" else ""
