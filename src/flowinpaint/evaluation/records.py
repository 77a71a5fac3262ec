"""Records of runs, one per sample, case and method, and the file that keeps them between evaluations."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from flowinpaint.config_parsing import build
from flowinpaint.data.folder import MaskKind
from flowinpaint.errors import FileFormatError, InputError, warn_user
from flowinpaint.evaluation.uncertainty import UncertaintyQuality
from flowinpaint.io import StrPath
from flowinpaint.io.publish import flush
from flowinpaint.io.text import LONGEST_LINE, checking_content, json_lines
from flowinpaint.masks.cases import INPUTS, PATTERNS, Case

if sys.platform != "win32":
    import fcntl


MOST_FAULTS = 1000
"""Most damaged lines of a file that is still read."""


@dataclass(frozen=True)
class RunKey:
    """All inputs of a run: runs with equal keys differ only in their seconds.

    density: the fraction of known pixels, None if `mask` is a pattern or an input. mask: the origin of the mask. crop:
    the side of the central part that is used, 0 for all. method: a name or weights file, perhaps with options (see
    `variants`), or the name of fields that another program computed. inputs: a hash of the image, the truth, and the
    files of the mask or the vectors. weights: a hash of the network's weights, of the source of a user's function, or
    of another program's field, else "". second: a hash of the second image if the method receives it, else "".
    """

    dataset: str
    sample: str
    density: float | None
    seed: int
    mask: MaskKind
    crop: int
    method: str
    parameters: dict[str, float | str]
    device: str
    inputs: str
    weights: str
    version: str
    second: str = ""

    def __post_init__(self) -> None:
        if (self.density is None) != (self.mask in PATTERNS or self.mask in INPUTS):
            raise InputError(f"density must be null for patterns and inputs only, got {self.density} of {self.mask!r}")
        for name, value in self.parameters.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"parameters.{name} must be a finite number, got {value}")

    @property
    def case(self) -> Case:
        """The density, the pattern or the input."""
        return next(c for c in (*PATTERNS, *INPUTS) if c == self.mask) if self.density is None else self.density

    @property
    def text(self) -> str:
        """The key as a string, for a dictionary."""
        return json.dumps(vars(self), sort_keys=True)


@dataclass(frozen=True)
class Measurement:
    """Errors of a filled field in px and per cent, and statistics of the run.

    epe: over all valid pixels, known ones included; epe_unknown: over the unknown ones, None if there are none.
    fl: per cent off by more than 3 px and 5 %; over_1, over_3: off by more than 1 and 3 px; all over the valid pixels.
    seconds: None for a field that another program computed.
    threads: number of PyTorch's threads, on which the seconds depend. given: the fraction of known pixels, None in
    files of old versions. uncertainty: quality of the method's predicted errors, if it predicts any.
    noise: the noise of the given vectors in px that the method estimated, if it did. wrong: for an input, the share of
    given vectors that are off by more than 3 px. inlier_auc: how well the method told these from the others, as an area
    under the ROC curve; None if it did not judge them, or if there is only one kind.
    """

    epe: float
    epe_unknown: float | None
    fl: float
    over_1: float
    over_3: float
    seconds: float | None
    iterations: int
    residual: float | None
    status: str
    threads: int
    given: float | None = None
    uncertainty: UncertaintyQuality | None = None
    noise: float | None = None
    wrong: float | None = None
    inlier_auc: float | None = None


@dataclass(frozen=True)
class Record:
    """A run with its measurement or the message of its error; notes are warnings."""

    key: RunKey
    measured: Measurement | None = None
    error: str = ""
    notes: list[str] = field(default_factory=list)


class RecordStore:
    """Records by key; each is immediately appended to a file of JSON lines.

    An incomplete last line, which a killed run leaves, is cut off. A complete line that is no record stays in the file;
    a warning names it and its run is repeated, so that one damaged line does not cost the others. A file with more than
    MOST_FAULTS of them is refused. durable: flush each record to disk.
    """

    def __init__(self, file: IO[bytes] | None = None, path: StrPath = "records", durable: bool = False) -> None:
        self._file, self._durable = file, durable
        self._records: dict[str, Record] = {}
        if file is None:
            return
        file.seek(0)
        faults: list[FileFormatError] = []
        for record in read_lines(Path(path), file):
            if isinstance(record, Record):
                self._records[record.key.text] = record
            else:
                faults.append(record)
                if len(faults) > MOST_FAULTS:
                    raise FileFormatError(f"{faults[0]}; at most {MOST_FAULTS} lines may be damaged, use another file")
        if _cut_incomplete_line(file):
            faults.pop()
        if faults:
            others = f" So were {len(faults) - 1} other lines." if len(faults) > 1 else ""
            warn_user(f"{faults[0]}; this line was ignored and its run is repeated.{others}")

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def find(self, key: RunKey) -> Record | None:
        """The successful record of a key; failed runs are tried again."""
        record = self._records.get(key.text)
        return None if record is None or record.measured is None else record

    def add(self, record: Record) -> Record:
        """Keep a record, in memory and on disk, and return it.

        A measurement with a number that is not finite, which no file may hold, becomes an error that names it.
        """
        try:
            build(Record, json.loads(json.dumps(asdict(record))))
        except InputError as error:
            record = Record(record.key, error=str(error), notes=record.notes)
        self._records[record.key.text] = record
        if self._file is not None:
            self._file.write(json.dumps(asdict(record), allow_nan=False).encode() + b"\n")
            self._file.flush()
            if self._durable:
                os.fsync(self._file.fileno())
        return record


@contextmanager
def open_store(path: StrPath | None, fresh: bool = False, durable: bool = False) -> Iterator[RecordStore]:
    """The store in a file, created if missing and emptied if fresh; None keeps records in memory only.

    durable: flush each record to disk. If the block raises before there is a record, the file is removed. A second run
    with the same file is refused. (Windows has no such lock; there both append line by line.)
    """
    if path is None:
        yield RecordStore()
        return
    with Path(path).open("a+b") as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"{path}: must not be in use by another run; wait, or use another path") from error
            if os.fstat(file.fileno()).st_nlink == 0:  # removed by the other run before it ended
                raise InputError(f"{path}: must not be in use by another run; try again")
        if fresh:
            file.truncate(0)
        if durable:
            flush(Path(path).parent)
        try:
            yield RecordStore(file, path, durable)
        except BaseException:
            if os.fstat(file.fileno()).st_size == 0 and os.name == "posix" and not Path(path).is_symlink():
                Path(path).unlink(missing_ok=True)
            raise


def read_lines(path: Path, file: IO[bytes]) -> Iterator[Record | FileFormatError]:
    """The record in each line that is not blank, or what is wrong with the line."""
    for number, values in json_lines(path, file):
        if isinstance(values, FileFormatError):
            yield values
            continue
        try:
            yield record_of(values, f"{path}: line {number}")
        except FileFormatError as error:
            yield error


def record_of(values: Any, place: str) -> Record:
    """The record whose `asdict` was written as JSON; place: what a FileFormatError names."""
    with checking_content(place):
        return build(Record, values)


def _cut_incomplete_line(file: IO[bytes]) -> bool:
    """Remove the end of a file after its last line break; whether there was any. The next record must not continue it.

    The lines have been read, so none is longer than LONGEST_LINE.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LONGEST_LINE))
    rest = len(file.read().rpartition(b"\n")[2])
    file.truncate(size - rest)
    return rest > 0
