"""User errors and warnings.

An error names the argument or file, the rule, and the value: "count must be at least 1, got 0".
"""

import reprlib
import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)
_LONGEST = 120
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxdict = 3, 8, 8, 8
_SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 60, 40, 60


class InputError(ValueError):
    """An argument has the wrong shape, type or content."""


class FileFormatError(ValueError):
    """A file exists but its content does not match its name or header."""


class MissingFileError(FileNotFoundError):
    """A required file does not exist."""


def check_file(path: Path, fault: str | bool | None) -> None:
    """Raise FileFormatError if a file has a fault, a phrase to append to its name."""
    if fault:
        raise FileFormatError(f"{path}: {fault}")


def shown(value: object) -> str:
    """A value for an error message, shortened; also for values that repr() refuses."""
    try:
        text = _SHORT.repr(value)
    except (ValueError, RecursionError):  # for example an integer with more digits than Python prints
        text = type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def sentence_of(error: Exception) -> str:
    """The message of an error, preceded by its type unless it is a user error."""
    return str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"


def warn_user(message: str) -> None:
    """Warn with the line of the first caller outside this package, so that each of the user's lines warns once."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    warnings.warn(message, stacklevel=level)
