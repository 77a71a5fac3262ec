"""Safetensors files from anywhere: weights, checkpoints and banks of pictures.

The size of the header is checked before it is parsed, and names, types and shapes of the tensors can be checked before
any is read. A tensor needs the memory that it has in the file, so no small file becomes a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from flowinpaint.errors import FileFormatError, check_file
from flowinpaint.io.files import existing_file

LARGEST_HEADER = 2**23
"""100 bytes for each of more than 80,000 tensors."""
_LENGTH_BYTES = 8


class TensorFile:
    """An open file: its metadata, and the type (such as "F32") and shape of each tensor by name."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.metadata: dict[str, str] = file.metadata() or {}
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        self.dtypes: dict[str, str] = {name: part.get_dtype() for name, part in slices.items()}
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(part.get_shape()) for name, part in slices.items()}

    def read(self) -> dict[str, Tensor]:
        """All tensors, on the CPU."""
        return {name: self._file.get_tensor(name) for name in self.shapes}


@contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """Open a safetensors file; FileFormatError if it is damaged or not complete."""
    with existing_file(path, whole=False).open("rb") as file:
        header = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    room = path.stat().st_size - _LENGTH_BYTES
    short = room <= 0 or header > room
    check_file(path, short and f"truncated: its header must have {header} bytes, got {max(room, 0)}")
    large = header > LARGEST_HEADER
    check_file(path, large and f"must have a header of at most {LARGEST_HEADER} bytes, got {header}")
    try:
        with safe_open(path, framework="pt") as opened:
            yield TensorFile(opened)
    except SafetensorError as error:
        raise FileFormatError(f"{path}: not a readable safetensors file: {error}") from error
    except MemoryError as error:  # no byte budget: checkpoints of large networks have gigabytes
        raise FileFormatError(f"{path}: must fit into memory, got {room + _LENGTH_BYTES} bytes") from error
