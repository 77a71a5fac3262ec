"""Errors over the density, both logarithmic: a panel for each data set, and one for R over all of them."""

from __future__ import annotations

from pathlib import Path

from flowinpaint.evaluation.finished import Results, short_names
from flowinpaint.evaluation.plotting import plain_number, plot_file
from flowinpaint.evaluation.results_tables import ordered_methods
from flowinpaint.masks.cases import Case

FEWEST = 2
_COLUMNS = 3
_PANEL = (3.6, 2.8)
_DOTS_PER_INCH = 100


def plotted_densities(results: Results) -> list[float]:
    """The densities that were measured."""
    return [case for case in results.cases if not isinstance(case, str)]


def write_density_plot(path: Path, results: Results) -> None:
    """Draw EPE (px) over density (%) by data set, and last R over all of them where all have the density."""
    densities = plotted_densities(results)
    cases: list[Case] = list(densities)
    names = short_names(results.methods)
    methods = ordered_methods(results, cases)
    common = [d for d in densities if all(results.score(results.reference, d, name) for name in results.datasets)]
    panels: list[str | None] = [*results.datasets, None]
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with plot_file(path, (_PANEL[0] * columns, _PANEL[1] * rows + 0.6), _DOTS_PER_INCH) as figure:
        lines = {}
        for place, dataset in enumerate(panels, 1):
            axes = figure.add_subplot(rows, columns, place)
            for i, method in enumerate(methods):
                points = []
                for density in densities if dataset else common:
                    score = results.score(method, density, dataset)
                    value = None if score is None else score.epe if dataset else score.ratio
                    if value:  # 0 has no place on a logarithmic axis
                        points.append((100 * density, value))
                shares, values = zip(*points, strict=True) if points else ((), ())
                style = f"C{i % 10}{'o-' if i < 10 else 's--'}"
                (lines[names[method]],) = axes.plot(shares, values, style, markersize=3.5)
            axes.set(xscale="log", yscale="log")
            axes.set_xlabel("given (%)", fontsize="small")
            axes.set_ylabel("EPE (px)" if dataset else f"R: EPE over {results.reference}'s", fontsize="small")
            axes.set_title(dataset or "all data sets", fontsize="medium")
            axes.set_xticks([100 * d for d in densities], [f"{100 * d:g}" for d in densities])
            axes.xaxis.minorticks_off()
            for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                formatter(plain_number if dataset else "{x:g}")
            axes.tick_params(labelsize="x-small", which="both")
            axes.grid(alpha=0.3)
        figure.legend(
            lines.values(), lines.keys(), loc="outside lower center", ncols=min(4, len(lines)), fontsize="small"
        )
