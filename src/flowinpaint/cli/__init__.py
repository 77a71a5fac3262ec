"""The command line: `flowinpaint fill`, `demo`, `evaluate` and the other verbs that `flowinpaint --help` lists.

A verb is a module of this package with a function `command`, or with a Typer `app` of subcommands. It is imported when
the verb is used, because most of them import PyTorch.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.interrupts import end_by_default, exit_code, forget_signal, raise_interrupts, received_signal
from flowinpaint.version import __version__

VERBS = {
    "fill": "Fill a sparse field, guided by an image.",
    "depth": "Complete a LiDAR scan, a sparse depth image or the points of a COLMAP model to dense depth.",
    "show": "Draw a field as a picture with a key: colours or arrows.",
    "demo": "Fill the sparse flow of a generated scene with every method, and draw the results.",
    "methods": "List the methods and their parameters.",
    "evaluate": "Measure methods on frames with ground truth: errors, time, and R, the error relative to a reference.",
    "zoom": "Draw samples next to the results of methods, enlarged where the truth has its strongest edges.",
    "warmup": "Compile the CPU loops and GPU kernels of fills ahead, so that the first fill is fast.",
    "speed": "Time methods over sizes, devices and precisions, and compare with the machine's limits.",
    "train": "Train a network on generated scenes or data sets; an interrupted run can be resumed.",
    "reproduce": "Reproduce the paper's tables and figures: train the networks, fill the frames, and write the pages.",
    "tune": "Search for the best parameters of a method on frames with ground truth.",
    "assets": "Build and show picture banks for generated training scenes.",
}
"""The verbs, each with its line in `flowinpaint --help`."""


@cache
def load_verb(name: str) -> Any:
    """Import the module of a verb and return its command."""
    module, holder = import_module(f"{__name__}.{name}"), typer.Typer()
    if hasattr(module, "app"):
        holder.add_typer(module.app, name=name)
    else:
        holder.command(name)(module.command)
    return get_group(holder).commands[name]


class Verbs(TyperGroup):
    """Command group of all verbs: it imports the one that runs, and reports user errors in one line on stderr."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the table entry of the named verb by its command; call the context's object before it runs."""
        name, command, rest = super().resolve_command(ctx, args)
        command = command if name is None else load_verb(name)
        if ctx.obj is not None:
            ctx.obj()
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; exit with code 1 if it raises an error about the user's input, and with 128 + n at signal n."""
        forget_signal()
        try:
            return super().invoke(ctx)
        except (typer.Exit, SystemExit):
            raise
        except BaseException as error:
            from flowinpaint.cli.console import say

            expected = isinstance(error, InputError | FileFormatError | OSError)
            if expected:
                say("Error:", "red", _with_option(str(error), ctx))
            # Libraries may turn the exception of a signal into another one.
            if isinstance(error, KeyboardInterrupt) or received_signal() is not None:
                say("Stopped:", "yellow", "interrupted.")
                raise typer.Exit(exit_code()) from None
            if expected:
                raise typer.Exit(1) from error
            raise


def _with_option(message: str, ctx: Any) -> str:
    """An error message that begins with the option, `--max-gap`, instead of the argument of a function, `max_gap`."""
    first, _, rest = message.partition(" ")
    name = ctx.invoked_subcommand
    for parameter in load_verb(name).params if name in VERBS else ():
        if parameter.name == first and parameter.opts[0].startswith("--"):
            return f"{parameter.opts[0]} {rest}"
    return message


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dense optical flow, disparity or depth from a sparse field and an image.",
)
for _name, _summary in VERBS.items():
    app.command(_name, help=_summary)(lambda: None)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Handle the options before a verb."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; signals raise exceptions while a verb runs, and end the process after it."""
    try:
        app(obj=raise_interrupts)
    finally:
        end_by_default()
