"""User errors. A message names the argument or file, the rule, and the value: "count must be at least 1, got 0"."""

from pathlib import Path


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


def sentence_of(error: Exception) -> str:
    """The message of an error, preceded by its type unless it is a user error."""
    return str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
