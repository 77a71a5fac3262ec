"""`flowinpaint fill`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from flowinpaint import api
from flowinpaint.cli.console import output, say, solver_bar
from flowinpaint.cli.options import Device, ParameterFile, parse_setting
from flowinpaint.errors import InputError
from flowinpaint.evaluation.parameter_file import read_parameters
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
from flowinpaint.result import Info
from flowinpaint.viz.sheet import preview as draw_preview

ERROR_SUFFIXES = (".pfm", ".npy", ".npz")
"""Of files that hold zeros, as expected errors are where vectors are given."""


def command(
    image: Annotated[Path, typer.Argument(help="The image the field belongs to.")],
    flow: Annotated[Path, typer.Argument(help="The sparse field: .flo, KITTI .png, .pfm, .npy or .npz.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the dense field goes; same kinds of file.")],
    mask: Annotated[
        Path | None,
        typer.Option(help="Known pixels, non-zero in a PNG. Without it, those the flow file marks as valid."),
    ] = None,
    invert_mask: Annotated[bool, typer.Option("--invert-mask", help="Non-zero in the mask means unknown.")] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="See 'flowinpaint methods'; or a .safetensors file. By default that of --params, or "
            f"{api.DEFAULT_METHOD}."
        ),
    ] = None,
    preview: Annotated[
        Path | None, typer.Option(help="Also draw image, given vectors, result and expected error here.")
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(
            help="Also write how far off each vector is expected to be: .pfm, .npy or .npz. Networks can tell."
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
    table = None if params is None else read_parameters(params)
    method = method or (api.DEFAULT_METHOD if table is None else table.method)
    api.check_parameters(method, overrides)
    if table is not None and table.method != method:
        raise InputError(f"{params}: holds parameters of {table.method}; those of the method {method} are taken")
    _check_distinct([out, preview, errors], inputs=[image, flow, mask, params])
    if invert_mask and mask is None:
        raise InputError("--invert-mask: is given without --mask")
    sparse, valid = read_flow(flow)
    check_flow_writable(out, sparse.shape[2])
    if errors is not None:
        if errors.suffix.lower() not in ERROR_SUFFIXES:
            raise InputError(f"--errors: {errors} was given; a name that ends in {', '.join(ERROR_SUFFIXES)} is taken.")
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
            say("Note:", "yellow", f"{dropped} pixels of {mask} are unknown in {flow}, and stay so.")
    if not known.any():
        raise InputError(f"{mask or flow}: no pixel is known; at least one is needed")
    if (clip_to_format(out, sparse)[known] != sparse[known]).any():
        raise InputError(f"{out}: a KITTI PNG cannot hold all vectors of {flow}; .flo, .pfm or .npy can")

    parameters = ({} if table is None else table.at(float(known.mean()))) | overrides
    with solver_bar(float(parameters.get("tolerance", 1e-6))) as report, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = api.inpaint(
            guide,
            sparse,
            known,
            method=method,
            device=device,
            progress=lambda p: report(method, p),
            **parameters,
        )
    if errors is not None and result.expected_error is None:
        raise InputError(f"--errors: {method} cannot tell how far off it is; a network with confidence can")
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
        say("Warning:", "yellow", f"{clipped} filled vectors were cut to what a KITTI PNG holds.")
    for warning in caught:
        say("Warning:", "yellow", str(warning.message))
    _say_filled([out, errors, preview], int(known.sum()), known.size, result.info)


def _check_distinct(outputs: list[Path | None], inputs: list[Path | None]) -> None:
    """Refuse to write over an input, or one output over another."""
    taken = [path.resolve() for path in inputs if path is not None]
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise InputError(f"{path}: is an input or another output too; another name is needed")
        taken.append(path.resolve())


def _check_size(path: Path, shape: tuple[int, ...], flow: Path, size: tuple[int, ...]) -> None:
    if shape[:2] != size[:2]:
        raise InputError(f"{path}: is {shape[1]}x{shape[0]} pixels (width x height), but {flow} is {size[1]}x{size[0]}")


def _say_filled(written: list[Path | None], given: int, pixels: int, info: Info) -> None:
    if given == pixels:
        say("Note:", "yellow", "every vector was known; there was nothing to fill.")
    iterations = f", {info['iterations']} iterations" if info["iterations"] else ""
    sentences = [
        f"Wrote {written[0]}: {given} of {pixels} vectors were given; {info['method']} on {info['device']}, "
        f"{info['seconds']:.2f} s{iterations}."
    ]
    sentences += [f"Wrote {path}." for path in written[1:] if path is not None]
    output.print(Text("\n".join(sentences)), soft_wrap=True)
