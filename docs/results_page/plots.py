"""Plots of the results page: errors over the density, and sparsification curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowinpaint.errors import InputError
from flowinpaint.evaluation.report import short_names
from flowinpaint.evaluation.uncertainty import Sparsification
from flowinpaint.masks.cases import Case
from flowinpaint.viz.plots import plain_number, plot_file
from results_page.evaluations import Results
from results_page.tables import ordered_methods

_COLUMNS = 3
_PANEL = (3.6, 2.8)


def plotted_densities(results: Results) -> list[float]:
    """The measured densities."""
    return [case for case in results.cases if not isinstance(case, str)]


def write_density_plot(path: Path, results: Results) -> None:
    """Plot EPE (px) over density (%), both logarithmic, for each data set, and R over all data sets.

    The panel of R has the densities that all data sets have.
    """
    densities = plotted_densities(results)
    cases: list[Case] = list(densities)
    names = short_names(results.methods)
    methods = ordered_methods(results, cases)
    common = [d for d in densities if all(results.score(results.reference, d, name) for name in results.datasets)]
    panels: list[str | None] = [*results.datasets, None]
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with plot_file(path, (_PANEL[0] * columns, _PANEL[1] * rows + 0.6), dpi=100) as figure:
        lines = {}
        for place, dataset in enumerate(panels, 1):
            axes = figure.add_subplot(rows, columns, place)
            for i, method in enumerate(methods):
                points = []
                for density in densities if dataset else common:
                    value = results.figure("epe" if dataset else "ratio", method, density, dataset)
                    if value:  # a logarithmic axis has no 0
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


def write_sparsification_plot(path: Path, curves: Mapping[str, Sparsification]) -> None:
    """Plot curves of the same errors by name, with their AUSE, and the oracle dashed."""
    if not curves:
        raise InputError("curves must have at least one element, got none.")
    with plot_file(path) as figure:
        axes = figure.add_subplot()
        for name, part in curves.items():
            axes.plot(100 * part.removed, part.curve, label=f"{name}: AUSE {part.ause:.3f}")
        first = next(iter(curves.values()))
        axes.plot(100 * first.removed, first.oracle, "--", color="0.4", label="oracle: sorted by the error")
        axes.set(xlabel="removed pixels (%), the most uncertain first", ylabel="EPE of the rest over EPE of all")
        axes.set(xlim=(0, 100), ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
