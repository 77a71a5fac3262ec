"""The byte budget of readers: the most bytes that one file may have and may be decoded to.

A file that needs more raises FileFormatError before memory is allocated. The budget is, in this order: the argument
`max_bytes` of the reader, the environment variable FLOWINPAINT_MAX_BYTES (which --max-bytes sets), DEFAULT.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from flowinpaint.errors import FileFormatError, InputError

DEFAULT = 2**29
"""512 MiB: an 8K frame (8192 x 4320) of three float32 channels has 405 MiB."""
VARIABLE = "FLOWINPAINT_MAX_BYTES"

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d{1,18})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_chosen: ContextVar[int | None] = ContextVar("max_bytes", default=None)


def parse_bytes(text: str, name: str = VARIABLE) -> int:
    """The number of bytes in a text such as 1500000, 512M or 2GiB; K, M, G and T are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise InputError(f"{name} must be a number of bytes above 0, such as 512M or 2G, got {text[:40]!r}")
    return int(match[1]) * _UNITS[match[2].upper()]


def byte_budget() -> int:
    """The budget that holds here."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    text = os.environ.get(VARIABLE)
    return parse_bytes(text) if text else DEFAULT


@contextmanager
def reading(max_bytes: int | None) -> Iterator[None]:
    """Let `byte_budget` be `max_bytes` in the block, in this thread; None changes nothing."""
    if max_bytes is not None and (isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1):
        raise InputError(f"max_bytes must be an integer of at least 1, or None, got {max_bytes!r}")
    token = _chosen.set(_chosen.get() if max_bytes is None else max_bytes)
    try:
        yield
    finally:
        _chosen.reset(token)


def check_budget(path: Path, needed: int, what: str = "decoded") -> None:
    """FileFormatError if `needed` bytes are more than the budget. what: the state in which a file needs them."""
    if needed > (budget := byte_budget()):
        raise FileFormatError(
            f"{path}: must need at most {budget} bytes, got {needed} bytes {what}; pass max_bytes, --max-bytes or "
            f"{VARIABLE} to allow more"
        )
