"""Output of the commands: results on stdout, messages and progress bars on stderr."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.text import Text

from flowinpaint.result import Progress

if TYPE_CHECKING:
    from flowinpaint.evaluation.benchmark import Step

output = Console()
messages = Console(stderr=True)
BETWEEN_LINES = 30.0
"""Seconds between two lines about the progress of a fill, if there is no bar."""


def say(label: str, colour: str, sentence: str) -> None:
    """Print a coloured label and a sentence on stderr."""
    messages.print(Text.assemble((label, colour), " ", sentence), soft_wrap=True)


@contextmanager
def solver_bar(tolerance: float = 1e-6) -> Iterator[Callable[[str, Progress], None]]:
    """A progress bar on a terminal, removed at the end: levels solved, and the residual's way down to the tolerance.

    For a method that reports its share of the whole: that share and the time left, as lines if there is no terminal.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with ProgressBar(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
        task = bar.add_task("", total=1.0, state="")
        start = told = time.monotonic()

        def report(method: str, p: Progress) -> None:
            nonlocal told
            state = f"level {p.level}/{p.levels}  step {p.iterations}"
            done = p.share or 0.0
            if p.share:
                now = time.monotonic()
                state = f"{p.share:.0%}  {timedelta(seconds=round((now - start) * (1 / p.share - 1)))} left"
                if now - told > BETWEEN_LINES and not messages.is_terminal:
                    told = now
                    say("Filling:", "green", state)
            if p.residual is not None:
                state += f"  residual {p.residual:.1e}"
                goal = math.log(min(tolerance, 0.1))
                share = min(1.0, max(0.0, math.log(max(p.residual, 1e-300)) / goal))
                done = (p.level - 1 + share) / p.levels
            bar.update(task, description=Path(method).name, completed=done, state=state)

        yield report


@contextmanager
def runs_bar() -> Iterator[Callable[[Step], None]]:
    """A progress bar with the time left on a terminal; elsewhere a line when a method has finished a data set."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with ProgressBar(
        *columns, console=messages, transient=True, disable=not messages.is_terminal, speed_estimate_period=600
    ) as bar:
        task = bar.add_task("", total=None)

        def report(step: Step) -> None:
            record = step.record
            if record is None:
                # Runs kept from an earlier call say nothing about the speed of the others.
                bar.reset(task, total=step.total - step.done)
                if step.done:
                    say("Note:", "yellow", f"{step.done} of {step.total} runs were there already.")
                return
            bar.update(task, advance=1, description=f"{record.key.dataset}/{record.key.sample} {record.key.method}")
            if step.left == 0 and not messages.is_terminal:
                say("Done:", "green", f"{record.key.dataset}, {record.key.method} ({step.done} of {step.total} runs).")

        yield report
