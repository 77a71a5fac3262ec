"""Write results: the field in the format of the suffix, and in a .npz its expected errors and inliers, too."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flowinpaint.errors import InputError
from flowinpaint.io.files import StrPath, make_folder, write_bytes
from flowinpaint.io.flow import FLOW_SUFFIXES, check_flow_writable, write_flow
from flowinpaint.io.images import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from flowinpaint.io.units import Unit
    from flowinpaint.result import Arrays


def save_result(path: StrPath, arrays: Arrays, unit: Unit | None = None) -> None:
    """Write `arrays.flow`; make the folder if needed. unit: of a 16-bit PNG of one channel, as in `write_flow`."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES and suffix not in FLOW_SUFFIXES:
        raise InputError(
            f"{path}: must end in one of {', '.join(FLOW_SUFFIXES)}; for a picture call "
            "write_image(path, result.preview())"
        )
    check_flow_writable(path, arrays.flow.shape[2], unit)
    if suffix != ".npz":
        make_folder(path.parent)
        write_flow(path, arrays.flow, unit=unit)
        return
    maps = {"expected_error": arrays.expected_error, "inliers": arrays.inliers}
    stream = io.BytesIO()
    known = {name: x for name, x in maps.items() if x is not None}
    np.savez(stream, flow=arrays.flow, valid=np.isfinite(arrays.flow).all(axis=2), **known)  # type: ignore[arg-type]
    make_folder(path.parent)
    write_bytes(path, stream.getvalue())
