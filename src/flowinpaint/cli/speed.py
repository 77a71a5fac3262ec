"""`flowinpaint speed`."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
from rich.text import Text

from flowinpaint.checks import check_device
from flowinpaint.cli.console import messages, output, print_table, progress_bar, say, tell_written
from flowinpaint.cli.options import list_option, parse_list
from flowinpaint.errors import InputError
from flowinpaint.interrupts import exit_code
from flowinpaint.io import make_folder, publishing
from flowinpaint.methods import registry
from flowinpaint.speed.cases import Precision, Size, all_cases, check_weights, inputs_at
from flowinpaint.speed.measure import SizeSweep, SpeedResult, measure_cases, random_sizes, sweep_sizes
from flowinpaint.speed.report import COUNT_HEADINGS, as_json, as_markdown, growths, sentences, speed_tables, write_plot
from flowinpaint.speed.roofline import PeakRates
from flowinpaint.text_tables import three_figures, write_text
from flowinpaint.viz.plots import NO_PLOT, can_plot

PAPER_SIZES = "384x384,448x1024,1088x1920"
METHODS = ("neuroexplicit", "laplace-beltrami", "opencv-edgeaware")
ASPECT = 16 / 9
MOST_PIXELS = 1_000_000_000
_UP_TO = "up to 1000 megapixels"
PRECISIONS: tuple[Precision, ...] = ("auto", "float32")


def command(
    sizes: Annotated[
        str | None, list_option(f"Sizes HEIGHTxWIDTH; default {PAPER_SIZES} unless --megapixels is set.")
    ] = None,
    megapixels: Annotated[str | None, list_option("Sizes of 16:9 in megapixels, such as 0.1,0.4,1.6,8.")] = None,
    methods: Annotated[str | None, list_option(f"Names or .safetensors files; default {', '.join(METHODS)}.")] = None,
    devices: Annotated[
        str | None, list_option("Devices such as cpu,cuda; default the CPU and, if there is one, the GPU.")
    ] = None,
    precision: Annotated[
        str, list_option("Precisions of networks: auto is the default of 'fill', float32 is plain PyTorch.")
    ] = "auto,float32",
    repeats: Annotated[int, typer.Option(min=1, help="Minimum number of timed calls; they last at least 1 s.")] = 7,
    density: Annotated[float, typer.Option(help="Share of known pixels, from 0 to 1.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the scene, its mask and the sizes of --many-sizes.")] = 0,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also measure the memory of CPU calls, each in its own process.")
    ] = False,
    many_sizes: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also fill N different sizes in a row; 0, or at least 2.")
    ] = 0,
    sides: Annotated[
        str, typer.Option(metavar="LEAST,LARGEST", help="Range of the sides of --many-sizes in px.")
    ] = "160,640",
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")] = Path("speed"),
) -> None:
    """Time methods over sizes, devices and precisions, and compare with the machine's limits.

    For training times see benchmarks/training_step.py.
    """
    given = [] if sizes is None else parse_sizes(sizes)
    given += [] if megapixels is None else parse_megapixels(megapixels)
    chosen_sizes = list(dict.fromkeys(given)) or parse_sizes(PAPER_SIZES)
    names = [m for m in METHODS if m in registry.methods()] if methods is None else parse_list("--methods", methods)
    found = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    places = found if devices is None else parse_list("--devices", devices)
    places = list(dict.fromkeys(str(check_device(place)) for place in places))
    precisions = parse_precisions(precision)
    if many_sizes == 1:
        raise InputError("--many-sizes must be 0 or at least 2, because the first size does not count, got 1")
    range_of_sides = parse_sides(sides, many_sizes)
    if not 0 < density <= 1:
        raise InputError(f"--density must be above 0 and at most 1, got {density:g}")
    check_weights(names)
    cases = all_cases(names, chosen_sizes, places, precisions)
    wanted = [(place, name) for place in places for name in names] if many_sizes else []
    make_folder(out)

    results, rates, sweeps = list[SpeedResult](), list[PeakRates](), list[SizeSweep]()
    inputs_of = partial(inputs_at, density=density, seed=seed)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with progress_bar(*columns, total=len(cases) + many_sizes * len(wanted)) as (bar, task):

            def advance(r: SpeedResult) -> None:
                bar.update(task, advance=1, description=r.case.text)
                if not messages.is_terminal:
                    seconds = "failed" if r.call is None else f"{three_figures(1e3 * r.call.median)} ms"
                    say("Done:", "green", f"{r.case.text}: {seconds}")

            results, rates = measure_cases(cases, inputs_of, repeats, memory, advance)
            for place, name in wanted if len(results) == len(cases) else []:
                tell = partial(bar.update, task, advance=1, description=f"{name}, {place}, many sizes")
                many = random_sizes(many_sizes, range_of_sides, seed)
                sweeps.append(sweep_sizes(name, place, many, inputs_of, tell))
    except KeyboardInterrupt:
        if not results:
            say("Stopped:", "yellow", "nothing was timed or written.")
            raise typer.Exit(exit_code()) from None

    settings = {
        "density": density,
        "seed": seed,
        "sizes": chosen_sizes,
        "methods": names,
        "devices": places,
        "precision": precisions,
        "repeats": repeats,
        "memory": memory,
        "many_sizes": many_sizes,
        "sides": range_of_sides,
    }
    _report(out, settings, results, rates, sweeps)
    if len(results) < len(cases) or len(sweeps) < len(wanted):
        say("Stopped:", "yellow", f"{len(results)} of {len(cases)} timings are finished and written.")
        raise typer.Exit(exit_code())
    failed = [f"{r.case.text}: {r.error}" for r in results if r.error is not None]
    failed += [f"{s.method}, {s.device}, many sizes: {s.error}" for s in sweeps if s.error is not None]
    if failed:
        say("Failed:", "red", f"{len(failed)} of {len(results) + len(sweeps)} timings.")
        for text in failed:
            say("  ", "", text)
        raise typer.Exit(1)


def _report(
    out: Path, settings: dict[str, Any], results: list[SpeedResult], rates: list[PeakRates], sweeps: list[SizeSweep]
) -> None:
    """Print the tables, and write speed.json, speed.md and, if there are several sizes, speed.png."""
    tables, grown = speed_tables(results), growths(results)
    below = sentences(rates, grown, sweeps)
    for table in tables:
        print_table(table, without=COUNT_HEADINGS)
    for note in dict.fromkeys(note for r in results for note in r.notes):
        say("Note:", "yellow", note)
    for sentence in below:
        output.print(Text(sentence), soft_wrap=True)
    written = [out / "speed.json", out / "speed.md"]
    plot = out / "speed.png"
    with publishing():
        write_text(written[0], as_json(settings, results, rates, grown, sweeps))
        write_text(written[1], as_markdown(tables, below))
        if grown and can_plot():
            write_plot(plot, grown)
            written.append(plot)
    if plot not in written:
        plot.unlink(missing_ok=True)  # left by an earlier run with other results
        if grown:
            say("Note:", "yellow", NO_PLOT)
    tell_written(*written)


def parse_sizes(text: str) -> list[Size]:
    """Sizes (height, width) from HEIGHTxWIDTH,..."""
    sizes = []
    for part in text.split(","):
        with suppress(ValueError):
            height, width = map(int, part.lower().split("x"))
            if height > 0 and width > 0 and height * width <= MOST_PIXELS:
                sizes.append((height, width))
                continue
        raise InputError(f"--sizes must be HEIGHTxWIDTH,... {_UP_TO}, as in {PAPER_SIZES}, got {part!r}")
    return sizes


def parse_megapixels(text: str) -> list[Size]:
    """Sizes (height, width) of 16:9 from comma-separated megapixels."""
    sizes = []
    for part in text.split(","):
        with suppress(ValueError):
            pixels = 1e6 * float(part)
            if 1 <= pixels <= MOST_PIXELS:
                height = max(1, round(math.sqrt(pixels / ASPECT)))
                sizes.append((height, round(pixels / height)))
                continue
        raise InputError(f"--megapixels must be positive numbers {_UP_TO}, as in 0.1,0.4,8, got {part!r}")
    return sizes


def parse_sides(text: str, count: int) -> tuple[int, int]:
    """The smallest and largest side; InputError unless there are `count` sizes between them."""
    least = largest = 0
    with suppress(ValueError):
        least, largest = map(int, text.split(","))
    if not (1 <= least <= largest and largest**2 <= MOST_PIXELS):
        raise InputError(f"--sides must be LEAST,LARGEST from 1 {_UP_TO}, as in 160,640, got {text!r}")
    if (largest - least + 1) ** 2 < count:
        raise InputError(f"--sides must allow the {count} sizes of --many-sizes, got {text!r}")
    return least, largest


def parse_precisions(text: str) -> list[Precision]:
    """Precisions from their comma-separated names."""
    names = parse_list("--precision", text)
    if unknown := [name for name in names if name not in PRECISIONS]:
        raise InputError(f"--precision must be {' or '.join(PRECISIONS)}, got {unknown[0]!r}")
    return [name for name in PRECISIONS if name in names]
