"""The header of .npy data.

numpy's own reader evaluates the header as Python code, which emits warnings for damaged ones and for those of Python 2.
Warnings can only be silenced for all threads of the process, so the header is read here.
"""

import re
import struct
from typing import IO, Any, NamedTuple

import numpy as np

_MAGIC = b"\x93NUMPY"
_LONGEST = 10_000
"""Bytes, as numpy limits it; an array of numbers needs about 120."""
_HEADER = re.compile(
    r"""\{ (?=.* 'descr' \s*:\s* (?P<type>'[^']*' | "[^"]*" | \[) )
        (?=.* 'fortran_order' \s*:\s* (?P<fortran>True|False) \b)
        (?=.* 'shape' \s*:\s* \( (?P<shape>[-\dL,\s]*) \) ) .* \} \s*""",
    re.VERBOSE | re.DOTALL,
)
_TYPE = re.compile(r"[<>|=]?[fiub]\d{1,2}")
_LENGTH = re.compile(r"-?\d{1,18}L?")
"""Python 2 wrote long integers with an L."""
_OTHER_TYPES = {"c": "complex", "O": "object", "U": "text", "S": "bytes", "M": "datetime64", "m": "timedelta64"}


class NpyHeader(NamedTuple):
    """Axes, order and type of an array; `dtype` is None for types other than real numbers."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any] | None
    type_name: str


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Read the header, so that the stream is at the data; ValueError if it is damaged."""
    start = stream.read(8)
    if start[:6] != _MAGIC or start[6:] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise ValueError("no .npy data of version 1, 2 or 3")
    count = "<H" if start[6] == 1 else "<I"
    (length,) = struct.unpack(count, stream.read(struct.calcsize(count)))
    data = stream.read(min(length, _LONGEST + 1))
    found = _HEADER.fullmatch(data.decode("utf-8" if start[6] == 3 else "latin-1"))
    if length > _LONGEST or len(data) < length or found is None:
        raise ValueError("damaged header")
    lengths = [part.strip() for part in found["shape"].split(",")]
    if not lengths[-1]:  # (), (3,) and (3, 4,)
        lengths.pop()
    if not all(map(_LENGTH.fullmatch, lengths)):
        raise ValueError("damaged shape")
    code = found["type"].strip("'\"")
    dtype = np.dtype(code) if _TYPE.fullmatch(code) else None
    name = dtype.name if dtype is not None else _OTHER_TYPES.get(code.lstrip("<>|=")[:1], "a structured type")
    shape = tuple(int(part.rstrip("L")) for part in lengths)
    return NpyHeader(shape, found["fortran"] == "True", dtype, name)
