"""Options that several commands share, and how their text is read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from flowinpaint.errors import InputError

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...; auto takes the GPU if there is one.")]
Root = Annotated[
    Path, typer.Option(help="The frames: DIR/<dataset>/<sample>/{image.png, flow.flo, ...}, or one data set.")
]
Densities = Annotated[str, typer.Option(metavar="LIST", help="Shares of the pixels that are given, in per cent.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes that work side by side.")]
Seed = Annotated[int, typer.Option(min=0, help="Decides what is drawn: masks where there are no files of them.")]
ParameterFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Parameters as 'flowinpaint tune' writes them; --set overrides.")
]


def parse_list(option: str, text: str) -> list[str]:
    """The names in a list with commas, each once."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(f"{option}: {text!r} was given; names with commas between them are taken")
    return list(dict.fromkeys(names))


def parse_percents(text: str) -> list[float]:
    """The shares in a list of percentages with commas."""
    with suppress(ValueError):
        shares = [float(percent) / 100 for percent in text.split(",")]
        if all(0 < share <= 1 for share in shares):
            return list(dict.fromkeys(shares))
    raise InputError(f"--densities: {text!r} was given; percentages above 0 and up to 100 are taken, as in 1,5,10")


def parse_setting(text: str, form: str = "KEY=VALUE is taken, for example lam=1e-4") -> tuple[str, float | str]:
    """A key and its number or name."""
    key, _, value = text.partition("=")
    if key and value:
        for number in (int, float):
            with suppress(ValueError):
                return key, number(value)
        return key, value
    raise InputError(f"--set: {text!r} was given; {form}")
