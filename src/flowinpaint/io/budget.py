"""The byte budget of readers: the most bytes that one file may have and may be decoded to.

A file that needs more raises FileFormatError before memory is allocated. The budget is, in this order: the argument
`max_bytes` of the reader, the environment variable FLOWINPAINT_MAX_BYTES (which --max-bytes sets), DEFAULT.

A small file must not keep a reader busy either: above the size of an 8K frame, decoded data may have at most
EXPANSION times the bytes of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from flowinpaint.errors import FileFormatError, InputError

DEFAULT = 2**29
"""512 MiB: an 8K frame (8192 x 4320) of three float32 channels has 405 MiB."""
VARIABLE = "FLOWINPAINT_MAX_BYTES"
ALLOW_MORE = f"pass max_bytes, --max-bytes or {VARIABLE} to allow more"
"""The end of messages."""
EXPANSION = 64
"""Most decoded bytes per byte of a file that is larger than an 8K frame. Photographs have 2 to 30."""

P = ParamSpec("P")
R = TypeVar("R")

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
        raise FileFormatError(f"{path}: must have at most {budget} bytes, got {needed} bytes {what}; {ALLOW_MORE}")


def check_expansion(path: Path, decoded: int, packed: int, pixels: int = 0) -> None:
    """FileFormatError if a file of `packed` bytes expands too much for its size.

    Nearly empty masks and sparse fields shrink to a thousandth, so up to an 8K frame any ratio passes: 9/16 of the
    budget (288 MiB of 512 MiB; a flow has 270 MiB), and one pixel per 15 bytes of the budget (35.8 million; 8K has
    35.4 million).
    """
    budget = byte_budget()
    if (decoded > budget * 9 // 16 or pixels > budget // 15) and decoded > EXPANSION * packed:
        raise FileFormatError(
            f"{path}: must expand to at most {EXPANSION} times its size above that of an 8K frame, got {packed} bytes "
            f"that expand to {decoded}; pass a larger max_bytes, --max-bytes or {VARIABLE} if you trust it"
        )


def with_max_bytes(reader: Callable[P, R]) -> Callable[P, R]:
    """Let a reader run with the budget that its keyword `max_bytes` names; None changes nothing."""

    @wraps(reader)
    def read(*args: P.args, **keywords: P.kwargs) -> R:
        chosen: Any = keywords.get("max_bytes")
        with reading(chosen):
            return reader(*args, **keywords)

    return read
