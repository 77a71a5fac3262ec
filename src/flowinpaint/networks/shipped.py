"""The trained weights that come with the package, and whether they are as they were shipped."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.networks.weights import WEIGHTS_SUFFIX

FOLDER = Path(__file__).parents[1] / "weights"
CHECKSUMS = "SHA256SUMS"
"""Beside the weights, as `sha256sum` writes it. New weights: replace the file, its line here, and its card."""


def shipped_file(method: str) -> Path:
    """The file of a method's weights."""
    return FOLDER / f"{method}{WEIGHTS_SUFFIX}"


def read_checksums(path: Path) -> dict[str, str]:
    """SHA-256 by name of file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def check_shipped(path: Path) -> None:
    """Raise MissingFileError or FileFormatError unless weights of the package are there and as they were shipped."""
    sums = path.with_name(CHECKSUMS)
    for file in (path, sums):
        if not file.is_file():
            raise MissingFileError(f"{file}: is part of flowinpaint and is missing; install flowinpaint again.")
    with path.open("rb") as weights:
        found = hashlib.file_digest(weights, "sha256").hexdigest()
    if found != read_checksums(sums).get(path.name):
        raise FileFormatError(
            f"{path}: is damaged, its SHA-256 is not the one in {CHECKSUMS}; install flowinpaint again."
        )
