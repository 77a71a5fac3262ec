"""The errors a user can meet. Each message is one sentence: the argument or file, what was given, what is taken."""

from pathlib import Path


class InputError(ValueError):
    """An argument has the wrong shape, type or content."""


class FileFormatError(ValueError):
    """A file exists but does not hold what its name or header says."""


class MissingFileError(FileNotFoundError):
    """A file that was asked for is not there."""


def check_file(path: Path, fault: str | bool | None) -> None:
    """Raise FileFormatError if a file has a fault: a phrase that fits behind its name."""
    if fault:
        raise FileFormatError(f"{path}: {fault}")


def sentence_of(error: Exception) -> str:
    """The message of an error, behind its type unless it is meant for users."""
    return str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
