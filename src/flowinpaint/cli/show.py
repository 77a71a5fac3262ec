"""`flowinpaint show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from flowinpaint.cli.console import output
from flowinpaint.cli.options import MaxBytes
from flowinpaint.cli.unit_option import UnitText, unit_option_named
from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.io import (
    FLOW_SUFFIXES,
    check_image_writable,
    make_folder,
    parse_unit,
    png_unit,
    read_flow,
    read_image,
    real_path,
    write_image,
)
from flowinpaint.io.arrays import Flow
from flowinpaint.io.units import MissingUnitError
from flowinpaint.text_tables import three_figures
from flowinpaint.viz.field_picture import field_picture


def command(
    field: Annotated[
        Path,
        typer.Argument(help="Field to draw: .flo, .png (KITTI flow, or depth with --unit), .pfm, .npy, .npz or .tif."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Picture to write; default FIELD.show.png.")
    ] = None,
    arrows: Annotated[
        bool, typer.Option("--arrows", help="Draw the flow as arrows on a grid, over the colours or --over.")
    ] = False,
    over: Annotated[Path | None, typer.Option(metavar="IMAGE", help="Image to draw over.")] = None,
    maximum: Annotated[
        float | None,
        typer.Option(
            "--max", help="Value or length of the last colour, in the field's unit; default nearly the field's largest."
        ),
    ] = None,
    unit: UnitText = None,
    max_bytes: MaxBytes = None,
) -> None:
    """Draw a field as a picture with a key: colours or arrows.

    Unknown pixels are striped; the points of a sparse field are drawn as dots.
    """
    picture = out or field.with_name(f"{field.name}.show.png")
    if maximum is not None and not 0 < maximum < np.inf:
        raise InputError(f"--max must be a finite number above 0, got {maximum:g}")
    check_image_writable(picture)
    for source in filter(None, (field, over)):
        if real_path(picture) == real_path(source):
            raise InputError(f"{picture}: must not be an input; choose another name with -o")
    with unit_option_named():
        flow, valid = read_flow(field, png_unit(field, parse_unit(unit)))
    flow = flow.astype(np.float64)  # squares of float16 overflow above 255
    if _is_field(picture):
        raise InputError(
            f"{picture}: must not be a field, which the picture would replace; choose another name with -o"
        )
    if arrows and flow.shape[2] != 2:
        raise InputError(f"--arrows needs a field of 2 channels, got {flow.shape[2]} in {field}")
    image = None if over is None else read_image(over)
    if over is not None and image is not None and image.shape[:2] != flow.shape[:2]:
        (H, W), (height, width) = flow.shape[:2], image.shape[:2]
        raise InputError(f"{over}: must be {W}x{H} pixels (width x height) as {field}, got {width}x{height}")
    drawn = field_picture(flow, field.name, image, arrows, maximum)
    make_folder(picture.parent)
    write_image(picture, drawn)
    output.print(Text(f"Wrote {picture}: {_about(flow[valid])}, {_unknown(float(valid.mean()))}."), soft_wrap=True)


def _about(values: Flow) -> str:
    """The range of the known values (N, C) in words."""
    if not len(values):
        return "no known pixel"
    one = values.shape[1] == 1
    sizes = values[:, 0] if one else np.linalg.norm(values, axis=1)
    low, mean, high = (three_figures(float(x)) for x in (sizes.min(), sizes.mean(dtype=np.float64), sizes.max()))
    return f"{'values' if one else 'lengths'} {low} to {high}, mean {mean}"


def _unknown(known: float) -> str:
    return "no pixel is unknown" if known == 1 else f"{three_figures(100 * (1 - known))} % of the pixels are unknown"


def _is_field(path: Path) -> bool:
    """Whether a file exists that can be read as a field: a 16-bit PNG or a TIFF of floats."""
    if path.suffix.lower() not in FLOW_SUFFIXES or not path.is_file():
        return False
    try:
        read_flow(path)
    except MissingUnitError:
        return True
    except FileFormatError:
        return False
    return True
