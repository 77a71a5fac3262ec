"""Time against pixels, both logarithmic: a straight line of slope one is linear growth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flowinpaint.evaluation.plotting import plain_number, plot_file
from flowinpaint.evaluation.speed_report import Growth


def write_plot(path: Path, grown: Sequence[Growth]) -> None:
    """Draw a line per method, device and precision, and through the first how linear growth would look."""
    with plot_file(path) as figure:
        axes = figure.add_subplot()
        for g in grown:
            megapixels = [n / 1e6 for n in g.pixels]
            axes.plot(megapixels, [1e3 * t for t in g.seconds], "o-", label=f"{g.label}: N^{g.exponent:.2f}")
        sizes = sorted({n for g in grown for n in g.pixels})
        first = grown[0]
        guide = [1e3 * first.seconds[-1] * n / first.pixels[-1] for n in (sizes[0], sizes[-1])]
        axes.plot([sizes[0] / 1e6, sizes[-1] / 1e6], guide, "--", color="0.6", label=f"linear growth of {first.label}")
        axes.set(xscale="log", yscale="log", xlabel="megapixels", ylabel="milliseconds, median")
        axes.set_xticks([n / 1e6 for n in sizes], [f"{n / 1e6:.2g}" for n in sizes])
        axes.xaxis.minorticks_off()
        axes.yaxis.set_major_formatter(plain_number)
        axes.yaxis.set_minor_formatter(plain_number)
        axes.grid(which="both", alpha=0.3)
        axes.legend(fontsize="small")
