"""Flow fields in .flo, KITTI's .png, .pfm, .npy, .npz and float .tif files.

A flow is a floating array (H, W, C): displacements (C = 2), disparities or depths (C = 1), or C values of any
unit. In memory an unknown vector is NaN in all channels, for every file format. A 16-bit PNG of one channel holds
levels, whose unit the caller names; the other formats hold the values themselves. Headers are checked against the
file's size before memory is allocated.
"""

import re
import struct
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from flowinpaint.arguments.arrays import field_of, map_of
from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io.arrays import Array, Flow, Mask, array_bytes, open_npy, read_npz
from flowinpaint.io.budget import check_budget, with_max_bytes
from flowinpaint.io.exr import exr_fault, read_exr
from flowinpaint.io.files import StrPath, check_output, existing_file, write_bytes
from flowinpaint.io.image_headers import image_kind, png_layout, size_fault
from flowinpaint.io.images import decode_image, encode_image
from flowinpaint.io.units import LEVELS, Unit, check_unit, levels_of, unit_value, value_range, values_of

FLOW_SUFFIXES = (".flo", ".png", ".pfm", ".npy", ".npz", ".tif", ".tiff")

_CHANNELS = {".flo": (2,), ".png": (1, 2), ".pfm": (1, 2, 3), ".tif": (1, 3), ".tiff": (1, 3), ".exr": (1, 3)}
LARGEST_FLOW = LEVELS / 64 - 512
"""The largest component that KITTI's PNG can hold."""
_PNG_COLOURS = {0: "grey", 2: "RGB", 3: "palette colours", 4: "grey with alpha", 6: "RGB with alpha"}
_FEW_CHANNELS, _ROWS = 8, 16
_FLO_MAGIC = b"PIEH"  # the float32 202021.25
_FLO_LIMIT, _FLO_UNKNOWN = 1e9, 1e10
_PFM_HEADER = re.compile(rb"P([Ff])\s+(-?\d{1,10})\s+(-?\d{1,10})\s+([+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)\s")


@with_max_bytes
def read_flow(path: StrPath, unit: Unit | None = None, *, max_bytes: int | None = None) -> tuple[Flow, Mask]:
    """Read a flow (H, W, C), NaN where unknown, and its validity (H, W); float32 except from .npy and .npz.

    unit: of a 16-bit PNG of one channel, which needs one: "m/256" (KITTI depth), "mm" (RealSense, Kinect, NYU), "cm",
    "m", "px/256" (KITTI disparity), "px", or the value of one level. Values are in metres or px; level 0 is unknown.
    max_bytes: the most bytes that the file may have and may be decoded to; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    path = existing_file(path)
    suffix = path.suffix.lower()
    check_file(path, suffix not in _FORMATS and f"must end in one of {', '.join(FLOW_SUFFIXES)}")
    if unit is not None:
        unit_value(unit)
    if unit is not None and suffix != ".png":
        raise InputError(f"{path}: unit must be None for a {suffix}, which holds the values themselves, got {unit!r}")
    flow = _read_png(path, unit) if suffix == ".png" else _FORMATS[suffix][0](path)
    valid = in_every_channel(np.isfinite(flow))
    _forget(flow, ~valid)
    return flow, valid


def in_every_channel(condition: Mask) -> Mask:
    """`condition.all(axis=2)` of (H, W, C), which is slow in numpy over a short last axis."""
    if condition.shape[2] > _FEW_CHANNELS:
        return np.asarray(condition.all(axis=2))
    return reduce(np.logical_and, np.moveaxis(condition, 2, 0))


def _forget(flow: Flow, unknown: Mask) -> None:
    """Set unknown vectors of (H, W, C) to NaN; `flow[unknown] = np.nan` takes 20 times as long if they are many."""
    if flow.shape[2] > _FEW_CHANNELS:
        flow[unknown] = np.nan
        return
    for channel in np.moveaxis(flow, 2, 0):
        np.copyto(channel, np.nan, where=unknown)


def write_flow(path: StrPath, flow: Any, valid: Any = None, unit: Unit | None = None) -> None:
    """Write a flow (H, W, C) or (H, W) in the format of the suffix, unknown where `valid` (H, W) is False.

    The flow may be an array, a tensor or a DataArray, as `inpaint` returns it. Without `valid`, non-finite vectors are
    unknown. unit: of a 16-bit PNG of one channel, as in `read_flow`; the other formats store the values themselves.
    """
    path = Path(path)
    flow = field_of("flow", flow)
    if not np.issubdtype(flow.dtype, np.floating):
        raise InputError(f"{path}: flow must be a floating array, got {flow.dtype}")
    if 0 in flow.shape:
        raise InputError(f"{path}: flow must have a non-empty shape (H, W, C), got {flow.shape}")
    check_flow_writable(path, flow.shape[2], unit)
    finite = np.isfinite(flow)
    known: Mask = np.asarray(finite.all(axis=2) if valid is None else map_of("valid", valid))
    if known.shape != flow.shape[:2] or known.dtype != np.bool_:
        raise InputError(f"{path}: valid must be bool {flow.shape[:2]}, got {known.dtype} {known.shape}")
    _refuse(path, flow, known[..., None] & ~finite, "known values must be finite", "set valid to False there")
    if unit is not None and path.suffix.lower() == ".png" and flow.shape[2] == 1:
        data = _depth_bytes(path, flow, known, unit)
    else:
        data = _FORMATS[path.suffix.lower()][1](path, flow, known)
    write_bytes(path, data)


def check_flow_writable(path: StrPath, channels: int, unit: Unit | None = None) -> None:
    """Raise InputError if a flow of this many channels and unit cannot be written to `path`; its folder may be new."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise InputError(f"{path}: must end in one of {', '.join(FLOW_SUFFIXES)}")
    if channels < 1 or channels not in _CHANNELS.get(suffix, (channels,)):
        held = " or ".join(map(str, _CHANNELS.get(suffix, ("1", "more"))))
        raise InputError(f"{path}: {suffix} must have {held} channels, got {channels}; use .npy for others")
    if suffix == ".exr" and (fault := exr_fault()):
        raise InputError(f"{path}: {fault}")
    if suffix == ".png" and channels == 1:
        check_unit(path, unit)
    elif unit is not None:
        unit_value(unit)
    check_output(path)


