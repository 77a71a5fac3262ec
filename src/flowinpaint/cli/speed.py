"""`flowinpaint speed`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from flowinpaint.checks import check_device
from flowinpaint.cli.console import messages, output, say
from flowinpaint.cli.options import parse_list
from flowinpaint.errors import InputError
from flowinpaint.evaluation.plotting import can_plot
from flowinpaint.evaluation.report import TextTable
from flowinpaint.evaluation.speed import Measurement, measure_cells
from flowinpaint.evaluation.speed_cells import Precision, Size, cells_of, weights_files
from flowinpaint.evaluation.speed_floor import Rates
from flowinpaint.evaluation.speed_plot import write_plot
from flowinpaint.evaluation.speed_report import (
    COUNT_HEADINGS,
    as_json,
    as_markdown,
    growths,
    sentences,
    speed_tables,
    three_figures,
)
from flowinpaint.evaluation.speed_sizes import ManySizes, measure_many_sizes
from flowinpaint.io import atomic_path, make_folder
from flowinpaint.methods import registry

PAPER_SIZES = "384x384,448x1024,1088x1920"
METHODS = ("neuroexplicit", "laplace-beltrami", "opencv-edgeaware")
ASPECT = 16 / 9
MOST_PIXELS = 1_000_000_000
_UP_TO = "up to 1000 megapixels"
PRECISIONS: tuple[Precision, ...] = ("auto", "float32")


def command(
    sizes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help=f"HEIGHTxWIDTH with commas; {PAPER_SIZES} without it and --megapixels."),
    ] = None,
    megapixels: Annotated[
        str | None, typer.Option(metavar="LIST", help="Sizes of 16:9 by their millions of pixels, e.g. 0.1,0.4,1.6,8.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="LIST", help=f"Names or .safetensors files; without it {', '.join(METHODS)}.")
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="cpu, cuda, ...; without it the CPU, and the GPU if there is one."),
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="LIST", help="Of networks: auto is what a user gets, float32 is plain PyTorch.")
    ] = "auto,float32",
    repeats: Annotated[int, typer.Option(min=1, help="Calls to time at least; they go on for a second.")] = 7,
    density: Annotated[float, typer.Option(help="Share of the vectors that is given.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Decides the scene, its mask and the sizes of --many-sizes.")] = 0,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also measure the memory of the CPU's calls, in processes of their own.")
    ] = False,
    many_sizes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Also meet N different sizes in a row, 2 or more; at what cost?",
        ),
    ] = 0,
    sides: Annotated[
        str, typer.Option(metavar="LEAST,LARGEST", help="Between which --many-sizes draws sides, in pixels.")
    ] = "160,640",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("speed"),
) -> None:
    """Time methods over sizes, devices and precisions, and compare with what the machine can do at best.

    How long training takes is told by benchmarks/training_step.py.
    """
    given = [
        *([] if sizes is None else parse_sizes(sizes)),
        *([] if megapixels is None else parse_megapixels(megapixels)),
    ]
    chosen_sizes = list(dict.fromkeys(given or parse_sizes(PAPER_SIZES)))
    names = [m for m in METHODS if m in registry.methods()] if methods is None else parse_list("--methods", methods)
    there = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    places = there if devices is None else parse_list("--devices", devices)
    places = list(dict.fromkeys(str(check_device(place)) for place in places))
    precisions = parse_precisions(precision)
    if many_sizes == 1:
        raise InputError("--many-sizes: 1 was given; 0, or 2 and more are taken, for the first one is left out")
    least, largest = parse_sides(sides, many_sizes)
    if not 0 < density <= 1:
        raise InputError(f"--density: {density:g} was given; a share above 0 and up to 1 is taken")

    weights = weights_files(names)
    cells = cells_of(names, chosen_sizes, places, precisions)
    wanted = [(place, name) for place in places for name in names] if many_sizes else []
    make_folder(out)
    measured, rates, many = list[Measurement](), list[Rates](), list[ManySizes]()
    try:
        with _bar(len(cells) + many_sizes * len(names) * len(places)) as advance:
            measured, rates = measure_cells(
                cells,
                weights,
                density=density,
                seed=seed,
                repeats=repeats,
                memory=memory,
                progress=lambda m: advance(m.cell.text, _outcome(m)),
            )
            for place, name in wanted if len(measured) == len(cells) else []:
                row = measure_many_sizes(
                    name,
                    weights[name],
                    place,
                    many_sizes,
                    (least, largest),
                    density=density,
                    seed=seed,
                    progress=partial(advance, f"{name}, {place}, many sizes", ""),
                )
                many.append(row)
    except KeyboardInterrupt:
        if not measured:
            say("Stopped:", "yellow", "nothing was timed, nothing is written.")
            raise typer.Exit(130) from None

    tables, grown = speed_tables(measured), growths(measured)
    below = sentences(rates, grown, many)
    settings: dict[str, Any] = {
        "sizes": chosen_sizes,
        "methods": names,
        "devices": places,
        "precision": precisions,
        "repeats": repeats,
        "density": density,
        "seed": seed,
        "memory": memory,
        "many_sizes": many_sizes,
        "sides": [least, largest],
    }
    for table in tables:
        output.print(_rich_table(table))
    for note in dict.fromkeys(note for m in measured for note in m.notes):
        say("Note:", "yellow", note)
    for sentence in below:
        output.print(Text(sentence), soft_wrap=True)
    texts = {
        "speed.json": as_json(settings, measured, rates, grown, many),
        "speed.md": as_markdown(tables, below),
    }
    for name, text in texts.items():
        with atomic_path(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
    written = [out / name for name in texts]
    if grown and can_plot():
        write_plot(out / "speed.png", grown)
        written.append(out / "speed.png")
    else:
        (out / "speed.png").unlink(missing_ok=True)  # an earlier run's, of other figures
        if grown:
            say("Note:", "yellow", "no plot was drawn; it needs matplotlib, the extra 'plots'.")
    output.print(Text(f"Wrote {', '.join(map(str, written))}."), soft_wrap=True)
    if len(measured) < len(cells) or len(many) < len(wanted):
        say("Stopped:", "yellow", f"{len(measured)} of {len(cells)} were timed, and are written.")
        raise typer.Exit(130)
    failed = [f"{m.cell.text}: {m.error}" for m in measured if m.error is not None]
    failed += [f"{m.method}, {m.device}, many sizes: {m.error}" for m in many if m.error is not None]
    if failed:
        say("Failed:", "red", f"{len(failed)} of {len(measured) + len(many)}.")
        for text in failed:
            say("  ", "", text)
        raise typer.Exit(1)


def parse_sizes(text: str) -> list[Size]:
    """Sizes (height, width) from HEIGHTxWIDTH with commas."""
    sizes = []
    for part in text.split(","):
        with suppress(ValueError):
            height, width = map(int, part.lower().split("x"))
            if height > 0 and width > 0 and height * width <= MOST_PIXELS:
                sizes.append((height, width))
                continue
        raise InputError(
            f"--sizes: {part!r} was given; HEIGHTxWIDTH with commas is taken, as in {PAPER_SIZES}, {_UP_TO}"
        )
    return sizes


def parse_megapixels(text: str) -> list[Size]:
    """Sizes (height, width) of 16:9 from millions of pixels with commas."""
    sizes = []
    for part in text.split(","):
        with suppress(ValueError):
            pixels = 1e6 * float(part)
            if 1 <= pixels <= MOST_PIXELS:
                height = max(1, round(math.sqrt(pixels / ASPECT)))
                sizes.append((height, round(pixels / height)))
                continue
        raise InputError(
            f"--megapixels: {part!r} was given; positive numbers with commas are taken, as in 0.1,0.4,8, {_UP_TO}"
        )
    return sizes


def parse_sides(text: str, count: int) -> tuple[int, int]:
    """The least and the largest side, between which there are `count` sizes."""
    try:
        least, largest = map(int, text.split(","))
    except ValueError:
        least = largest = 0
    if not (1 <= least <= largest and largest**2 <= MOST_PIXELS):
        raise InputError(f"--sides: {text!r} was given; LEAST,LARGEST from 1 on is taken, as in 160,640, {_UP_TO}")
    if (largest - least + 1) ** 2 < count:
        raise InputError(f"--sides: {text!r} was given, with fewer than the {count} sizes of --many-sizes")
    return least, largest


def parse_precisions(text: str) -> list[Precision]:
    """Precisions from their names with commas."""
    names = parse_list("--precision", text)
    for name in names:
        if name not in PRECISIONS:
            raise InputError(f"--precision: {name!r} was given; {' or '.join(PRECISIONS)} is taken")
    return [name for name in PRECISIONS if name in names]


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str, str], None]]:
    """A bar on a terminal; elsewhere a line for each cell."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def advance(what: str, outcome: str) -> None:
            bar.update(task, advance=1, description=what)
            if outcome and not messages.is_terminal:
                say("Done:", "green", f"{what}: {outcome}")

        yield advance


def _outcome(m: Measurement) -> str:
    return "failed" if m.call is None else f"{three_figures(1e3 * m.call.median)} ms"


def _rich_table(table: TextTable) -> Table:
    """The table without what only speed.md has room for."""
    drawn = Table(title=table.title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown = [i for i, heading in enumerate(table.headings) if heading not in COUNT_HEADINGS]
    for i in shown:
        drawn.add_column(table.headings[i].replace(" ", "\n"), justify="right" if i else "left")
    for row in table.rows:
        drawn.add_row(*(Text(row[i]) for i in shown))
    return drawn
