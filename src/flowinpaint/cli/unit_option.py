"""The option --unit of the commands that read or write depth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from flowinpaint.io.units import UNITS, MissingUnitError

UnitText = Annotated[
    str | None,
    typer.Option(
        "--unit",
        metavar="UNIT",
        help=f"Unit of 16-bit PNGs of one channel, read and written: {', '.join(UNITS)}, or the value of one level.",
    ),
]


@contextmanager
def unit_option_named() -> Iterator[None]:
    """Let the error about a PNG without a unit name the option --unit."""
    try:
        yield
    except MissingUnitError as error:
        raise MissingUnitError(error.path, "--unit") from None
