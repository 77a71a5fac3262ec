"""`flowinpaint fill`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.text import Text
from scipy.ndimage import distance_transform_edt

from flowinpaint.cli.console import output, say, solver_bar, warnings_told
from flowinpaint.cli.options import Device, Durable, MaxBytes, ParameterFile, parse_setting
from flowinpaint.cli.outputs import Outputs
from flowinpaint.cli.sparse_input import check_size, kind_of, read_sparse
from flowinpaint.cli.unit_option import UnitText, unit_option_named
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io import parse_unit, png_unit, read_image, read_map, read_mask, read_probability
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.registry import get_method
from flowinpaint.robust.hints import check_takes_weights

Array = npt.NDArray[Any]

GROW = 4
"""Margin in px around a removed object: its edges are blurred over a few pixels."""
_LARGEST_OBJECT = 0.5
"""Share of the image above which the mask of an object is probably inverted."""


def command(
    image: Annotated[Path, typer.Argument(help="Image that belongs to the field.")],
    flow: Annotated[
        Path,
        typer.Argument(
            help="Sparse field (.flo, .png, .pfm, .npy, .npz, .tif), matches x1 y1 x2 y2 (.txt, .csv, .match) or "
            "tracks (.npz)."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Dense field to write: .flo, .png, .pfm, .npy, .npz or .tif.")
    ],
    mask: Annotated[
        Path | None,
        typer.Option(help="Mask image, non-zero where known; default the vectors that the field file marks as known."),
    ] = None,
    invert_mask: Annotated[bool, typer.Option("--invert-mask", help="Read non-zero in --mask as unknown.")] = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="Name from 'flowinpaint methods', .safetensors file or module:function; default that of --params, or "
            f"{DEFAULT_METHOD}."
        ),
    ] = None,
    preview: Annotated[
        Path | None, typer.Option(help="Also draw image, known vectors, dense field and expected error to this file.")
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(
            help="Also write the expected error of each vector: .pfm, .npy, .npz or .tif; needs neuroexplicit or "
            "--robust."
        ),
    ] = None,
    robust: Annotated[
        bool | None,
        typer.Option(
            "--robust/--no-robust",
            help="Judge noisy or wrong vectors and fill from the best estimates; default only for matches and tracks.",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|FILE",
            help="Standard deviation of the known vectors, in their unit: a number, .npy, .npz, .pfm or 16-bit .png.",
        ),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|FILE",
            help="Probability that each known vector is correct: a number, .npy, .npz, .pfm or an image (white is 1).",
        ),
    ] = None,
    second: Annotated[
        Path | None,
        typer.Option(help="Second image, where the flow ends, to judge and refine it; implies --robust."),
    ] = None,
    inliers: Annotated[
        Path | None,
        typer.Option(help="Also write inlier probabilities: .pfm, .npy, .npz or .tif; .txt has one per point."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Columns of a list of matches, such as x,y,u,v,noise; _ skips a column."),
    ] = None,
    frames: Annotated[
        str | None, typer.Option(metavar="FROM,TO", help="Two frames of the tracks, such as 0,5; default 0,1.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the method, such as lam=1e-4; repeatable."),
    ] = None,
    params: ParameterFile = None,
    unit: UnitText = None,
    space: Annotated[
        str, typer.Option(help="Space to fill in: linear, inverse (recommended for depth) or log.")
    ] = "linear",
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Smallest and largest filled value, in px, or in metres with --unit."),
    ] = None,
    remove: Annotated[
        Path | None,
        typer.Option(
            metavar="MASK", help="Remove the object where this mask file is not zero: ignore its vectors and image."
        ),
    ] = None,
    grow: Annotated[
        int | None,
        typer.Option(min=0, metavar="PX", help=f"Margin around the object of --remove, in px; default {GROW}."),
    ] = None,
    fill_where: Annotated[
        Path | None, typer.Option(metavar="MASK", help="Mask image; fill only where the mask is not zero.")
    ] = None,
    image_where: Annotated[
        Path | None,
        typer.Option(
            metavar="MASK",
            help="Mask image; use the image only where the mask is not zero, not on removed objects.",
        ),
    ] = None,
    max_gap: Annotated[
        float | None,
        typer.Option(
            metavar="PX", help="Largest distance in px to a trusted vector; pixels farther away stay unknown."
        ),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Largest expected error, in px or metres; the rest stays unknown."),
    ] = None,
    device: Device = "auto",
    durable: Durable = False,
    max_bytes: MaxBytes = None,
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
    outputs = Outputs(out, errors, inliers, preview, parse_unit(unit), max_error, durable)
    outputs.check_predicts(found, judged)
    found.check_parameters({key: value for key, value in overrides.items() if key != "seed" or not judged})
    if judged:
        check_takes_weights(found)
    if inliers is not None and not judged:
        raise InputError("--inliers needs --robust, --noise, --confidence or --second")
    if invert_mask and mask is None:
        raise InputError("--invert-mask needs --mask")
    if grow is not None and remove is None:
        raise InputError("--grow needs --remove")
    files = [image, flow, mask, params, second, remove, fill_where, image_where, *map(_file_of, (noise, confidence))]
    outputs.check_names(files, kind != "field")
    with unit_option_named():
        sparse = read_sparse(flow, kind, columns, frames, png_unit(flow, outputs.unit))
        outputs.check_writable(sparse.channels)
    guide = read_image(image)
    sparse.check_image(image, guide)
    sparse.apply_mask(mask, invert_mask)
    trusted_image = _read_alike(image_where, read_mask, image, guide)
    if remove is not None:
        kept = ~_grown(remove, _read_alike(remove, read_mask, image, guide), GROW if grow is None else grow)
        sparse.keep(kept)
        trusted_image = kept if trusted_image is None else kept & trusted_image
    if not judged:
        sparse.check_storable(out, outputs.unit)
    options: dict[str, Any] = {
        "robust": robust,
        "noise": _point_values("--noise", noise, read_map),
        "confidence": _point_values("--confidence", confidence, read_probability),
        "second": _read_alike(second, read_image, image, guide),
        "fill_where": _read_alike(fill_where, read_mask, image, guide),
        "image_where": trusted_image,
        "max_gap": max_gap,
        "space": space,
        "bounds": bounds,
    }
    parameters: dict[str, Any] = ({} if table is None else table.at(sparse.density(guide))) | overrides
    with solver_bar() as report, warnings_told():
        result = sparse.fill(guide, method, device, progress=partial(report, method), **options, **parameters)
    result = outputs.write(result)
    info, arrays = result.info, result.arrays
    assert arrays is not None
    iterations = f", {info['iterations']} iterations" if info["iterations"] else ""
    sentence = f"{sparse.given(result)}; {info['method']} on {info['device']}, {info['seconds']:.2f} s{iterations}."
    if unfilled := 1 - float(np.isfinite(arrays.flow).all(-1).mean()):
        sentence += f" {100 * unfilled:.3g} % of the pixels stay unknown."
    output.print(Text(f"Wrote {out}: {sentence}"), soft_wrap=True)
    if (probabilities := sparse.probabilities(result)) is not None:
        noun = "known vectors" if result.points is None else "used points"
        output.print(Text(_judgement(probabilities, info["noise"], noun, sparse.channels)), soft_wrap=True)
    outputs.tell_others()


def _read_alike(path: Path | None, read: Callable[[Path], Array], image: Path, guide: Array) -> Array | None:
    """The image or mask in a file, of the size of the image; None without a file."""
    if path is None:
        return None
    found = read(path)
    check_size(path, found.shape, image, guide.shape)
    return found


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
    try:
        return read(Path(text))
    except (FileFormatError, MissingFileError) as error:
        raise type(error)(f"{option}: {error}") from error


def _grown(path: Path, mask: Array | None, margin: int) -> Array:
    """The mask (H, W) of an object, and the pixels within a margin in px."""
    if mask is None or not mask.any():
        raise InputError(f"{path}: the mask of --remove must be non-zero on the object, got zero everywhere")
    if mask.mean() > _LARGEST_OBJECT:
        found = f"{path}: {100 * mask.mean():.0f} % of the pixels are the object"
        say("Warning:", "yellow", f"{found}; the mask of --remove must be non-zero on the object, not around it.")
    return np.asarray(distance_transform_edt(~mask) <= margin)


def _judgement(p: Array, noise: float | None, noun: str, channels: int) -> str:
    """A sentence on the inlier probabilities (N,) of the known vectors."""
    if noise is None:
        return f"{p.size} {noun} are too few to judge."
    wrong = int((p < 0.5).sum())
    found = f"{wrong} of {p.size} {noun} ({100 * wrong / p.size:.1f} %) are probably wrong"
    unit = "px" if channels == 2 else "in the field's unit"
    return f"{found}; the noise of the others is {noise:.3g} {unit}."
