"""The command line: `flowinpaint demo`, `fill`, `evaluate` and the others that `flowinpaint --help` lists."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flowinpaint import __version__
from flowinpaint.cli import assets, demo, evaluate, fill, methods, reproduce, results, speed, train, tune, zoom
from flowinpaint.cli.console import output, say
from flowinpaint.errors import FileFormatError, InputError


class SentenceErrors(TyperGroup):
    """A user's error is a sentence on stderr and exit code 1, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (InputError, FileFormatError, OSError) as error:
            say("Error:", "red", str(error))
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=SentenceErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dense optical flow, disparity or depth from a sparse field and an image.",
)
app.command("fill")(fill.command)
app.command("demo")(demo.command)
app.command("methods")(methods.command)
app.command("evaluate")(evaluate.command)
app.command("results")(results.command)
app.command("zoom")(zoom.command)
app.command("speed")(speed.command)
app.command("train")(train.command)
app.command("reproduce")(reproduce.command)
app.add_typer(tune.app, name="tune")
app.add_typer(assets.app, name="assets")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Carry the options that stand before a command."""
    if version:
        output.print(__version__, highlight=False)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    app()
