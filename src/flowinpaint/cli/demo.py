"""`flowinpaint demo`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from flowinpaint.cli.console import output, say, solver_bar
from flowinpaint.cli.options import Device
from flowinpaint.demo import run_demo


def command(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("demo"),
    density: Annotated[float, typer.Option(help="Share of the vectors that are given.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the scene and the mask.")] = 0,
    device: Device = "auto",
) -> None:
    """Fill the sparse flow of a made-up scene with every method, and draw the results."""
    with solver_bar() as report, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = run_demo(out, density, seed, device, report)
    for warning in caught:
        say("Warning:", "yellow", str(warning.message))
    table = Table(title=f"Sample scene {seed}, {100 * density:g} % of the vectors given")
    table.add_column("method", min_width=max(len(row.method) for row in rows))
    for heading in ("EPE (px)", "Fl (%)", "seconds", "iterations", "status"):
        table.add_column(heading, justify="left" if heading == "status" else "right")
    for row in rows:
        table.add_row(
            row.method,
            f"{row.epe:.3f}",
            f"{row.fl:.2f}",
            f"{row.seconds:.2f}",
            str(row.iterations),
            row.status,
        )
    output.print(table)
    output.print(f"Look at {out / 'demo.png'}; the fields are in the same folder as .flo files.", highlight=False)
