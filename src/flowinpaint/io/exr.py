"""OpenEXR fields, where OpenCV is built with OpenEXR and the environment enables it."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io.arrays import Flow
from flowinpaint.io.budget import check_budget, check_expansion
from flowinpaint.io.image_headers import MAX_EXPANSION, size_fault
from flowinpaint.opencv import cv2, silenced

_PIXEL_BYTES = 12
"""Of three float32 channels; OpenCV reads no more."""
_MOST_ATTRIBUTES = 1000
_LONGEST_NAME = 256
_MAGIC = b"\x76\x2f\x31\x01"
_SWITCH = "OPENCV_IO_ENABLE_OPENEXR"
_BUILT = re.compile(r"^\s*OpenEXR:\s+(?!NO\b)\S", re.MULTILINE)


def exr_fault() -> str | None:
    """Why this OpenCV cannot read or write EXR files, as a phrase to append to "<file>: "; None if it can."""
    if not _BUILT.search(cv2.getBuildInformation()):
        return "this OpenCV cannot read or write EXR files; use a float .tif, .pfm or .npy"
    if os.environ.get(_SWITCH, "0").lower() not in ("1", "true", "on"):
        return f"OpenCV needs {_SWITCH}=1, set before Python starts, to read and write .exr"
    return None


def read_exr(path: Path) -> Flow:
    """Read an EXR with one or three channels as (H, W, C) float32."""
    if fault := exr_fault():
        raise InputError(f"{path}: {fault}")
    data, pixels = path.read_bytes(), None
    check_file(path, data[:4] != _MAGIC and "not an EXR file")
    try:
        width, height = _size(data)
    except (struct.error, ValueError):
        raise FileFormatError(f"{path}: truncated or damaged: its EXR header has no size") from None
    check_file(path, size_fault(width, height))
    check_budget(path, _PIXEL_BYTES * width * height)
    check_expansion(path, _PIXEL_BYTES * width * height, len(data), width * height)
    forged = 2 * width * height > MAX_EXPANSION * len(data)
    check_file(path, forged and f"truncated or forged: {len(data)} bytes cannot hold {width}x{height} pixels")
    with silenced(), suppress(cv2.error):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.shape[:2] != (height, width):
        raise FileFormatError(f"{path}: damaged: OpenCV cannot decode this EXR")
    field = pixels[..., None] if pixels.ndim == 2 else pixels[..., 2::-1]
    return np.ascontiguousarray(field, np.float32)


def _size(data: bytes) -> tuple[int, int]:
    """Width and height from the attribute dataWindow."""
    for name, value in _attributes(data):
        if name == b"dataWindow":
            left, top, right, bottom = struct.unpack("<4i", value)
            return right - left + 1, bottom - top + 1
    raise ValueError


def _attributes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 8
    for _ in range(_MOST_ATTRIBUTES):
        end = data.index(b"\0", position, position + _LONGEST_NAME)
        if end == position:
            return
        name, kind = data[position:end], data.index(b"\0", end + 1, end + 1 + _LONGEST_NAME)
        (length,) = struct.unpack_from("<i", data, kind + 1)
        position = kind + 5 + length
        if length < 0 or position > len(data):
            return
        yield name, data[kind + 5 : position]
