"""How every picture of a reproduction looks: one colour, marker and hatch for each method, one font, a thin grid."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
GREY = "#6b6b6b"
RULE = "#bdbdbd"
SHADE = "#eef1f6"
"""Behind the column of our network."""
REHEARSAL = "rehearsal (--quick): these figures mean nothing"
_SALT = "flowinpaint"
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
    "svg.hashsalt": _SALT,
}
_FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"pil_kwargs": {"optimize": True}},
    ".svg": {"metadata": {"Date": None}},  # so that the same picture is the same file
}


@dataclass(frozen=True)
class Look:
    """A colour, and what tells a method apart where there is none: marker and line style."""

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
"""By the name of the contender; dark and light alternate, so that they also differ in grey."""


def render(
    draw: Callable[[Figure], None], inches: tuple[float, float], rehearsal: bool, *, arranged: bool = True
) -> dict[str, bytes]:
    """A picture as PNG and as SVG, by their suffix; one of a rehearsal says so.

    arranged: let matplotlib find the places of axes and legends; otherwise `draw` does.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):  # type: ignore[arg-type]
        figure = Figure(figsize=inches, dpi=DOTS_PER_INCH, layout="constrained" if arranged else None)
        FigureCanvasAgg(figure)
        draw(figure)
        if rehearsal:
            figure.suptitle(REHEARSAL, fontsize=8, color="#c0392b")
        pictures = {}
        for suffix, options in _FORMATS.items():
            file = io.BytesIO()
            figure.savefig(file, format=suffix[1:], facecolor="white", **options)
            pictures[suffix] = file.getvalue()
    return pictures


def curve(axes: Axes, name: str, label: str, x: list[float], y: list[float]) -> Any:
    """A line with markers in the look of a method, ours above the others."""
    look = LOOKS[name]
    (line,) = axes.plot(
        x, y, look.line, color=look.colour, marker=look.marker, label=label, zorder=3 if name == "ours" else 2
    )
    return line
