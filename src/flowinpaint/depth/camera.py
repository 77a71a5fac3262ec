"""Cameras: read KITTI's calibration files, and project points into an image.

A projection matrix P (3, 4) maps a point X to w (x, y, 1) = P (X, 1), where x, y are pixels with (0, 0) at the centre
of the top left one, and w is the depth along the optical axis.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.io.budget import with_max_bytes
from flowinpaint.io.files import StrPath, existing_file
from flowinpaint.io.text import as_number, read_text

Array = npt.NDArray[np.float64]
Calibration = npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""A projection matrix (3, 4), or K (3, 3), R (3, 3) and t (3,) with camera coordinates R X + t."""

_LARGEST_FILE = 2**20
_NEAREST = 1e-6
"""Points nearer than this have no pixel."""
_FARTHEST = float(np.finfo(np.float32).max)
_EVERY_NAME = (
    "P_rect_0{camera} with R and T (KITTI raw), P{camera} with Tr_velo_to_cam (object) or P{camera} with Tr (odometry)"
)


@with_max_bytes
def read_calibration(paths: StrPath | Iterable[StrPath], camera: int = 2, *, max_bytes: int | None = None) -> Array:
    """Read the projection matrix (3, 4) from Velodyne points to the pixels of a rectified camera in KITTI's files.

    paths: KITTI raw has two files, calib_cam_to_cam.txt and calib_velo_to_cam.txt; object and odometry have one each.
    camera: 0 and 1 are the grey cameras, 2 and 3 the left and right colour cameras.
    max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    if isinstance(camera, bool) or not isinstance(camera, int | np.integer) or not 0 <= camera <= 3:
        raise InputError(f"camera must be 0, 1, 2 or 3, got {camera!r}")
    listed = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not listed:
        raise InputError("paths must name at least one calibration file, got none")
    entries: dict[str, Array] = {}
    for path in listed:
        entries |= _entries(path)
    named = " and ".join(map(str, listed))
    project, rectify = _matrix(named, entries, f"P_rect_0{camera}", f"P{camera}"), np.eye(4)
    if f"P_rect_0{camera}" in entries:
        # Points are first rotated into the rectified frame of camera 0, whatever the camera.
        rectify[:3, :3] = _matrix(named, entries, "R_rect_00", shape=(3, 3))
        to_camera = np.column_stack(
            [_matrix(named, entries, "R", shape=(3, 3)), _matrix(named, entries, "T", shape=(3, 1))]
        )
    elif "Tr_velo_to_cam" in entries or "Tr_velo_cam" in entries:
        rectify[:3, :3] = _matrix(named, entries, "R0_rect", "R_rect", shape=(3, 3))
        to_camera = _matrix(named, entries, "Tr_velo_to_cam", "Tr_velo_cam")
    else:
        to_camera = _matrix(named, entries, "Tr")  # odometry: the points are rectified by Tr
    with np.errstate(over="ignore", invalid="ignore"):
        projection: Array = project @ rectify @ np.vstack([to_camera, [0, 0, 0, 1]])
    if not np.isfinite(projection).all():
        raise FileFormatError(f"{named}: the matrices must have a finite product, got numbers that are too large")
    return projection


def _entries(path: Path) -> dict[str, Array]:
    """The lines `name: numbers` of a calibration file."""
    entries = {}
    for line in read_text(existing_file(path), _LARGEST_FILE).split("\n"):
        name, colon, numbers = line.partition(":")
        try:
            values = np.array([as_number(word) for word in numbers.split()])
        except ValueError:  # a date, for example
            continue
        if colon and values.size and np.isfinite(values).all():
            entries[name.strip()] = values
    return entries


def _matrix(named: str, entries: dict[str, Array], *names: str, shape: tuple[int, int] = (3, 4)) -> Array:
    """The matrix under the first of these names."""
    name = next((name for name in names if name in entries), None)
    if name is None:
        digit = next((n[-1] for n in names if n[0] == "P"), "2")
        raise FileFormatError(
            f"{named}: must have a line {' or '.join(names)} with numbers; calibration needs "
            f"{_EVERY_NAME.format(camera=digit)}, got {', '.join(entries)[:200] or 'none'}"
        )
    values = entries[name]
    if values.size != shape[0] * shape[1]:
        raise FileFormatError(f"{named}: {name} must have {shape[0] * shape[1]} numbers, got {values.size}")
    return values.reshape(shape)


def projection_matrix(calibration: Calibration) -> Array:
    """The projection matrix (3, 4) of a calibration."""
    form = "a finite (3, 4) matrix or a tuple K (3, 3), R (3, 3), t (3,)"
    try:
        if isinstance(calibration, tuple) and len(calibration) == 3 and np.ndim(calibration[0]) == 2:
            K, R = (np.asarray(x, np.float64).reshape(3, 3) for x in calibration[:2])
            matrix = K @ np.column_stack([R, np.asarray(calibration[2], np.float64).reshape(3)])
        else:
            matrix = np.asarray(calibration, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"calibration must be {form}, got {type(calibration).__name__}") from None
    if matrix.shape != (3, 4) or not np.isfinite(matrix).all():
        raise InputError(f"calibration must be {form}, got shape {matrix.shape}")
    if np.linalg.matrix_rank(matrix) < 3:
        raise InputError("calibration must have rank 3, got a matrix that projects onto a line")
    return matrix


def project(
    points: npt.ArrayLike, calibration: Calibration, size: tuple[int, ...]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32], npt.NDArray[np.intp]]:
    """Project points (N, 3 or more) into an image, without those behind the camera or outside the image.

    calibration: from `read_calibration`, or a projection matrix (3, 4), or a tuple K, R, t. size: (height, width), or
    the image's shape. Returns uv (M, 2), sub-pixel x, y; depth (M,) along the optical axis, in the points' unit; and
    index (M,), the row of each point in `points`.
    """
    cloud = np.asarray(points)
    if cloud.ndim != 2 or cloud.shape[1] < 3 or cloud.dtype.kind not in "fiu":
        raise InputError(f"points must be numbers of shape (N, 3 or more), got {cloud.dtype} {cloud.shape}")
    height, width = _size(size)
    matrix = projection_matrix(calibration)
    # The scale of P is free; this one makes w the depth in front of a camera with a proper rotation.
    matrix = matrix * (np.sign(np.linalg.det(matrix[:, :3])) or 1) / np.linalg.norm(matrix[2, :3])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        homogeneous = cloud[:, :3].astype(np.float64) @ matrix[:, :3].T + matrix[:, 3]
        depth = homogeneous[:, 2]
        uv = homogeneous[:, :2] / depth[:, None]
        inside = (depth > _NEAREST) & (depth < _FARTHEST) & (uv >= -0.5).all(axis=1)
        inside &= (uv[:, 0] < width - 0.5) & (uv[:, 1] < height - 0.5)
    index = np.flatnonzero(inside)
    return uv[index], depth[index].astype(np.float32), index


def _size(size: Any) -> tuple[int, int]:
    try:
        height, width = (int(n) for n in size[:2])
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise InputError(f"size must be (height, width) of the image, got {size!r:.60}")
    return height, width
