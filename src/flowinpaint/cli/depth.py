"""`flowinpaint depth`: from a LiDAR scan, a sparse depth image or a COLMAP model to dense depth."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from rich.text import Text

from flowinpaint.cli.console import output, solver_bar, warnings_told
from flowinpaint.cli.options import Device, Durable, MaxBytes
from flowinpaint.cli.outputs import Outputs
from flowinpaint.cli.unit_option import UnitText, unit_option_named
from flowinpaint.depth.camera import project, read_calibration
from flowinpaint.depth.colmap import read_colmap
from flowinpaint.depth.complete import complete_depth, depth_points
from flowinpaint.depth.velodyne import read_velodyne
from flowinpaint.errors import InputError
from flowinpaint.io import Unit, parse_unit, png_unit, read_flow, read_image
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.registry import get_method
from flowinpaint.result import Result


class _Points(NamedTuple):
    """uv (M, 2) and depth (M,), and whether the camera is known to see them."""

    uv: npt.NDArray[Any]
    depth: npt.NDArray[Any]
    seen: bool


def command(
    image: Annotated[Path, typer.Argument(help="Image that belongs to the points.")],
    scan: Annotated[
        Path | None, typer.Argument(help="Velodyne scan (.bin), or sparse depth image: .png, .tif, .pfm, .npy or .npz.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Dense depth to write: .png, .tif, .pfm, .npy or .npz.")
    ] = ...,  # type: ignore[assignment]
    calibration: Annotated[
        list[Path] | None,
        typer.Option(
            help="Calibration file of KITTI; pass the option twice for calib_cam_to_cam and calib_velo_to_cam."
        ),
    ] = None,
    camera: Annotated[
        int, typer.Option(min=0, max=3, help="Number of KITTI's camera; 2 is the left colour camera.")
    ] = 2,
    colmap: Annotated[
        Path | None, typer.Option(help="Folder of a COLMAP model, whose points replace the scan.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the image in the COLMAP model; default its file name.")
    ] = None,
    unit: UnitText = None,
    method: Annotated[
        str, typer.Option(help="Name from 'flowinpaint methods', .safetensors file or module:function.")
    ] = DEFAULT_METHOD,
    robust: Annotated[
        bool, typer.Option("--robust", help="Judge noisy or wrong points and fill from the best estimates.")
    ] = False,
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Smallest and largest depth, in the unit of the points; default those of the points.",
        ),
    ] = None,
    keep_hidden: Annotated[
        bool, typer.Option("--keep-hidden", help="Keep points that a nearer object hides from the camera.")
    ] = False,
    errors: Annotated[
        Path | None, typer.Option(help="Also write the expected error of each depth: .pfm, .npy, .npz or .tif.")
    ] = None,
    preview: Annotated[
        Path | None, typer.Option(help="Also draw image, points, depth and expected error to this file.")
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Largest expected error, in metres; the rest stays unknown."),
    ] = None,
    device: Device = "auto",
    durable: Durable = False,
    max_bytes: MaxBytes = None,
) -> None:
    """Complete a LiDAR scan, a sparse depth image or the points of a COLMAP model to dense depth."""
    if (scan is None) == (colmap is None):
        raise InputError("depth needs either SCAN or --colmap, got " + ("both" if scan else "none"))
    outputs = Outputs(out, errors, None, preview, parse_unit(unit), max_error, durable)
    outputs.check_predicts(get_method(method), robust)
    outputs.check_names([image, scan, *(calibration or [])])
    with unit_option_named():
        outputs.check_writable(1)
    guide = read_image(image)
    with warnings_told():
        if colmap is not None:
            uv, depth = read_colmap(colmap, name or image.name)
            points = _Points(*_inside(uv, depth, guide.shape), seen=True)
        else:
            points = _read_points(Path(scan or ""), calibration, camera, guide, image, outputs.unit)
    with solver_bar() as report, warnings_told():
        result = complete_depth(
            guide,
            points.uv,
            points.depth,
            method,
            device,
            robust=robust,
            visible_only=not (keep_hidden or points.seen),
            bounds=bounds,
            progress=partial(report, method),
        )
    written = outputs.write(result)
    output.print(Text(_sentence(out, points, written)), soft_wrap=True)
    outputs.tell_others()


def _read_points(
    scan: Path, calibration: list[Path] | None, camera: int, guide: Any, image: Path, unit: Unit | None
) -> _Points:
    """The points of a scan or of a sparse depth image."""
    if scan.suffix.lower() == ".bin":
        if not calibration:
            raise InputError(f"{scan}: a Velodyne scan needs --calibration; pass the calibration files of KITTI")
        uv, depth, _ = project(read_velodyne(scan), read_calibration(calibration, camera), guide.shape)
        if not len(depth):
            raise InputError(f"{scan}: at least one point must be inside {image}, got none; check --calibration")
        return _Points(uv, depth, seen=False)
    if calibration:
        raise InputError(f"--calibration needs a Velodyne scan (.bin), got {scan}")
    with unit_option_named():
        sparse, valid = read_flow(scan, png_unit(scan, unit))
    if sparse.shape != (*guide.shape[:2], 1):
        size, found = f"{guide.shape[1]}x{guide.shape[0]}", f"{sparse.shape[1]}x{sparse.shape[0]}"
        raise InputError(f"{scan}: must be {size} pixels of one channel as {image}, got {found} of {sparse.shape[2]}")
    if not (valid & (sparse[..., 0] > 0)).any():
        raise InputError(f"{scan}: at least one depth must be known, got none")
    return _Points(*depth_points(sparse), seen=False)


def _inside(uv: npt.NDArray[Any], depth: npt.NDArray[Any], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The points that are inside the image; InputError if most are not, as in an image of another size."""
    inside = (uv >= -0.5).all(axis=1) & (uv < (shape[1] - 0.5, shape[0] - 0.5)).all(axis=1)
    if 2 * inside.sum() < len(uv):
        raise InputError(
            f"image must have the size that COLMAP read, got {shape[1]}x{shape[0]} pixels, with {inside.sum()} of the "
            f"{len(uv)} points inside"
        )
    return uv[inside], depth[inside]


def _sentence(out: Path, points: _Points, result: Result) -> str:
    arrays = result.arrays
    assert arrays is not None
    assert result.points is not None
    count, visible = len(points.depth), int(result.points.used.sum())
    removed = f", {count - visible} hidden points were removed" if visible < count else ""
    filled = arrays.flow[np.isfinite(arrays.flow)]
    depths = f"depths from {filled.min():.2f} to {filled.max():.2f}" if filled.size else "no depth is certain"
    unknown = 1 - filled.size / arrays.flow.size
    sentence = (
        f"Wrote {out}: {depths}, from {visible} of {count} points{removed}; {result.info['method']} on "
        f"{result.info['device']}, {result.info['seconds']:.2f} s."
    )
    return sentence + (f" {100 * unknown:.3g} % of the pixels stay unknown." if unknown else "")
