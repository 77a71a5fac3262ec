"""Flow fields, masks and images on disk.

A flow is (H, W, C) floating point: displacements (C = 2), disparities or depths (C = 1), or C values of any
unit. In memory an unknown vector is NaN in all channels, whatever a format writes for it. What a header
claims is checked against the file before memory is taken for it.
"""

import os
import re
import secrets
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, MissingFileError, check_file
from flowinpaint.io.arrays import array_bytes, open_npy, read_npy, read_npz
from flowinpaint.io.images import decode_image, encode_image, png_layout, size_fault

StrPath = str | os.PathLike[str]
Array = npt.NDArray[Any]
Flow = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

FLOW_SUFFIXES = (".flo", ".png", ".pfm", ".npy", ".npz")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm")

_CHANNELS = {".flo": (2,), ".png": (1, 2), ".pfm": (1, 2, 3)}
_FLO_MAGIC = b"PIEH"  # the float32 202021.25
_FLO_LIMIT, _FLO_UNKNOWN = 1e9, 1e10
_PFM_HEADER = re.compile(rb"P([Ff])\s+(-?\d{1,10})\s+(-?\d{1,10})\s+([+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)\s")


@contextmanager
def atomic_path(path: StrPath) -> Iterator[Path]:
    """Yield a temporary file beside `path`, of its suffix, that takes its place if the block succeeds.

    If the block raises, the temporary file is removed and what was at `path` stays as it was.
    """
    _check_target(Path(path))
    target = Path(path).resolve()  # a link is written through, as open() does
    temporary = target.with_name(f".flowinpaint-{secrets.token_hex(8)}{Path(path).suffix}")
    temporary.open("xb").close()  # leaves the permissions to the umask, where tempfile would make them 0600
    try:
        if target.exists():
            shutil.copymode(target, temporary)
        yield temporary
        temporary.replace(target)
    except OSError as error:
        if error.filename is None and error.errno is not None:  # as on a full disk
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def read_flow(path: StrPath) -> tuple[Flow, Mask]:
    """Read a flow (H, W, C), NaN where unknown, and its validity (H, W); float32 but from .npy and .npz."""
    path = _existing(path)
    suffix = path.suffix.lower()
    check_file(path, suffix not in FLOW_SUFFIXES and f"a flow file ends in one of {', '.join(FLOW_SUFFIXES)}")
    flow, known = _FORMATS[suffix][0](path)
    valid: Mask = known & _in_every_channel(np.isfinite(flow))
    flow[~valid] = np.nan
    return flow, valid


def write_flow(path: StrPath, flow: Flow, valid: Mask | None = None) -> None:
    """Write a flow (H, W, C) as the suffix says, unknown where `valid` (H, W) is False or else not finite."""
    path = Path(path)
    if not isinstance(flow, np.ndarray) or not np.issubdtype(flow.dtype, np.floating):
        raise InputError(f"{path}: flow is {getattr(flow, 'dtype', type(flow))}, not a floating array")
    if flow.ndim != 3 or 0 in flow.shape:
        hint = ", use flow[..., None]" if flow.ndim == 2 else ""
        raise InputError(f"{path}: flow has shape {flow.shape}, not (H, W, C){hint}")
    check_flow_writable(path, flow.shape[2])
    finite = np.isfinite(flow)
    known: Mask = np.asarray(finite.all(axis=2) if valid is None else valid)
    if known.shape != flow.shape[:2] or known.dtype != np.bool_:
        raise InputError(f"{path}: valid is {known.dtype} {known.shape}, not bool {flow.shape[:2]}")
    _refuse(path, flow, known[..., None] & ~finite, "marked valid fits no format, mark it unknown")
    _write(path, _FORMATS[path.suffix.lower()][1](path, flow, known))


