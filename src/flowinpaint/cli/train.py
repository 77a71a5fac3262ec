"""`flowinpaint train`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from flowinpaint.cli.console import BETWEEN_LINES, messages, output, print_table, progress_bar, say
from flowinpaint.cli.options import Device, MaxBytes
from flowinpaint.errors import InputError
from flowinpaint.interrupts import exit_code
from flowinpaint.text_tables import TextTable
from flowinpaint.training.checkpoint import RunFolder, check_run, read_newest
from flowinpaint.training.config import ScheduleConfig, TrainingConfig, apply_settings, config_names, read_config
from flowinpaint.training.distributed import World, join
from flowinpaint.training.loop import Listener, NotFiniteError, Outcome, Progress, train
from flowinpaint.training.validation import Scores


def command(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG",
            help=f"Configuration to train: {', '.join(config_names())}, or a TOML file; not needed with --resume.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TABLE.KEY=VALUE",
            help="Setting that overrides CONFIG, such as optimiser.lr=1e-4; repeatable.",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Training time in minutes, instead of a number of steps; 0 for the steps."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="RUN", help="Run folder; default runs/CONFIG.")
    ] = None,
    device: Device = "auto",
    max_bytes: MaxBytes = None,
) -> None:
    """Train a network on generated scenes or on data sets; a later call can resume.

    With torchrun --nproc_per_node=N -m flowinpaint train ..., N processes share the work.
    """
    if out is None and config is None:
        raise InputError(
            f"CONFIG must be {', '.join(config_names())} or a TOML file, got none; to continue a run, pass --resume "
            "--out RUN"
        )
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
                    say("Stopped:", "red", f"{error}. The checkpoints before it are in {folder}.")
                raise typer.Exit(1) from error
            except RuntimeError as error:
                if world.first:
                    raise
                # Usually because the first process has exited with its own message.
                say("Stopped:", "red", f"process {world.rank}: {str(error).splitlines()[0]}")
                raise typer.Exit(1) from error
        if world.first:
            _report(outcome, folder)
        if outcome.interrupted:
            raise typer.Exit(exit_code())


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
        # Only this column is truncated if the line is too long.
        TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with progress_bar(*columns, total=1.0, step=0, state="starting") as (bar, task):
        reported = time.monotonic()

        def progress(at: Progress) -> None:
            nonlocal reported
            state = _state(at, config.schedule)
            bar.update(task, completed=at.share, step=at.step, state=state)
            if not messages.is_terminal and time.monotonic() - reported >= BETWEEN_LINES:
                say("Step", "green", f"{at.step}: {100 * at.share:.1f} %, {state}")
                reported = time.monotonic()

        yield Listener(lambda sentence: say("Note:", "yellow", sentence), progress)


def _state(at: Progress, schedule: ScheduleConfig) -> str:
    """Loss, speed, time left and last validation, as far as known."""
    parts = [] if at.loss is None else [f"loss {at.loss:.3f}"]
    if at.pace:
        left = 60 * schedule.minutes - at.seconds if schedule.minutes else at.pace * (schedule.steps - at.step)
        parts += [f"{1000 * at.pace:.1f} ms/step", f"{timedelta(seconds=round(max(0.0, left)))} left"]
    if at.skipped:
        parts.append(f"{at.skipped} skipped")
    if at.scores is not None and at.scores.summary:
        parts.append(at.scores.summary)
    return "  ".join(parts)


def _report(outcome: Outcome, folder: Path) -> None:
    if outcome.interrupted:
        say("Stopped:", "yellow", f"step {outcome.step} is saved; resume with: flowinpaint train --resume -o {folder}")
        return
    if outcome.scores is not None:
        _print_scores(outcome.scores)
    run = RunFolder(folder)
    picture = f", {run.picture}" if run.picture.exists() else ""
    output.print(Text(f"Trained {outcome.step} steps; look at {run.model}{picture} and {run.log}."), soft_wrap=True)


def _print_scores(scores: Scores) -> None:
    """Print the errors on held-out scenes by method, and R by data set, with a column per density."""
    ratios = {density: {**own, "all": scores.ratio[density]} for density, own in scores.frames.items()}
    for title, first, columns in (
        ("EPE (px) on held-out generated scenes", "method", scores.heldout),
        ("R: EPE relative to laplace-beltrami", "data set", ratios),
    ):
        if columns:
            names = sorted(
                dict.fromkeys(name for own in columns.values() for name in own), key=lambda name: name == "all"
            )
            rows = [[name, *(f"{own[name]:.3f}" if name in own else "" for own in columns.values())] for name in names]
            print_table(TextTable(title, [first, *(f"{density} %" for density in columns)], rows))
