"""Options that several commands share, and the parsers of their text."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from flowinpaint.errors import InputError


def _set_budget(text: str | None) -> str | None:
    """Put the budget into the environment, which worker processes inherit."""
    if text is not None:
        from flowinpaint.io.budget import VARIABLE, parse_bytes  # flowinpaint.io imports numpy

        os.environ[VARIABLE] = str(parse_bytes(text, "--max-bytes"))
    return text


Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N; auto is the GPU if there is one.")]
Root = Annotated[
    Path, typer.Option(help="Folder of frames DIR/<dataset>/<sample>/{image.png, flow.flo, ...}, or of one data set.")
]
Densities = Annotated[str, typer.Option(metavar="LIST", help="Percentages of known pixels.")]
Jobs = Annotated[int, typer.Option(min=1, help="Number of parallel processes.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random masks of frames without mask files.")]
ParameterFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Parameter file of 'flowinpaint tune'; --set overrides it.")
]
Durable = Annotated[bool, typer.Option("--durable", help="Flush the outputs to disk before the command ends.")]
MaxBytes = Annotated[
    str | None,
    typer.Option(
        "--max-bytes",
        metavar="SIZE",
        callback=_set_budget,
        help="Most bytes that a file may be decoded to, such as 2G; default $FLOWINPAINT_MAX_BYTES, or 512M.",
    ),
]
_SETTING = "KEY=VALUE, for example lam=1e-4"


def list_option(sentence: str) -> Any:
    """An option for values separated by commas."""
    return typer.Option(metavar="LIST", help=sentence)


def parse_list(option: str, text: str) -> list[str]:
    """The distinct names in a comma-separated list."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"{option} must be names separated by commas, got {text!r}")
    return list(dict.fromkeys(names))


def parse_percents(text: str) -> list[float]:
    """The fractions from a comma-separated list of percentages."""
    with suppress(ValueError):
        shares = [float(percent) / 100 for percent in text.split(",")]
        if all(0 < share <= 1 for share in shares):
            return list(dict.fromkeys(shares))
    raise InputError(f"--densities must be percentages above 0 and up to 100, such as 1,5,10, got {text!r}")


def parse_setting(text: str, form: str = _SETTING) -> tuple[str, float | str]:
    """The key and the value, a number or a string, of KEY=VALUE."""
    key, _, value = text.partition("=")
    if form == _SETTING and "." in key:
        raise InputError(f"--set must be {form}, without the method's name, got {text!r}")
    if key and value:
        for number in (int, float):
            with suppress(ValueError):
                return key, number(value)
        return key, value
    raise InputError(f"--set must be {form}, got {text!r}")
