"""What was measured: one record per sample, case and method, and the file that keeps them between runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from flowinpaint.data.folder import MaskKind
from flowinpaint.errors import InputError
from flowinpaint.evaluation.foresight import Foresight
from flowinpaint.io import StrPath
from flowinpaint.masks.cases import PATTERNS, Case

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True)
class RunKey:
    """All that a result depends on. Two runs of the same key give the same record, but for the seconds.

    inputs: a hash of the image, truth and mask files; weights: one of the network's weights, "" without any.
    crop: the side of the middle part that was used, 0 for all. density: the share of pixels given, None if mask, which
    says where the mask comes from, is a pattern.
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

    @property
    def case(self) -> Case:
        """The density or the pattern."""
        if self.density is not None:
            return self.density
        return next(pattern for pattern in PATTERNS if pattern == self.mask)

    @property
    def text(self) -> str:
        """The key as a string, for a dictionary."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Measurement:
    """Errors of a filled field in px and per cent, and how it came about.

    epe: over all valid pixels, the given ones included; epe_unknown: over those not given, None if all are.
    fl: per cent off by more than 3 px and 5 %; over_1, over_3: off by more than 1 and 3 px. All three over all valid.
    threads: those of PyTorch, which the seconds depend on. given: the share of all pixels whose vector was given, None
    in files of versions that did not keep it. foresight: how well a method foresaw its errors, if it does.
    """

    epe: float
    epe_unknown: float | None
    fl: float
    over_1: float
    over_3: float
    seconds: float
    iterations: int
    residual: float | None
    status: str
    threads: int
    given: float | None = None
    foresight: Foresight | None = None


@dataclass(frozen=True)
class Record:
    """A key with what was measured, or with the sentence of the error that came instead; notes are warnings."""

    key: RunKey
    measured: Measurement | None = None
    error: str = ""
    notes: list[str] = field(default_factory=list)


class RecordStore:
    """Records by key, each appended to a file of JSON lines at once."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file = file
        self._records: dict[str, Record] = {}
        if file is not None:
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            # A run that was killed may have left half a line, to which the next record must not be glued.
            if lines and not lines[-1].endswith(b"\n"):
                file.truncate(sum(map(len, lines[:-1])))
            for line in lines:
                with suppress(ValueError, TypeError, KeyError):
                    record = record_of(json.loads(line))
                    self._records[record.key.text] = record

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def find(self, key: RunKey) -> Record | None:
        """The record of a key if it is there and tells of no failure: those are tried again."""
        record = self._records.get(key.text)
        return None if record is None or record.measured is None else record

    def add(self, record: Record) -> None:
        """Keep a record, in memory and on disk."""
        self._records[record.key.text] = record
        if self._file is not None:
            self._file.write(json.dumps(asdict(record)).encode() + b"\n")
            self._file.flush()


@contextmanager
def open_store(path: StrPath | None, fresh: bool = False) -> Iterator[RecordStore]:
    """The store in a file, which is made if need be and emptied if fresh; None keeps nothing on disk.

    A second run with the same file is refused. (Windows has no such lock; there the two append line by line.)
    """
    if path is None:
        yield RecordStore()
        return
    with Path(path).open("a+b") as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"{path}: another run is writing to it; wait for it, or name another place") from error
        if fresh:
            file.truncate(0)
        yield RecordStore(file)


def record_of(values: dict[str, Any]) -> Record:
    """The record whose `asdict` was written as JSON."""
    measured = values["measured"]
    if measured is not None:
        foresight = measured.get("foresight")
        measured = Measurement(**measured | {"foresight": foresight and Foresight.of_json(foresight)})
    return Record(RunKey(**values["key"]), measured, values["error"], values["notes"])
