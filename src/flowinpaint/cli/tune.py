"""`flowinpaint tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from flowinpaint.cli.console import output, runs_bar, say, tell_written
from flowinpaint.cli.options import Densities, Device, Jobs, MaxBytes, Root, Seed, parse_percents
from flowinpaint.data.folder import find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation import tuning
from flowinpaint.evaluation.parameter_file import ParameterTable, write_parameters
from flowinpaint.evaluation.report import parameters_text
from flowinpaint.interrupts import exit_code
from flowinpaint.io import new_folder, publishing
from flowinpaint.io.files import check_target
from flowinpaint.text_tables import write_text

app = typer.Typer(no_args_is_help=True, help="Search for the best parameters of a method on frames with ground truth.")


@app.callback()
def tune() -> None:
    """Keep `eed` a subcommand although it is the only one."""


@app.command()
def eed(
    root: Root,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Parameter file to write for --params, a .json.")
    ],
    densities: Densities = "1,5,10",
    samples: Annotated[int, typer.Option(min=1, help="Largest number of frames.")] = 128,
    crop: Annotated[
        int, typer.Option(min=0, help="Side of the central square to use, in px; 0 for whole frames.")
    ] = 384,
    lambdas: Annotated[int, typer.Option(min=1, help="Number of values of lam, from 1e-6 to 1e-2.")] = tuning.LAMBDAS,
    alphas: Annotated[int, typer.Option(min=1, help="Number of values of alpha, from 0.001 to 0.5.")] = tuning.ALPHAS,
    tolerance: Annotated[float, typer.Option(help="Relative residual to reach.")] = 1e-5,
    jobs: Jobs = 1,
    seed: Seed = 0,
    device: Device = "auto",
    max_bytes: MaxBytes = None,
) -> None:
    """Search the paper's grid for lam and alpha of eed with the smallest mean endpoint error.

    Next to FILE it writes the whole grid (.csv) and the finished runs (.records.jsonl). If stopped, the same command
    continues from these.
    """
    shares = parse_percents(densities)
    if out.suffix != ".json":
        raise InputError(f"--out must end in .json, got {out}")
    table_path = out.with_suffix(".csv")
    with new_folder(out.parent):
        for path in (out, table_path):
            check_target(path)  # before the search
        found = len(find_samples(root))
        if found < samples:
            say("Note:", "yellow", f"{root} has {found} samples, fewer than {samples}; all are used.")
        with runs_bar() as report:
            try:
                grids = tuning.tune_eed(
                    root,
                    shares,
                    samples=samples,
                    crop=crop,
                    lambdas=lambdas,
                    alphas=alphas,
                    tolerance=tolerance,
                    seed=seed,
                    device=device,
                    jobs=jobs,
                    records=out.with_suffix(".records.jsonl"),
                    progress=report,
                )
            except KeyboardInterrupt:
                say("Stopped:", "yellow", "finished runs are kept; the same command continues from there.")
                raise typer.Exit(exit_code()) from None
        with publishing():
            write_text(table_path, tuning.grids_as_csv(grids))
            write_parameters(out, ParameterTable("eed", {grid.density: grid.parameters for grid in grids}))
    for grid in grids:
        output.print(_grid_table(grid))
        if grid.border:
            names = " and ".join(grid.border)
            say("Note:", "yellow", f"at {100 * grid.density:g} % the best {names} is on the border of the grid.")
        if lost := int((grid.epe != grid.epe).sum()):
            say("Warning:", "yellow", f"{lost} points of the grid failed on a sample and do not count.")
    tell_written(out, table_path)


def _grid_table(grid: tuning.ParameterGrid) -> Table:
    """A table of the mean EPE, α downwards and λ to the right, with the best one marked."""
    best = parameters_text(grid.parameters)
    title = f"Mean EPE at {100 * grid.density:g} %, {grid.samples} samples; best: {best}"
    table = Table(title=title, box=box.SIMPLE, padding=0)
    table.add_column("alpha", justify="right")
    for lam in grid.lambdas:
        table.add_column(f"{lam:.1e}".replace("e-0", "e-"), justify="right")
    for j, alpha in enumerate(grid.alphas):
        cells = [
            Text(f"{epe:.3f}*", "bold green") if (i, j) == grid.best else Text(f"{epe:.3f}")
            for i, epe in enumerate(grid.epe[:, j])
        ]
        table.add_row(f"{alpha:.3f}", *cells)
    return table
