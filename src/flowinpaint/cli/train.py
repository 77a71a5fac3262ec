"""`flowinpaint train`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.table import Column, Table
from rich.text import Text

from flowinpaint.cli.console import messages, output, say
from flowinpaint.cli.options import Device
from flowinpaint.errors import InputError
from flowinpaint.training.checkpoint import RunFolder, check_run, read_newest
from flowinpaint.training.config import ScheduleConfig, TrainingConfig, apply_settings, read_config
from flowinpaint.training.distributed import World, join
from flowinpaint.training.loop import Listener, NotFiniteError, Outcome, Progress, train
from flowinpaint.training.validation import Scores

LINE_SECONDS = 30.0
"""Interval of progress lines where there is no terminal."""


def command(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG.toml", help="The run to train; not needed with --resume.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override the file, e.g. optimiser.lr=1e-4."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Training time instead of a number of steps; 0: use the steps.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="RUN", help="The run's folder; by default runs/CONFIG.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Train a network on generated scenes or on data sets; a later call can resume.

    With torchrun --nproc_per_node=N -m flowinpaint train ..., N processes share the work.
    """
    if out is None and config is None:
        raise InputError("CONFIG.toml is missing; pass a configuration, or --resume with --out RUN.")
    folder = out if out is not None else Path("runs") / (config.stem if config else "")
    settings = [*(setting or []), *([] if minutes is None else [f"schedule.minutes={minutes}"])]
    with join(device) as world:
        if world.first:
            check_run(folder, resume)
        chosen = _configuration(config, folder, settings)
        with training_display(chosen, world) as listener:
            try:
                outcome = train(chosen, folder, world, resume=resume, listener=listener)
            except NotFiniteError as error:
                if world.first:
                    say("Stopped:", "red", f"{error} The checkpoints before it are in {folder}.")
                raise typer.Exit(1) from error
            except RuntimeError as error:
                if world.first:
                    raise
                # Most often because the first process has left with its own message.
                say("Stopped:", "red", f"process {world.rank}: {str(error).splitlines()[0]}")
                raise typer.Exit(1) from error
        if world.first:
            _report(outcome, folder)
        if outcome.interrupted:
            raise typer.Exit(130)


def _configuration(path: Path | None, folder: Path, settings: list[str]) -> TrainingConfig:
    """The configuration of the file, or of the run in the folder, changed by the settings."""
    if path is not None:
        return read_config(path, settings)
    saved, _ = read_newest(RunFolder(folder).checkpoints)
    return apply_settings(asdict(saved.config), settings)


@contextmanager
def training_display(config: TrainingConfig, world: World) -> Iterator[Listener]:
    """Progress bar on a terminal, lines at intervals elsewhere; only in the first process."""
    if not world.first:
        yield Listener()
        return
    columns = (
        TextColumn("step {task.fields[step]}", table_column=Column(no_wrap=True, min_width=11)),
        BarColumn(bar_width=8, table_column=Column(min_width=8)),
        TaskProgressColumn(table_column=Column(min_width=4)),
        # Only this column is cut off where the line is too long.
        TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with ProgressBar(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
        task = bar.add_task("", total=1.0, step=0, state="starting")
        reported = time.monotonic()

        def progress(at: Progress) -> None:
            nonlocal reported
            state = _state(at, config.schedule)
            bar.update(task, completed=at.share, step=at.step, state=state)
            if not messages.is_terminal and time.monotonic() - reported >= LINE_SECONDS:
                say("Step", "green", f"{at.step}: {100 * at.share:.1f} %, {state}")
                reported = time.monotonic()

        yield Listener(lambda sentence: say("Note:", "yellow", sentence), progress)


def _state(at: Progress, schedule: ScheduleConfig) -> str:
    """Loss, speed, time left and last validation, as far as known."""
    parts = [] if at.loss is None else [f"loss {at.loss:.3f}"]
    if at.pace:
        left = 60 * schedule.minutes - at.seconds if schedule.minutes else at.pace * (schedule.steps - at.step)
        parts += [f"{1000 * at.pace:.1f} ms/step", f"{_clock(max(0.0, left))} left"]
    if at.skipped:
        parts.append(f"{at.skipped} skipped")
    if at.scores is not None and at.scores.summary:
        parts.append(at.scores.summary)
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    hours = f"{whole // 3600}:{whole // 60 % 60:02}" if whole >= 3600 else f"{whole // 60}"
    return f"{hours}:{whole % 60:02}"


def _report(outcome: Outcome, folder: Path) -> None:
    if outcome.interrupted:
        say("Stopped:", "yellow", f"step {outcome.step} is saved; resume with: flowinpaint train --resume -o {folder}")
        return
    if outcome.scores is not None:
        for table in _tables(outcome.scores):
            output.print(table)
    run = RunFolder(folder)
    picture = f", {run.picture}" if run.picture.exists() else ""
    output.print(Text(f"Trained {outcome.step} steps; look at {run.model}{picture} and {run.log}."), soft_wrap=True)


def _tables(scores: Scores) -> list[Table]:
    """Tables of the errors on held-out scenes by method, and of R by data set, with a column per density."""
    tables = []
    if scores.heldout:
        errors = {name: [row[name] for row in scores.heldout.values()] for name in next(iter(scores.heldout.values()))}
        tables.append(_table("EPE (px) on held-out generated scenes", "method", list(scores.heldout), errors))
    if scores.ratio:
        names = dict.fromkeys(name for row in scores.frames.values() for name in row)
        ratios = {name: [row.get(name) for row in scores.frames.values()] for name in names}
        ratios["all"] = list(scores.ratio.values())
        tables.append(_table("R: EPE relative to laplace-beltrami", "data set", list(scores.ratio), ratios))
    return tables


def _table(
    title: str, first: str, densities: list[str], rows: dict[str, list[float | None]] | dict[str, list[float]]
) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for density in densities:
        table.add_column(f"{density} %", justify="right")
    for name, values in rows.items():
        table.add_row(name, *("" if value is None else f"{value:.3f}" for value in values))
    return table