def check_flow_writable(path: StrPath, channels: int) -> None:
    """Raise InputError if a flow of so many channels cannot go to `path`, before it takes long to compute."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FLOW_SUFFIXES:
        raise InputError(f"{path}: a flow file ends in one of {', '.join(FLOW_SUFFIXES)}")
    if channels < 1 or channels not in _CHANNELS.get(suffix, (channels,)):
        held = " or ".join(map(str, _CHANNELS.get(suffix, ("1", "more"))))
        raise InputError(f"{path}: {suffix} holds {held} channels, not {channels}; .npy holds any number")
    _check_target(path)


def clip_to_format(path: StrPath, flow: Flow) -> Flow:
    """The flow (H, W, C) with its values brought into the range that the format of `path` holds."""
    if Path(path).suffix.lower() != ".png":
        return flow
    low, high = (-512, 65535 / 64 - 512) if flow.shape[2] == 2 else (1 / 256, 65535 / 256)
    return np.clip(flow, low, high)


def read_mask(path: StrPath) -> Mask:
    """Read a mask (H, W), True = known: not zero in any colour of an image, or in a .npy of bool or int."""
    path = _existing(path)
    if path.suffix.lower() == ".npy":
        return np.asarray(open_npy(path, "biu") != 0)
    pixels = decode_image(path, path.read_bytes())
    shades = pixels[(pixels != 0) & (pixels != pixels.max())].size
    check_file(path, shades > 0 and f"{shades} of its values are neither 0 nor the largest; a mask has just these two")
    return np.asarray((pixels.reshape(*pixels.shape[:2], -1) != 0).any(axis=2))


def write_mask(path: StrPath, mask: Mask) -> None:
    """Write a mask (H, W) bool as an 8-bit PNG, 255 = True."""
    mask = np.asarray(mask)
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{path}: a mask file ends in .png")
    if mask.ndim != 2 or mask.dtype != np.bool_:
        raise InputError(f"{path}: a mask is bool (H, W), not {mask.dtype} {mask.shape}")
    write_image(path, mask.astype(np.uint8) * np.uint8(255))


def read_image(path: StrPath) -> npt.NDArray[np.uint8] | npt.NDArray[np.float32]:
    """Read an image (H, W) grey or (H, W, 3) RGB without alpha: uint8 0..255, other depths float32 0..1."""
    path = _existing(path)
    pixels = decode_image(path, path.read_bytes())
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == np.uint16:
        return pixels.astype(np.float32) / np.float32(65535)
    if pixels.dtype.kind != "f" or not ((pixels >= 0) & (pixels <= 1)).all():
        found = f"it has {pixels.dtype} pixels from {pixels.min()} to {pixels.max()}"
        raise FileFormatError(f"{path}: {found}; taken are uint8, uint16 and floats from 0 to 1")
    return pixels.astype(np.float32)


def write_image(path: StrPath, image: npt.NDArray[np.uint8]) -> None:
    """Write a uint8 image (H, W) or (H, W, 3) RGB in the format of the suffix."""
    check_image_writable(path)
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.size == 0 or (image.ndim != 2 and image.shape[2:] != (3,)):
        raise InputError(f"{path}: image is {image.dtype} {image.shape}, not uint8 (H, W) or (H, W, 3)")
    _write(Path(path), encode_image(Path(path), image))


def check_image_writable(path: StrPath) -> None:
    """Raise InputError if an image cannot go to `path`, before it takes long to compute."""
    if Path(path).suffix.lower() not in IMAGE_SUFFIXES:
        raise InputError(f"{path}: an image file ends in one of {', '.join(IMAGE_SUFFIXES)}")
    _check_target(Path(path))


def make_folder(path: StrPath) -> Path:
    """Make a folder, unless it is there, before it takes long to fill it; InputError if it cannot be written to."""
    path = Path(path)
    check_folder_writable(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made ({error.strerror}); another folder is taken") from None
    return path


def check_folder_writable(path: StrPath) -> None:
    """Raise InputError if it is plain that no folder at `path` could be written to."""
    path = Path(path)
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise InputError(f"{there}: is a file; a folder to write to is taken")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{there}: you may not write to this folder; another one is taken")


def _existing(path: StrPath) -> Path:
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file")
    check_file(path, not path.is_file() and "this is a folder or a device, not a file")
    check_file(path, path.stat().st_size == 0 and "the file is empty")
    return path


def _check_target(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: this is a folder or a device, not a file to write")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: you may not write to the folder {path.parent}")


def _refuse(path: Path, flow: Flow, bad: Mask, why: str) -> None:
    if bad.any():
        raise InputError(f"{path}: the value {flow[bad][0]} {why}")


def _write(path: Path, data: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def _read_flo(path: Path) -> tuple[Flow, Mask]:
    with path.open("rb") as file:
        head = file.read(12)
    check_file(path, head[:4] != _FLO_MAGIC and f"it starts with {head[:4]!r}, a .flo with {_FLO_MAGIC!r}")
    check_file(path, len(head) < 12 and "truncated: it ends inside its header")
    width, height = struct.unpack("<ii", head[4:])
    check_file(path, size_fault(width, height, 12 + 8 * width * height, path.stat().st_size))
    # Not by OpenCV, which takes fifty times as long.
    flow = np.fromfile(path, "<f4", 2 * width * height, offset=12).reshape(height, width, 2).astype(np.float32)
    return flow, _in_every_channel(np.abs(flow) <= _FLO_LIMIT)


def _in_every_channel(condition: npt.NDArray[np.bool_]) -> Mask:
    """Where (H, W, C) holds in all channels; numpy's own reduction over a short last axis is slow."""
    return reduce(np.logical_and, np.moveaxis(condition, 2, 0))


