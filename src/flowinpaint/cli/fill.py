"""`flowinpaint fill`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import numpy.typing as npt
import typer
from rich.text import Text

from flowinpaint.cli.console import output, say, solver_bar, tell_written, warnings_told
from flowinpaint.cli.options import Device, ParameterFile, parse_setting
from flowinpaint.cli.sparse_input import check_size, kind_of, read_sparse
from flowinpaint.cli.unit_option import UnitText, unit_option_named
from flowinpaint.errors import InputError
from flowinpaint.io import (
    check_flow_writable,
    check_image_writable,
    clip_to_format,
    make_folder,
    parse_unit,
    png_unit,
    read_image,
    read_map,
    read_probability,
    write_flow,
    write_image,
)
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.registry import get_method
from flowinpaint.robust.hints import check_takes_weights
from flowinpaint.spaces import SpaceName
from flowinpaint.viz.sheet import preview as draw_preview

Array = npt.NDArray[Any]

ERROR_SUFFIXES = (".pfm", ".npy", ".npz")
"""Formats that can hold the value 0, which expected errors have where vectors are known."""


def command(
    image: Annotated[Path, typer.Argument(help="The image that the field belongs to.")],
    flow: Annotated[
        Path,
        typer.Argument(
            help="The sparse field: .flo, .png (KITTI flow, or depth with --unit), .pfm, .npy, .npz or .tif. "
            "Or points: matches (.txt, .csv, .match) with columns x1 y1 x2 y2, or tracks (.npz)."
        ),
    ],
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
            help="Also write the expected error of each vector: .pfm, .npy or .npz. Needs neuroexplicit or --robust."
        ),
    ] = None,
    robust: Annotated[
        bool | None,
        typer.Option(
            "--robust/--no-robust",
            help="Vectors may be noisy or wrong: judge them, and fill from the best estimate of each. On by default "
            "for matches and tracks, off for fields.",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|FILE",
            help="Standard deviation of the vectors, in the field's unit: number, .npy, .npz, .pfm, 16-bit .png.",
        ),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|FILE",
            help="Probability that each vector is correct: a number, .npy, .npz, .pfm, or an image (white is 1).",
        ),
    ] = None,
    second: Annotated[
        Path | None, typer.Option(help="The image that the vectors point to: compare and refine. Implies --robust.")
    ] = None,
    inliers: Annotated[
        Path | None,
        typer.Option(help="Also write the probability that each given vector is correct: .pfm, .npy or .npz."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Columns of a list of matches, e.g. x,y,u,v,noise; _ skips a column."),
    ] = None,
    frames: Annotated[
        str | None, typer.Option(metavar="FROM,TO", help="Two frames of tracks, e.g. 0,5; by default 0,1.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the method, e.g. lam=1e-4."),
    ] = None,
    params: ParameterFile = None,
    unit: UnitText = None,
    space: Annotated[
        str, typer.Option(help="Space to fill in: linear, inverse (recommended for depth) or log.")
    ] = "linear",
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(metavar="LOW HIGH", help="Smallest and largest filled value.")
    ] = None,
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
    if table is not None and table.method != method:
        raise InputError(f"{params}: must hold parameters of {method}, got those of {table.method}")
    kind = kind_of(flow)
    if robust is None:
        robust = kind != "field"
        if robust and not found.takes_weights:
            raise InputError(f"--method {method} cannot judge points; add --no-robust, or choose another method")
    judged = robust or any(x is not None for x in (noise, confidence, second))
    if errors is not None and not (found.gives_error or judged):
        raise InputError(
            f"--errors needs --robust, or a method that predicts its errors, such as {DEFAULT_METHOD}, got {method}"
        )
    found.check_parameters({key: value for key, value in overrides.items() if key != "seed" or not judged})
    if judged:
        check_takes_weights(found)
    if inliers is not None and not judged:
        raise InputError("--inliers needs --robust, --noise, --confidence or --second")
    _check_distinct(
        [out, preview, errors, inliers], inputs=[image, flow, mask, params, second, *map(_file_of, (noise, confidence))]
    )
    if invert_mask and mask is None:
        raise InputError("--invert-mask needs --mask")
    level = parse_unit(unit)
    with unit_option_named():
        sparse = read_sparse(flow, kind, columns, frames, png_unit(flow, level))
        check_flow_writable(out, sparse.channels, level)
    for name, path in (("--errors", errors), ("--inliers", inliers)):
        if path is not None and path.suffix.lower() not in ERROR_SUFFIXES:
            raise InputError(f"{name} must be a file name ending in {', '.join(ERROR_SUFFIXES)}, got {path}")
        if path is not None:
            check_flow_writable(path, 1)
    if preview is not None:
        check_image_writable(preview)
    guide = read_image(image)
    sparse.check_image(image, guide)
    sparse.apply_mask(mask, invert_mask)
    other = None if second is None else read_image(second)
    if second is not None and other is not None:
        check_size(second, other.shape, image, guide.shape)
    hints: dict[str, Any] = {
        "robust": robust,
        "noise": _point_values("--noise", noise, read_map),
        "confidence": _point_values("--confidence", confidence, read_probability),
        "second": other,
    }
    if not judged:
        sparse.check_storable(out, level)

    parameters: dict[str, Any] = ({} if table is None else table.at(sparse.density(guide))) | overrides
    with solver_bar() as report, warnings_told():
        progress = partial(report, method)
        where = {"space": cast(SpaceName, space), "bounds": bounds}
        result = sparse.fill(guide, method, device, hints, progress=progress, **where, **parameters)
    given, known = sparse.field, sparse.known
    assert given is not None and known is not None
    if errors is not None and result.expected_error is None:
        raise InputError(f"--errors: {method} predicts no errors from {int(known.sum())} vectors")
    picture = None
    if preview is not None:
        labelled = {method: (result.flow, f"{result.info['seconds']:.2f} s")}
        expected = {method: result.expected_error}
        picture = draw_preview(guide, given, known, labelled, expected=expected, inliers=result.inliers)
    for path in filter(None, (out, errors, inliers, preview)):
        make_folder(path.parent)
    dense = clip_to_format(out, result.flow, level)
    write_flow(out, dense, unit=level)
    if errors is not None and result.expected_error is not None:
        write_flow(errors, result.expected_error[..., None])
    if inliers is not None and result.inliers is not None:
        write_flow(inliers, result.inliers[..., None])
    if preview is not None and picture is not None:
        write_image(preview, picture)
    if clipped := int((dense != result.flow).any(-1).sum()):
        say("Warning:", "yellow", f"{clipped} filled vectors were clipped to the range of a 16-bit PNG.")
    info = result.info
    iterations = f", {info['iterations']} iterations" if info["iterations"] else ""
    sentence = (
        f"Wrote {out}: {sparse.given(result)}; {info['method']} on {info['device']}, "
        f"{info['seconds']:.2f} s{iterations}."
    )
    output.print(Text(sentence), soft_wrap=True)
    if (probabilities := sparse.probabilities(result)) is not None:
        noun = "given vectors" if result.points is None else "used points"
        output.print(Text(_judgement(probabilities, info["noise"], noun)), soft_wrap=True)
    for path in filter(None, (errors, inliers, preview)):
        tell_written(path)


def _file_of(text: str | None) -> Path | None:
    """The file that an option names, which may also be a number."""
    with suppress(ValueError, TypeError):
        float(text)  # type: ignore[arg-type]
        return None
    return None if text is None else Path(text)


def _point_values(option: str, text: str | None, read: Callable[[Path], Array]) -> float | Array | None:
    """The value of an option that is a number or a file."""
    if text is None:
        return None
    with suppress(ValueError):
        return float(text)
    if not Path(text).suffix:
        raise InputError(f"{option} must be a number or a file name, got {text!r}")
    return read(Path(text))


def _judgement(p: Array, noise: float | None, noun: str) -> str:
    """A sentence on the inlier probabilities (N,) of the given vectors."""
    if noise is None:
        return f"{p.size} {noun} are too few to judge."
    wrong = int((p < 0.5).sum())
    found = f"{wrong} of {p.size} {noun} ({100 * wrong / p.size:.1f} %) are probably wrong"
    return f"{found}; the noise of the others is {noise:.3g} in the field's unit."


def _check_distinct(outputs: list[Path | None], inputs: list[Path | None]) -> None:
    """Raise InputError if an output would overwrite an input or another output."""
    taken = {path.resolve() for path in inputs if path is not None}
    for path in filter(None, outputs):
        if path.resolve() in taken:
            raise InputError(f"{path}: is also an input or another output; choose another name")
        taken.add(path.resolve())
