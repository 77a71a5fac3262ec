"""`flowinpaint depth`: from a LiDAR scan, a sparse depth image or a COLMAP model to dense metric depth."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from rich.text import Text

from flowinpaint.cli.console import output, say, solver_bar, tell_written, warnings_told
from flowinpaint.cli.options import Device
from flowinpaint.cli.unit_option import UnitText, unit_option_named
from flowinpaint.depth.camera import project, read_calibration
from flowinpaint.depth.colmap import read_colmap
from flowinpaint.depth.complete import complete_depth, depth_points
from flowinpaint.depth.velodyne import read_velodyne
from flowinpaint.errors import InputError
from flowinpaint.io import (
    Unit,
    check_flow_writable,
    check_image_writable,
    clip_to_format,
    make_folder,
    parse_unit,
    png_unit,
    read_flow,
    read_image,
    write_flow,
    write_image,
)
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.result import Result
from flowinpaint.viz.sheet import preview as draw_preview

ERROR_SUFFIXES = (".pfm", ".npy", ".npz", ".tif", ".tiff")
"""Formats that can hold the value 0, which expected errors have where points are."""


class _Points(NamedTuple):
    """uv (M, 2) and depth (M,), and whether the camera is known to see them."""

    uv: npt.NDArray[Any]
    depth: npt.NDArray[Any]
    seen: bool


def command(
    image: Annotated[Path, typer.Argument(help="The image.")],
    scan: Annotated[
        Path | None, typer.Argument(help="A Velodyne scan (.bin), or a sparse depth image: .png, .tif, .pfm, .npy.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The dense depth to write: .png, .tif, .pfm, .npy or .npz.")
    ] = ...,  # type: ignore[assignment]
    calibration: Annotated[
        list[Path] | None,
        typer.Option(help="KITTI's calibration file; give it twice for calib_cam_to_cam and calib_velo_to_cam."),
    ] = None,
    camera: Annotated[int, typer.Option(min=0, max=3, help="KITTI's number of the camera; 2 is the left one.")] = 2,
    colmap: Annotated[
        Path | None, typer.Option(help="Folder of a COLMAP model; its points of the image are used instead of a scan.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the image in the COLMAP model; by default its file name.")
    ] = None,
    unit: UnitText = None,
    method: Annotated[str, typer.Option(help="See 'flowinpaint methods', or a .safetensors file.")] = DEFAULT_METHOD,
    robust: Annotated[
        bool, typer.Option("--robust", help="Points may be wrong: judge them, and fill from the best estimates.")
    ] = False,
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Smallest and largest depth; by default those of the points."),
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
    device: Device = "auto",
) -> None:
    """From a LiDAR scan, a sparse depth image or a COLMAP model to dense metric depth."""
    level = parse_unit(unit)
    if (scan is None) == (colmap is None):
        raise InputError("depth needs either SCAN or --colmap, got " + ("both" if scan else "none"))
    _check_outputs([out, errors, preview], [image, scan, *(calibration or [])])
    with unit_option_named():
        check_flow_writable(out, 1, level)
    if errors is not None:
        if errors.suffix.lower() not in ERROR_SUFFIXES:
            raise InputError(f"--errors must be a file name ending in {', '.join(ERROR_SUFFIXES)}, got {errors}")
        check_flow_writable(errors, 1)
    if preview is not None:
        check_image_writable(preview)
    guide = read_image(image)
    with warnings_told():
        if colmap is not None:
            uv, depth = read_colmap(colmap, name or image.name)
            points = _Points(*_inside(uv, depth, guide.shape), seen=True)
        else:
            points = _read_points(Path(scan or ""), calibration, camera, guide, image, level)
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
    if errors is not None and result.expected_error is None:
        raise InputError(f"--errors needs a method that predicts its errors, such as {DEFAULT_METHOD}, got {method}")
    picture = None if preview is None else _picture(result, method)
    for path in filter(None, (out, errors, preview)):
        make_folder(path.parent)
    dense = clip_to_format(out, result.flow, level)
    write_flow(out, dense, unit=level)
    if errors is not None:
        write_flow(errors, result.expected_error[..., None])
    if preview is not None and picture is not None:
        write_image(preview, picture)
    if clipped := int((dense != result.flow).sum()):
        say("Warning:", "yellow", f"{clipped} depths were clipped to the range of a 16-bit PNG.")
    output.print(Text(_sentence(out, points, result)), soft_wrap=True)
    for path in filter(None, (errors, preview)):
        tell_written(path)


def _read_points(
    scan: Path, calibration: list[Path] | None, camera: int, guide: Any, image: Path, unit: Unit | None
) -> _Points:
    """The points of a scan or of a sparse depth image."""
    if scan.suffix.lower() == ".bin":
        if not calibration:
            raise InputError(f"{scan}: a scan needs --calibration, the files that KITTI ships with it")
        uv, depth, _ = project(read_velodyne(scan), read_calibration(calibration, camera), guide.shape)
        if not len(depth):
            raise InputError(f"{scan}: at least one point must be inside {image}, got none; check --calibration")
        return _Points(uv, depth, seen=False)
    if calibration:
        raise InputError(f"{scan}: --calibration is for a Velodyne scan (.bin), not for a depth image")
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
            f"{inside.sum()} of {len(uv)} points of the COLMAP model are inside the image of {shape[1]}x{shape[0]} "
            "pixels; pass the image at the size that COLMAP read"
        )
    return uv[inside], depth[inside]


def _picture(result: Result, method: str) -> npt.NDArray[np.uint8]:
    arrays = result.arrays
    assert arrays is not None and arrays.image is not None
    known = np.isfinite(arrays.given[..., 0])
    labelled = {method: (arrays.flow, f"{result.info['seconds']:.2f} s")}
    expected = {method: arrays.expected_error}
    return draw_preview(arrays.image, arrays.given, known, labelled, expected=expected, inliers=arrays.inliers)


def _sentence(out: Path, points: _Points, result: Result) -> str:
    arrays = result.arrays
    assert arrays is not None
    used = int(np.isfinite(arrays.given).sum())
    return (
        f"Wrote {out}: depths from {arrays.flow.min():.2f} to {arrays.flow.max():.2f}, from {used} visible points "
        f"of {len(points.depth)}; {result.info['method']} on {result.info['device']}, "
        f"{result.info['seconds']:.2f} s."
    )


def _check_outputs(outputs: list[Path | None], inputs: list[Path | None]) -> None:
    """Raise InputError if an output would overwrite an input or another output."""
    taken = {path.resolve() for path in inputs if path is not None}
    for path in filter(None, outputs):
        if path.resolve() in taken:
            raise InputError(f"{path}: is also an input or another output; choose another name")
        taken.add(path.resolve())
