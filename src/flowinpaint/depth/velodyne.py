"""Velodyne scans as KITTI stores them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import check_file, warn_user
from flowinpaint.io.budget import with_max_bytes
from flowinpaint.io.files import StrPath, existing_file

_POINT_BYTES = 16


@with_max_bytes
def read_velodyne(path: StrPath, *, max_bytes: int | None = None) -> npt.NDArray[np.float32]:
    """Read a scan: points (N, 4) float32, x forward, y left, z up in metres, and reflectance.

    The file holds little-endian float32 x, y, z, reflectance without a header. Points that are not finite are dropped,
    with a warning that says how many. max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    path = existing_file(path)
    size = path.stat().st_size
    check_file(path, size % _POINT_BYTES != 0 and f"a scan must have 16 bytes per point, got {size} bytes")
    scan = np.fromfile(path, "<f4").reshape(-1, 4).astype(np.float32, copy=False)
    finite = np.asarray(np.isfinite(scan).all(axis=1))
    check_file(path, not finite.any() and "a scan must have at least one finite point, got none")
    if dropped := int((~finite).sum()):
        warn_user(f"{path}: {dropped} of {len(scan)} points are not finite and were dropped.")
    return scan[finite]
