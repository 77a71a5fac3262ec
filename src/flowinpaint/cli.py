"""The command line: `flowinpaint demo`, `fill`, `methods`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from flowinpaint import __version__, api
from flowinpaint.demo import run_demo
from flowinpaint.errors import FileFormatError, InputError, WeightsMissingError
from flowinpaint.io import (
    check_flow_writable,
    check_image_writable,
    clip_to_format,
    read_flow,
    read_image,
    read_mask,
    write_flow,
    write_image,
)
from flowinpaint.result import Info, Progress
from flowinpaint.sheet import preview as draw_preview

output = Console()
messages = Console(stderr=True)


class SentenceErrors(TyperGroup):
    """A user's error is a sentence on stderr and exit code 1, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (InputError, FileFormatError, WeightsMissingError, OSError) as error:
            _say("Error:", "red", str(error))
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=SentenceErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dense optical flow, disparity or depth from a sparse field and an image.",
)

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...; auto takes the GPU if there is one.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Carry the options that stand before a command."""
    if version:
        output.print(__version__, highlight=False)
        raise typer.Exit


@app.command()
def fill(
    image: Annotated[Path, typer.Argument(help="The image the field belongs to.")],
    flow: Annotated[Path, typer.Argument(help="The sparse field: .flo, KITTI .png, .pfm, .npy or .npz.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the dense field goes; same kinds of file.")],
    mask: Annotated[
        Path | None,
        typer.Option(help="Known pixels, non-zero in a PNG. Without it, those the flow file marks as valid."),
    ] = None,
    invert_mask: Annotated[bool, typer.Option("--invert-mask", help="Non-zero in the mask means unknown.")] = False,
    method: Annotated[str, typer.Option(help="See 'flowinpaint methods'; or a .safetensors file.")] = "eed",
    preview: Annotated[Path | None, typer.Option(help="Also draw image, given vectors and result here.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=NUMBER", help="A parameter of the method, e.g. lam=1e-4."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Fill a sparse field, guided by an image."""
    parameters = dict(_parse_setting(text) for text in setting or [])
    api.check_parameters(method, parameters)
    _check_distinct(out, preview, inputs=[image, flow, mask])
    if invert_mask and mask is None:
        raise InputError("--invert-mask: is given without --mask")
    sparse, valid = read_flow(flow)
    check_flow_writable(out, sparse.shape[2])
    if preview is not None:
        check_image_writable(preview)
    guide = read_image(image)
    _check_size(image, guide.shape, flow, sparse.shape)
    known = valid
    if mask is not None:
        chosen = read_mask(mask) ^ invert_mask
        _check_size(mask, chosen.shape, flow, sparse.shape)
        known = chosen & valid
        if dropped := int((chosen & ~valid).sum()):
            _say("Note:", "yellow", f"{dropped} pixels of {mask} are unknown in {flow}, and stay so.")
    if not known.any():
        raise InputError(f"{mask or flow}: no pixel is known; at least one is needed")
    if (clip_to_format(out, sparse)[known] != sparse[known]).any():
        raise InputError(f"{out}: a KITTI PNG cannot hold all vectors of {flow}; .flo, .pfm or .npy can")

    with _progress_bar(float(parameters.get("tolerance", 1e-6))) as report, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the status is printed below
        result = api.inpaint(
            guide,
            sparse,
            known,
            method=method,
            device=device,
            progress=lambda p: report(method, p),
            **parameters,
        )
    picture = None
    if preview is not None:
        labelled = {method: (result.flow, f"{result.info['seconds']:.2f} s")}
        picture = draw_preview(guide, sparse, known, labelled)
    dense = clip_to_format(out, result.flow)
    write_flow(out, dense)
    if preview is not None and picture is not None:
        write_image(preview, picture)
    if clipped := int((dense != result.flow).any(-1).sum()):
        _say("Warning:", "yellow", f"{clipped} filled vectors were cut to what a KITTI PNG holds.")
    _say_filled(out, preview, int(known.sum()), known.size, result.info)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("demo"),
    density: Annotated[float, typer.Option(help="Share of the vectors that is given.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Another scene and another mask.")] = 0,
    device: Device = "auto",
) -> None:
    """Fill the sparse flow of a made-up scene by every method, and draw the results."""
    with _progress_bar() as report:
        rows = run_demo(out, density, seed, device, report)
    table = Table(title=f"Sample scene {seed}, {100 * density:g} % of the vectors given")
    for heading in ("method", "EPE (px)", "Fl (%)", "seconds", "iterations", "status"):
        table.add_column(heading, justify="left" if heading in ("method", "status") else "right")
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
    output.print(f"Look at {out / 'demo.png'}; the fields lie beside it as .flo files.", highlight=False)