def _flo_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    field = _float32(path, flow, valid, _FLO_UNKNOWN)
    bad = valid[..., None] & (np.abs(field) > _FLO_LIMIT)
    _refuse(path, flow, bad, "would mean unknown in a .flo; .npy holds it")
    # Not by OpenCV, whose writer reports success on a full disk.
    return _FLO_MAGIC + struct.pack("<ii", flow.shape[1], flow.shape[0]) + field.tobytes()


def _read_kitti(path: Path) -> tuple[Flow, Mask]:
    data = path.read_bytes()
    check_file(path, data[:4] != b"\x89PNG" and "this is not a PNG file")
    raw = decode_image(path, data)
    depth, colour = png_layout(data)
    if depth != 16 or colour not in (0, 2):
        found = f"a PNG of {depth} bits and colour type {colour} is a picture and no flow"
        raise FileFormatError(f"{path}: {found}; KITTI's have 16 bits, 3 channels for flow, 1 for disparity")
    if raw.ndim == 2:
        return raw[..., None].astype(np.float32) / np.float32(256), raw > 0
    return (raw[..., :2].astype(np.float32) - np.float32(2**15)) / np.float32(64), raw[..., 2] > 0


def _kitti_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    two = flow.shape[2] == 2
    with np.errstate(over="ignore"):
        exact = np.where(valid[..., None], flow, 1).astype(np.float64)
        levels = np.rint(exact * 64 + 2**15 if two else exact * 256)
    bad = (levels < 0) | (levels > 65535) | (not two and exact < 1 / 256)
    held = "flow, -512 to 511.984; .flo" if two else "disparity, 1/256 to 255.996; .pfm"
    _refuse(path, flow, bad, f"is outside KITTI {held} holds it")
    raw = np.where(valid[..., None], levels, 0).astype(np.uint16)
    return encode_image(path, np.dstack([raw, valid.astype(np.uint16)]) if two else raw[..., 0])


def _read_pfm(path: Path) -> tuple[Flow, Mask]:
    # OpenCV divides by the scale's magnitude, which the datasets do not mean, and turns the channels round.
    with path.open("rb") as file:
        match = _PFM_HEADER.match(file.read(128))
    if match is None or float(match[4]) == 0:
        raise FileFormatError(f"{path}: a PFM starts with PF or Pf, width, height and scale, this does not")
    width, height, channels = int(match[2]), int(match[3]), 3 if match[1] == b"F" else 1
    count, start = width * height * channels, match.end()
    check_file(path, size_fault(width, height, start + 4 * count, path.stat().st_size))
    raw = np.fromfile(path, ">f4" if float(match[4]) > 0 else "<f4", count, offset=start)
    flow = raw.astype(np.float32).reshape(height, width, channels)[::-1]
    if channels == 3 and (flow[..., 2] == 0).all():
        flow = flow[..., :2]
    return flow.copy(), np.ones((height, width), np.bool_)


def _pfm_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    field = _float32(path, flow, valid, np.inf)
    if flow.shape[2] == 3 and (field[..., 2] == 0).all():
        raise InputError(f"{path}: a third channel of 0.0 counts as none in a .pfm; .npy holds it")
    if flow.shape[2] == 2:
        field = np.dstack([field, np.zeros_like(field[..., 0])])
    header = f"P{'f' if flow.shape[2] == 1 else 'F'}\n{flow.shape[1]} {flow.shape[0]}\n-1.0\n"
    return header.encode() + field[::-1].tobytes()


def _float32(path: Path, flow: Flow, valid: Mask, unknown: float) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        field = flow.astype("<f4")
    _refuse(path, flow, valid[..., None] & ~np.isfinite(field), "does not fit into float32; .npy holds it")
    field[~valid] = unknown
    return field


_FORMATS: dict[str, tuple[Callable[[Path], tuple[Flow, Mask]], Callable[[Path, Flow, Mask], bytes]]] = {
    ".flo": (_read_flo, _flo_bytes),
    ".png": (_read_kitti, _kitti_bytes),
    ".pfm": (_read_pfm, _pfm_bytes),
    ".npy": (read_npy, array_bytes),
    ".npz": (read_npz, array_bytes),
}