def clip_to_format(path: StrPath, flow: Flow, unit: Unit | None = None) -> Flow:
    """Clip a flow (H, W, C) to the range that the format of `path` can store in this unit."""
    if Path(path).suffix.lower() != ".png":
        return flow
    low, high = (-512, LARGEST_FLOW) if flow.shape[2] == 2 else value_range(check_unit(path, unit))
    return np.clip(flow, low, high)


def _refuse(path: Path, flow: Flow, bad: Mask, rule: str, remedy: str) -> None:
    if bad.any():
        raise InputError(f"{path}: {rule}, got {flow[bad][0]}; {remedy}")


def _read_flo(path: Path) -> Flow:
    with path.open("rb") as file:
        head = file.read(12)
    check_file(path, head[:4] != _FLO_MAGIC and f"a .flo must start with {_FLO_MAGIC!r}, got {head[:4]!r}")
    check_file(path, len(head) < 12 and "truncated: it ends inside its header")
    width, height = struct.unpack("<ii", head[4:])
    check_file(path, size_fault(width, height, 12 + 8 * width * height, path.stat().st_size))
    check_budget(path, 8 * width * height)
    # OpenCV takes fifty times as long.
    flow = np.fromfile(path, "<f4", 2 * width * height, offset=12).reshape(height, width, 2).astype(np.float32)
    np.copyto(flow, np.nan, where=np.abs(flow) > _FLO_LIMIT)  # in place: np.where takes four times as long
    return flow


def _flo_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    field = _float32(path, flow, valid, _FLO_UNKNOWN)
    bad = valid[..., None] & (np.abs(field) > _FLO_LIMIT)
    _refuse(path, flow, bad, "a .flo must have values up to 1e9", "use .npy")
    # OpenCV's writer reports success on a full disk.
    return _FLO_MAGIC + struct.pack("<ii", flow.shape[1], flow.shape[0]) + field.tobytes()


def _read_png(path: Path, unit: Unit | None) -> Flow:
    data = path.read_bytes()
    check_file(path, data[:4] != b"\x89PNG" and "not a PNG file")
    raw = decode_image(path, data)
    depth, colour = png_layout(data)
    if depth != 16 or colour not in (0, 2):
        raise FileFormatError(
            f"{path}: a field PNG must have 16 bits, in RGB for flow and in grey for depth, got {depth} bits in "
            f"{_PNG_COLOURS.get(colour, 'an unknown colour type')}"
        )
    if raw.ndim == 2:
        check_budget(path, 4 * raw.size)
        return values_of(raw, check_unit(path, unit))
    check_budget(path, 8 * raw.shape[0] * raw.shape[1])
    flow = np.empty((*raw.shape[:2], 2), np.float32)
    for top in range(0, len(raw), _ROWS):  # a copy of a whole 8K flow would need 270 MiB, and three times as long
        rows = raw[top : top + _ROWS]
        unknown = rows[..., 2] == 0
        for channel in (0, 1):
            values = rows[..., channel].astype(np.float32)
            values -= np.float32(2**15)
            values /= np.float32(64)
            np.copyto(values, np.nan, where=unknown)
            flow[top : top + _ROWS, :, channel] = values
    return flow


