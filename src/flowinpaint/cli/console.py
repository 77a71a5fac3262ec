"""Console output of the commands: results on stdout, messages and progress bars on stderr."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TaskID, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # nothing that `flowinpaint --version` or `fill` does not need
    from flowinpaint.evaluation.runner import Step
    from flowinpaint.result import Progress
    from flowinpaint.text_tables import TextTable

output = Console()
messages = Console(stderr=True)
BETWEEN_LINES = 30.0
"""Seconds between two progress lines of a fill or a training if there is no progress bar."""
LONGEST_SENTENCE = 2000
_NAMES_WIDTH = 12
"""To this width, names in tables are folded."""
_WIDEST = 10_000


def say(label: str, colour: str, sentence: str) -> None:
    """Print a coloured label and a sentence on stderr; what it quotes from files cannot control the terminal."""
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in sentence[:LONGEST_SENTENCE])
    messages.print(Text.assemble((label, colour), " ", shown), soft_wrap=True)


def tell_written(*paths: Path) -> None:
    """Print the names of the files that a command wrote."""
    output.print(Text(f"Wrote {', '.join(map(str, paths))}."), soft_wrap=True)


@contextmanager
def warnings_told() -> Iterator[None]:
    """Print the distinct warnings of a block when it ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        say("Warning:", "yellow", message)


def print_table(table: TextTable, bold: int | None = None, without: Collection[str] = ()) -> None:
    """Print a table as wide as the terminal allows. bold: a column to print in bold. without: headings to omit.

    Long names in the first column are folded; numbers are always whole.
    """
    drawn = Table(title=table.title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, heading in enumerate(table.headings):
        if heading in without:
            continue
        if i and heading[0] != ">" and not heading[0].isdigit():  # as in "> 1 px" and "5 %"
            heading = heading.replace(" ", "\n")
        width = max(map(cell_len, [*heading.split("\n"), *(row[i] for row in table.rows)]))
        style = "bold green" if i == bold else None
        justify: JustifyMethod = "right" if i else "left"
        drawn.add_column(heading, justify=justify, style=style, width=width, no_wrap=bool(i), overflow="fold")
    shown = [i for i, heading in enumerate(table.headings) if heading not in without]
    for row in table.rows:
        drawn.add_row(*(Text(row[i]) for i in shown))
    if _width(drawn) > output.width:
        drawn.padding = 0  # one space between columns instead of two
        names = drawn.columns[0]
        if names.width is not None and (excess := _width(drawn) - output.width) > 0:
            names.width = max(min(names.width, _NAMES_WIDTH), names.width - excess)
        drawn.width = _width(drawn)  # perhaps wider than the terminal
    output.print(drawn, crop=False)


def _width(table: Table) -> int:
    """The width that a table needs for all of its columns."""
    return Measurement.get(output, output.options.update(max_width=_WIDEST), table).maximum


@contextmanager
def progress_bar(
    *columns: str | ProgressColumn, total: float | None, estimate_period: float = 30.0, **fields: Any
) -> Iterator[tuple[ProgressBar, TaskID]]:
    """A bar with one task on stderr, removed when the block ends; invisible unless stderr is a terminal."""
    hidden = not messages.is_terminal
    with ProgressBar(
        *columns, console=messages, transient=True, disable=hidden, speed_estimate_period=estimate_period
    ) as bar:
        yield bar, bar.add_task("", total=total, **fields)


@contextmanager
def solver_bar() -> Iterator[Callable[[str, Progress], None]]:
    """A progress bar for fills: the finished share and the time left, and the residual of a solver.

    Without a terminal, a line with both is printed every BETWEEN_LINES seconds. For a method of a plug-in that does not
    know its share, the bar shows the level and the step.
    """
    columns = ("{task.description}", BarColumn(), "{task.fields[state]}", TimeElapsedColumn())
    with progress_bar(*columns, total=1.0, state="") as (bar, task):
        start = told = time.monotonic()

        def report(method: str, p: Progress) -> None:
            nonlocal start, told
            done, state = p.share, f"level {p.level}/{p.levels}  step {p.iterations}"
            if done is None:
                done = (p.level - 1) / p.levels
            elif done == 0:  # the next of several methods
                start, state = time.monotonic(), "starting"
            else:
                now = time.monotonic()
                state = f"{done:.0%}  {timedelta(seconds=round((now - start) * (1 / done - 1)))} left"
                if now - told > BETWEEN_LINES and not messages.is_terminal:
                    told = now
                    say("Filling:", "green", state)
            if p.residual is not None:
                state += f"  residual {p.residual:.1e}"
            bar.update(task, description=Path(method).name, completed=done, state=state)

        yield report


@contextmanager
def runs_bar() -> Iterator[Callable[[Step], None]]:
    """A progress bar for evaluation runs; without a terminal, a line when a method has finished a data set."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left")
    with progress_bar(*columns, TimeRemainingColumn(), total=None, estimate_period=600) as (bar, task):

        def report(step: Step) -> None:
            record = step.record
            if record is None:
                # Earlier runs say nothing about the speed of those to come.
                bar.reset(task, total=step.total - step.done)
                if step.done:
                    say("Note:", "yellow", f"{step.done} of {step.total} runs were already finished.")
                return
            bar.update(task, advance=1, description=f"{record.key.dataset}/{record.key.sample} {record.key.method}")
            if step.left == 0 and not messages.is_terminal:
                say("Done:", "green", f"{record.key.dataset}, {record.key.method} ({step.done} of {step.total} runs).")

        yield report