@app.command()
def methods() -> None:
    """List the methods and the parameters each takes."""
    table = Table()
    for heading in ("method", "what it does", "parameters (default)", "weights"):
        table.add_column(heading, no_wrap=heading == "method")
    for name, network in api.NETWORKS.items():
        table.add_row(name, network.summary, "", "shipped" if network.weights else "not shipped yet")
    for name, explicit in api.EXPLICIT.items():
        defaults = ", ".join(
            f"{key} ({'by density' if value is None else f'{value:g}'})" for key, value in explicit.parameters.items()
        )
        table.add_row(name, explicit.summary, defaults, "needs none")
    output.print(table)


def main() -> None:
    """Run the command line."""
    app()


def _check_distinct(out: Path, preview: Path | None, inputs: list[Path | None]) -> None:
    """Refuse to write over an input, or the picture over the field."""
    outputs = [path for path in (out, preview) if path is not None]
    taken = [path.resolve() for path in inputs if path is not None]
    for path in outputs:
        if path.resolve() in taken:
            raise InputError(f"{path}: is an input or the other output too; another name is needed")
        taken.append(path.resolve())


def _check_size(path: Path, shape: tuple[int, ...], flow: Path, size: tuple[int, ...]) -> None:
    if shape[:2] != size[:2]:
        raise InputError(f"{path}: is {shape[1]}x{shape[0]} pixels (width x height), but {flow} is {size[1]}x{size[0]}")


def _parse_setting(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    for number in (int, float):
        with suppress(ValueError):
            if key:
                return key, number(value)
    raise InputError(f"--set: {text!r} was given; KEY=NUMBER is taken, for example lam=1e-4")


def _say(label: str, colour: str, sentence: str) -> None:
    messages.print(Text.assemble((label, colour), " ", sentence), soft_wrap=True)


def _say_filled(out: Path, preview: Path | None, given: int, pixels: int, info: Info) -> None:
    if given == pixels:
        _say("Note:", "yellow", "every vector was known; there was nothing to fill.")
    if info["status"] == "max_iterations":
        steps, residual = info["iterations"], info["residual"]
        _say("Warning:", "yellow", f"stopped at a residual of {residual:.1e} after {steps} iterations.")
    iterations = f", {info['iterations']} iterations" if info["iterations"] else ""
    sentences = [
        f"Wrote {out}: {given} of {pixels} vectors were given; {info['method']} on {info['device']}, "
        f"{info['seconds']:.2f} s{iterations}."
    ]
    if preview is not None:
        sentences.append(f"Wrote {preview}.")
    output.print(Text("\n".join(sentences)), soft_wrap=True)


@contextmanager
def _progress_bar(tolerance: float = 1e-6) -> Iterator[Callable[[str, Progress], None]]:
    """A bar on a terminal, gone when done: levels solved, and in the current one how far its residual has come down."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with ProgressBar(*columns, console=messages, transient=True, disable=not messages.is_terminal) as bar:
        task = bar.add_task("", total=1.0, state="")

        def report(method: str, p: Progress) -> None:
            goal = math.log(min(tolerance, 0.1))
            share = min(1.0, max(0.0, math.log(max(p.residual, 1e-300)) / goal))
            state = f"level {p.level}/{p.levels}  step {p.iterations}  residual {p.residual:.1e}"
            bar.update(task, description=method, completed=(p.level - 1 + share) / p.levels, state=state)

        yield report
