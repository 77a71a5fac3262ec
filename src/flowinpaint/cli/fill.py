"""`flowinpaint fill`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from flowinpaint.api import inpaint
from flowinpaint.cli.console import output, say, solver_bar, tell_written, warnings_told
from flowinpaint.cli.options import Device, ParameterFile, parse_setting
from flowinpaint.errors import InputError
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
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.registry import get_method
from flowinpaint.viz.sheet import preview as draw_preview

ERROR_SUFFIXES = (".pfm", ".npy", ".npz")
"""Formats that can hold the value 0, which expected errors have where vectors are known."""


def command(
    image: Annotated[Path, typer.Argument(help="The image that the field belongs to.")],
    flow: Annotated[Path, typer.Argument(help="The sparse field: .flo, KITTI .png, .pfm, .npy or .npz.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The dense field to write; same formats.")],
    mask: Annotated[
        Path | None,
        typer.Option(help="Known pixels, non-zero in a PNG; by default those the flow file marks as valid."),
    ] = None,
    invert_mask: Annotated[bool, typer.Option("--invert-mask", help="Non-zero in the mask means unknown.")] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="See 'flowinpaint methods', or a .safetensors file; by default the method of --params, or "
            f"{DEFAULT_METHOD}."
        ),
    ] = None,
    preview: Annotated[
        Path | None, typer.Option(help="Also draw image, given vectors, result and expected error to this file.")
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(
            help="Also write the expected error of each vector: .pfm, .npy or .npz. Only some networks predict it."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the method, e.g. lam=1e-4."),
    ] = None,
    params: ParameterFile = None,
    device: Device = "auto",
) -> None:
    """Fill a sparse field, guided by an image."""
    overrides = dict(parse_setting(text) for text in setting or [])
    table = None
    if params is not None:
        from flowinpaint.evaluation.parameter_file import read_parameters

        table = read_parameters(params)
    method = method or (DEFAULT_METHOD if table is None else table.method)
    found = get_method(method)
    found.check_parameters(overrides)
    if errors is not None and not found.gives_error:
        raise InputError(f"--errors needs a method that predicts its errors, such as {DEFAULT_METHOD}, got {method}")
    if table is not None and table.method != method:
        raise InputError(f"{params}: must hold parameters of {method}, got those of {table.method}")
    _check_distinct([out, preview, errors], inputs=[image, flow, mask, params])
    if invert_mask and mask is None:
        raise InputError("--invert-mask needs --mask")
    sparse, valid = read_flow(flow)
    check_flow_writable(out, sparse.shape[2])
    if errors is not None:
        if errors.suffix.lower() not in ERROR_SUFFIXES:
            raise InputError(f"--errors must be a file name ending in {', '.join(ERROR_SUFFIXES)}, got {errors}")
        check_flow_writable(errors, 1)
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
            say("Note:", "yellow", f"{dropped} pixels of {mask} are unknown in {flow} and stay unknown.")
    if not known.any():
        raise InputError(f"{mask or flow}: at least one pixel must be known, got none")
    if (clip_to_format(out, sparse)[known] != sparse[known]).any():
        raise InputError(f"{out}: a KITTI PNG cannot hold all vectors of {flow}; use .flo, .pfm or .npy")

    parameters = ({} if table is None else table.at(float(known.mean()))) | overrides
    with solver_bar(float(parameters.get("tolerance", 1e-6))) as report, warnings_told():
        result = inpaint(guide, sparse, known, method, device, progress=partial(report, method), **parameters)
    picture = None
    if preview is not None:
        labelled = {method: (result.flow, f"{result.info['seconds']:.2f} s")}
        picture = draw_preview(guide, sparse, known, labelled, expected={method: result.expected_error})
    dense = clip_to_format(out, result.flow)
    write_flow(out, dense)
    if errors is not None and result.expected_error is not None:
        write_flow(errors, result.expected_error[..., None])
    if preview is not None and picture is not None:
        write_image(preview, picture)
    if clipped := int((dense != result.flow).any(-1).sum()):
        say("Warning:", "yellow", f"{clipped} filled vectors were clipped to the range of a KITTI PNG.")
    if known.all():
        say("Note:", "yellow", "every vector was known; there was nothing to fill.")
    info = result.info
    iterations = f", {info['iterations']} iterations" if info["iterations"] else ""
    sentence = (
        f"Wrote {out}: {known.sum()} of {known.size} vectors were given; {info['method']} on {info['device']}, "
        f"{info['seconds']:.2f} s{iterations}."
    )
    output.print(Text(sentence), soft_wrap=True)
    for path in filter(None, (errors, preview)):
        tell_written(path)


def _check_distinct(outputs: list[Path | None], inputs: list[Path | None]) -> None:
    """Raise InputError if an output would overwrite an input or another output."""
    taken = {path.resolve() for path in inputs if path is not None}
    for path in filter(None, outputs):
        if path.resolve() in taken:
            raise InputError(f"{path}: is also an input or another output; choose another name")
        taken.add(path.resolve())


def _check_size(path: Path, shape: tuple[int, ...], flow: Path, size: tuple[int, ...]) -> None:
    if shape[:2] != size[:2]:
        raise InputError(f"{path}: is {shape[1]}x{shape[0]} pixels (width x height), but {flow} is {size[1]}x{size[0]}")
