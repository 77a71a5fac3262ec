"""Known runs and filled fields: those of this reproduction, and those of other machines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.evaluation.records import Record, RecordStore, RunKey, open_store, record_of
from flowinpaint.io import atomic_path, make_folder
from flowinpaint.viz.colours import Field

RECORDS = "records.jsonl"
FIELDS = "fields"
"""The folder of filled fields, next to the records."""


def identity(key: RunKey, *, any_device: bool = False) -> str:
    """The part of a key that identifies a run wherever its weights lay, and if asked on any device."""
    return replace(key, method="" if key.weights else key.method, device="" if any_device else key.device).text


class Records:
    """Successful runs: of this reproduction on the same device, or of other machines on any device."""

    def __init__(self, store: RecordStore, others: Sequence[Record] = ()) -> None:
        self.store = store
        self._own = {identity(record.key): record for record in store if record.measured is not None}
        self._others = {identity(r.key, any_device=True): r for r in reversed(others) if r.measured is not None}

    def find(self, key: RunKey) -> Record | None:
        """The record of a successful run, or None."""
        return self._own.get(identity(key)) or self._others.get(identity(key, any_device=True))

    def add(self, record: Record) -> None:
        """Keep a record, in memory and on disk."""
        self.store.add(record)
        if record.measured is not None:
            self._own[identity(record.key)] = record


@contextmanager
def open_records(out: Path, others: Sequence[Path] = ()) -> Iterator[Records]:
    """The records in a folder, locked against other processes, and in other machines' files."""
    known = [record for path in others for record in read_records(path)]
    with open_store(make_folder(out) / RECORDS) as store:
        yield Records(store, known)


def read_records(path: Path) -> list[Record]:
    """The records in a file of JSON lines."""
    if not path.is_file():
        raise MissingFileError(f"--records must be the {RECORDS} of a reproduction; {path} does not exist.")
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(record_of(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise FileFormatError(f"--records: {path}: line {number} is not the record of a run.") from error
    return records


@dataclass(frozen=True)
class FieldStore:
    """Filled fields on disk, by run on any device. Sampling takes too long to do it twice for `figure-samples`."""

    own: Path
    others: tuple[Path, ...] = ()

    def find(self, key: RunKey) -> Field | None:
        """The field of a run, or None."""
        for folder in (self.own, *self.others):
            if (folder / _field_file(key)).is_file():
                field: Field = np.load(folder / _field_file(key), allow_pickle=False)
                return field
        return None

    def keep(self, key: RunKey, field: Field) -> None:
        """Write a field, whole or not at all."""
        make_folder(self.own)
        with atomic_path(self.own / _field_file(key)) as temporary, temporary.open("wb") as file:
            np.save(file, field, allow_pickle=False)


def _field_file(key: RunKey) -> str:
    return hashlib.blake2b(identity(key, any_device=True).encode(), digest_size=16).hexdigest() + ".npy"
