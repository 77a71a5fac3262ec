"""Fields and masks in .npy and .npz files, read without unpickling and checked before memory is allocated."""

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, check_file
from flowinpaint.io.budget import check_budget, check_expansion
from flowinpaint.io.image_headers import MAX_EXPANSION, size_fault
from flowinpaint.io.npy_header import read_npy_header

Array = npt.NDArray[Any]
Flow = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

MOST_CHANNELS = 1024
MOST_MEMBERS = 1000
_ZIP_END, _ZIP_MEMBER = b"PK\x05\x06", b"PK\x01\x02"


class Npz(NamedTuple):
    """An open .npz archive of `size` bytes, and its members by the names of their arrays.

    decoded: the bytes of each array that was read; the budget holds for all of them together.
    """

    path: Path
    archive: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo]
    size: int
    decoded: list[int]

    def load(self, name: str, kinds: str, dimensions: tuple[int, ...] | None = None) -> Array:
        """Read one array; see `_load_npy`."""
        info = self.members[name]
        packed = info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        check_file(self.path, packed and f"{info.filename} must be stored or deflated, as numpy writes it")
        forged = info.file_size > MAX_EXPANSION * min(info.compress_size, self.size)
        check_file(self.path, forged and f"truncated or forged: it cannot hold the {info.file_size} bytes it claims")
        self.decoded.append(info.file_size)
        check_budget(self.path, sum(self.decoded))
        with self.archive.open(info) as stream:
            return _load_npy(self.path, stream, info.file_size, kinds, dimensions)


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open an archive; errors of numpy and zipfile in the block become FileFormatErrors."""
    data = path.read_bytes()
    check_file(path, data.count(_ZIP_MEMBER) > MOST_MEMBERS and f"a .npz must have at most {MOST_MEMBERS} arrays")
    with _decoding(path), zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        end = data.rfind(_ZIP_END) + 22 + len(archive.comment)
        check_file(path, end != len(data) and f"too long: its archive ends at byte {end} of {len(data)}")
        check_expansion(path, sum(info.file_size for info in archive.infolist()), len(data))
        yield Npz(path, archive, members, len(data), [])


def read_npz(path: Path) -> Flow:
    """Read `flow` (H, W, C), NaN where `valid` (H, W), if present, is 0; a single array of any name is the flow."""
    with open_npz(path) as npz:
        name = next(iter(npz.members)) if len(npz.members) == 1 else "flow"
        check_file(path, name not in npz.members and f"one of its {len(npz.members)} arrays must be named flow")
        flow = npz.load(name, "f")
        if name == "flow" and "valid" in npz.members:
            valid, size = npz.load("valid", "biu"), flow.shape[:2]
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
        np.savez(stream, flow=field, valid=np.ascontiguousarray(valid))
    return stream.getvalue()


def open_npy(path: Path, kinds: str) -> Array:
    """Read a .npy file: a field (H, W, C) for the dtype kinds "f" and "iuf", a mask (H, W) for "biu"."""
    with _decoding(path), path.open("rb") as stream:
        return _load_npy(path, stream, path.stat().st_size, kinds)


def _load_npy(path: Path, stream: IO[bytes], size: int, kinds: str, dimensions: tuple[int, ...] | None = None) -> Array:
    """`open_npy` from a stream of `size` bytes; with `dimensions`, an array with one of these numbers of axes."""
    shape, fortran_order, dtype, type_name = read_npy_header(stream)
    allowed = dimensions or ((2, 3) if "f" in kinds else (2,))
    if dtype is None or dtype.kind not in kinds or 0 in shape or len(shape) not in allowed:
        types = {"iuf": "floating or integer", "f": "floating", "biuf": "real"}.get(kinds, "bool or integer")
        sizes = " (H, W)" + (" or (H, W, C)" if "f" in kinds else "")
        wanted = types + (sizes if dimensions is None else f" with {' or '.join(map(str, dimensions))} dimensions")
        raise FileFormatError(f"{path}: must hold {wanted}, got {type_name} {shape}")
    many = dimensions is None and math.prod(shape[2:]) > MOST_CHANNELS
    check_file(path, many and f"a field must have at most {MOST_CHANNELS} channels, got {shape[-1]}")
    needed = stream.tell() + math.prod(shape) * dtype.itemsize
    check_budget(path, needed)
    height = shape[0] if dimensions is None else math.prod(shape) // shape[1]
    check_file(path, size_fault(shape[1], height, needed, size))
    values = np.frombuffer(stream.read(needed - stream.tell()), dtype)
    array = values.reshape(shape[::-1]).T if fortran_order else values.reshape(shape)
    array = array.astype(dtype.newbyteorder("="), order="C")
    return array[..., None] if dimensions is None and "f" in kinds and array.ndim == 2 else array


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn any error of numpy or zipfile over damaged bytes into a FileFormatError."""
    try:
        yield
    except (FileFormatError, OSError):
        raise
    except Exception as error:
        fault = f"damaged, or not a {path.suffix} file ({type(error).__name__})"
        raise FileFormatError(f"{path}: {fault}") from error
