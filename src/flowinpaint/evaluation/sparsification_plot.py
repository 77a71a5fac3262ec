"""Sparsification curves beside each other, and the oracle's below them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowinpaint.errors import InputError
from flowinpaint.evaluation.plotting import plot_file
from flowinpaint.evaluation.sparsification import Sparsification


def write_sparsification_plot(path: Path, curves: Mapping[str, Sparsification]) -> None:
    """Draw the curves by name, with their AUSE; they are of the same errors, whose oracle is dashed."""
    if not curves:
        raise InputError("curves: none was given; at least one is taken.")
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
