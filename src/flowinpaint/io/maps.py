"""Maps of one number per pixel, such as noise and probabilities, in .npy, .npz, .pfm and .png files."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, check_file
from flowinpaint.io.arrays import open_npy
from flowinpaint.io.budget import with_max_bytes
from flowinpaint.io.files import StrPath, existing_file, write_bytes
from flowinpaint.io.flow import read_flow, write_flow
from flowinpaint.io.images import IMAGE_SUFFIXES, read_image
from flowinpaint.io.units import png_unit

Map = npt.NDArray[np.floating[Any]]


@with_max_bytes
def read_map(path: StrPath, *, max_bytes: int | None = None) -> Map:
    """Read a map (H, W), NaN where unknown; a 16-bit PNG holds 256 times the values, 0 for unknown.

    max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    path = existing_file(path)
    field = open_npy(path, "iuf") if path.suffix.lower() == ".npy" else read_flow(path, png_unit(path, "px/256"))[0]
    check_file(path, field.shape[2] != 1 and f"a map must have one channel, got {field.shape[2]}")
    return field[..., 0]


def write_map(path: StrPath, values: Map) -> None:
    """Write a map (H, W): in a .npy as (H, W), in other formats as a field of one channel."""
    if Path(path).suffix.lower() != ".npy":
        write_flow(path, values[..., None])
        return
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=False)
    write_bytes(Path(path), stream.getvalue())


@with_max_bytes
def read_probability(path: StrPath, *, max_bytes: int | None = None) -> Map:
    """Read a map (H, W) of probabilities; in an image, black is 0 and full scale, 255 or 65535, is 1.

    max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    path = Path(path)
    if path.suffix.lower() not in IMAGE_SUFFIXES:
        return read_map(path)
    picture = read_image(path)
    if picture.ndim == 3:
        if (picture != picture[..., :1]).any():
            raise FileFormatError(f"{path}: probabilities must be a grey image, got one in colour")
        picture = picture[..., 0]
    return picture.astype(np.float32) / np.float32(255 if picture.dtype == np.uint8 else 1)