def _kitti_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    with np.errstate(over="ignore"):
        levels = np.rint(np.where(valid[..., None], flow, 0).astype(np.float64) * 64 + 2**15)
    bad = (levels < 0) | (levels > LEVELS)
    _refuse(path, flow, bad, f"a KITTI PNG must have values from -512 to {LARGEST_FLOW:.3f}", "use .flo")
    raw = np.where(valid[..., None], levels, 0).astype(np.uint16)
    return encode_image(path, np.dstack([raw, valid.astype(np.uint16)]))


def _depth_bytes(path: Path, flow: Flow, valid: Mask, unit: Unit) -> bytes:
    step = check_unit(path, unit)
    levels, bad = levels_of(flow, valid, step)
    low, high = value_range(step)
    _refuse(path, flow, bad, f"a 16-bit PNG in {unit} must have values from {low:.6g} to {high:.6g}", "use .pfm")
    return encode_image(path, levels)


def _read_tiff(path: Path) -> Flow:
    data = path.read_bytes()
    check_file(path, image_kind(data) != "TIFF" and "not a TIFF file")
    raw = decode_image(path, data)
    if raw.dtype != np.float32:
        raise FileFormatError(f"{path}: a field TIFF must have float32 values, got {raw.dtype}")
    return raw[..., None] if raw.ndim == 2 else raw


def _float_image_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    field = _float32(path, flow, valid, np.nan)
    return encode_image(path, field[..., 0] if flow.shape[2] == 1 else field)


def _read_pfm(path: Path) -> Flow:
    # OpenCV divides by the scale's magnitude, which the data sets do not intend, and reverses the channels.
    with path.open("rb") as file:
        match = _PFM_HEADER.match(file.read(128))
    if match is None or float(match[4]) == 0:
        raise FileFormatError(f"{path}: a PFM must start with PF or Pf, width, height and scale")
    width, height, channels = int(match[2]), int(match[3]), 3 if match[1] == b"F" else 1
    count, start = width * height * channels, match.end()
    check_file(path, size_fault(width, height, start + 4 * count, path.stat().st_size))
    check_budget(path, 4 * count)
    raw = np.fromfile(path, ">f4" if float(match[4]) > 0 else "<f4", count, offset=start)
    flow = raw.astype(np.float32).reshape(height, width, channels)[::-1]
    if channels == 3 and (flow[..., 2] == 0).all():
        flow = flow[..., :2]
    return flow.copy()


def _pfm_bytes(path: Path, flow: Flow, valid: Mask) -> bytes:
    field = _float32(path, flow, valid, np.inf)
    if flow.shape[2] == 3 and (field[..., 2] == 0).all():
        raise InputError(f"{path}: a .pfm cannot hold a third channel of zeros, which means two channels; use .npy")
    if flow.shape[2] == 2:
        field = np.dstack([field, np.zeros_like(field[..., 0])])
    header = f"P{'f' if flow.shape[2] == 1 else 'F'}\n{flow.shape[1]} {flow.shape[0]}\n-1.0\n"
    return header.encode() + field[::-1].tobytes()


def _float32(path: Path, flow: Flow, valid: Mask, unknown: float) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        field = flow.astype("<f4")
    _refuse(path, flow, valid[..., None] & ~np.isfinite(field), "values must fit into float32", "use .npy")
    field[~valid] = unknown
    return field


_FORMATS: dict[str, tuple[Callable[[Path], Flow], Callable[[Path, Flow, Mask], bytes]]] = {
    ".flo": (_read_flo, _flo_bytes),
    ".png": (partial(_read_png, unit=None), _kitti_bytes),
    ".pfm": (_read_pfm, _pfm_bytes),
    ".npy": (partial(open_npy, kinds="f"), array_bytes),
    ".npz": (read_npz, array_bytes),
    ".tif": (_read_tiff, _float_image_bytes),
    ".tiff": (_read_tiff, _float_image_bytes),
    ".exr": (read_exr, _float_image_bytes),  # not in FLOW_SUFFIXES: most builds of OpenCV lack it
}
