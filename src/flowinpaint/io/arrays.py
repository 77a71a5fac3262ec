"""Fields and masks in .npy and .npz files, read without unpickling and checked before memory is allocated."""

import io
import math
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, check_file
from flowinpaint.io.image_headers import MAX_EXPANSION, size_fault

Array = npt.NDArray[Any]
Flow = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

_ZIP_END = b"PK\x05\x06"


def read_npz(path: Path) -> Flow:
    """Read `flow` (H, W, C), NaN where `valid` (H, W), if present, is 0; a single array of any name is the flow."""
    data = path.read_bytes()
    with _decoding(path), zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        end = data.rfind(_ZIP_END) + 22 + len(archive.comment)
        check_file(path, end != len(data) and f"too long: its archive ends at byte {end} of {len(data)}")
        name = next(iter(names)) if len(names) == 1 else "flow"
        check_file(path, name not in names and f"none of its {len(names)} arrays is named flow")
        flow = _load_member(path, archive, names[name], "f", len(data))
        if name == "flow" and "valid" in names:
            valid, size = _load_member(path, archive, names["valid"], "biu", len(data)), flow.shape[:2]
            check_file(path, valid.shape != size and f"valid must have shape {size}, got {valid.shape}")
            flow[valid == 0] = np.nan
    return flow


def array_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    """Encode a field as .npy, NaN where not valid, or as .npz with `flow` and `valid`, by the suffix."""
    field = np.array(flow, order="C")
    field[~valid] = np.nan
    stream = io.BytesIO()
    if path.suffix.lower() == ".npy":
        np.save(stream, field, allow_pickle=False)
    else:
        np.savez(stream, flow=field, valid=valid)
    return stream.getvalue()


def open_npy(path: Path, kinds: str) -> Array:
    """Read a .npy file: a field (H, W, C) for the dtype kinds "f" and "iuf", a mask (H, W) for "biu"."""
    with _decoding(path), path.open("rb") as stream:
        return _load_npy(path, stream, path.stat().st_size, kinds)


def _load_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, kinds: str, size: int) -> Array:
    """Read one array from an archive of `size` bytes."""
    packed = info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    check_file(path, packed and f"{info.filename} has a compression that numpy does not write")
    forged = info.file_size > MAX_EXPANSION * min(info.compress_size, size)
    check_file(path, forged and f"truncated or forged: it cannot hold the {info.file_size} bytes it claims")
    with archive.open(info) as stream:
        return _load_npy(path, stream, info.file_size, kinds)


def _load_npy(path: Path, stream: IO[bytes], size: int, kinds: str) -> Array:
    """`open_npy` from a stream of `size` bytes."""
    old = np.lib.format.read_magic(stream) == (1, 0)
    read_header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if dtype.kind not in kinds or 0 in shape or len(shape) not in ((2, 3) if "f" in kinds else (2,)):
        types = "floating or integer" if kinds == "iuf" else "floating" if kinds == "f" else "bool or integer"
        wanted = f"{types} (H, W)" + (" or (H, W, C)" if "f" in kinds else "")
        raise FileFormatError(f"{path}: must hold {wanted}, got {dtype.name} {shape}")
    needed = stream.tell() + math.prod(shape) * dtype.itemsize
    check_file(path, size_fault(shape[1], shape[0], needed, size))
    stream.seek(0)
    array = np.lib.format.read_array(stream, allow_pickle=False)
    array = array.astype(array.dtype.newbyteorder("="), order="C")
    return array[..., None] if "f" in kinds and array.ndim == 2 else array


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn any error of numpy or zipfile over damaged bytes into a FileFormatError, and silence their warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except (FileFormatError, OSError):
        raise
    except Exception as error:
        fault = f"damaged, or not a {path.suffix} file ({type(error).__name__})"
        raise FileFormatError(f"{path}: {fault}") from error
