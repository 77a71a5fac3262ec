"""`flowinpaint zoom`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from flowinpaint.cli.console import tell_written, warnings_told
from flowinpaint.cli.options import Device, MaxBytes, Seed, list_option, parse_list, parse_percents
from flowinpaint.data.folder import Frame, find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation.benchmark import check_method
from flowinpaint.evaluation.zoom_figure import fill_rows, own_frames, write_figure, zoom_figure
from flowinpaint.io import check_image_writable, make_folder
from flowinpaint.masks.cases import PATTERNS, Case, check_patterns

_METHODS = ("neuroexplicit", "neuroexplicit-paper", "laplace-beltrami", "eed", "nearest")


def command(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Picture to write.")] = Path("zoom.jpg"),
    root: Annotated[
        Path | None, typer.Option(help="Folder of frames, as for 'evaluate'; default generated scenes.")
    ] = None,
    samples: Annotated[
        str | None, list_option("Samples as DATASET/SAMPLE; default the first one of each data set.")
    ] = None,
    methods: Annotated[str | None, list_option(f"Names or .safetensors files; default {', '.join(_METHODS)}.")] = None,
    given: Annotated[
        str, typer.Option(metavar="CASE", help=f"Known pixels: a percentage, or {', '.join(PATTERNS)}.")
    ] = "5",
    seed: Seed = 0,
    device: Device = "auto",
    max_bytes: MaxBytes = None,
) -> None:
    """Draw samples next to the results of methods, enlarged where the truth has its strongest edges."""
    case = _parse_case(given)
    names = list(_METHODS) if methods is None else parse_list("--methods", methods)
    for name in names:
        check_method(name, "--methods")
    check_image_writable(out)
    if root is None:
        if samples is not None:
            raise InputError(f"--samples needs --root, the folder of the frames, got {samples!r} alone")
        frames = own_frames(case, seed)
    else:
        frames = _frames(root, samples, case, seed)
    draw_figure(out, frames, names, case, device)
    tell_written(out)


def draw_figure(path: Path, frames: Mapping[str, Frame], methods: Sequence[str], case: Case, device: str) -> None:
    """Fill the frames with the methods and draw the results; print the methods' warnings."""
    with warnings_told():
        rows = fill_rows(frames, methods, device)
    figure = zoom_figure(rows, case)
    make_folder(path.parent)
    write_figure(path, figure)


def _parse_case(text: str) -> Case:
    if text in PATTERNS:
        return check_patterns([text])[0]
    try:
        (share,) = parse_percents(text)
    except ValueError as error:
        raise InputError(f"--given must be one percentage or one of {', '.join(PATTERNS)}, got {text!r}") from error
    return share


def _frames(root: Path, samples: str | None, case: Case, seed: int) -> dict[str, Frame]:
    found = {f"{sample.dataset}/{sample.name}": sample for sample in find_samples(root)}
    if samples is None:
        wanted = list({sample.dataset: name for name, sample in reversed(found.items())}.values())[::-1]
    else:
        wanted = parse_list("--samples", samples)
    if unknown := [name for name in wanted if name not in found]:
        raise InputError(f"--samples must be some of {', '.join(found)} in {root}, got {unknown[0]!r}")
    return {name: found[name].load(case, seed) for name in wanted}
