"""Velodyne scans as KITTI stores them."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import check_file
from flowinpaint.io.files import StrPath, existing_file

_POINT_BYTES = 16
MAX_POINTS = 2**27


def read_velodyne(path: StrPath) -> npt.NDArray[np.float32]:
    """Read a scan: points (N, 4) float32, x forward, y left, z up in metres, and reflectance.

    The file holds little-endian float32 x, y, z, reflectance without a header. Points that are not finite are dropped,
    with a warning that says how many.
    """
    path = existing_file(path)
    size = path.stat().st_size
    check_file(path, size % _POINT_BYTES != 0 and f"a scan must have 16 bytes per point, got {size} bytes")
    check_file(path, size // _POINT_BYTES > MAX_POINTS and f"a scan must have at most {MAX_POINTS} points")
    scan = np.fromfile(path, "<f4").reshape(-1, 4).astype(np.float32, copy=False)
    finite = np.asarray(np.isfinite(scan).all(axis=1))
    check_file(path, not finite.any() and "a scan must have at least one finite point, got none")
    if dropped := int((~finite).sum()):
        warnings.warn(f"{path}: {dropped} of {len(scan)} points are not finite and were dropped.", stacklevel=2)
    return scan[finite]
