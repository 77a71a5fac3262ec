"""Known runs and filled fields: those of this reproduction, and those of other machines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
    """Successful runs and their fields: of this reproduction on the same device, or of other machines on any device."""

    def __init__(self, store: RecordStore, others: Sequence[Record], folders: Sequence[Path]) -> None:
        self.store, self._folders = store, folders
        self._known = {identity(r.key, any_device=True): r for r in reversed(others) if r.measured is not None}
        self.know(store)

    def know(self, records: Iterable[Record]) -> None:
        """Find these records from now on, which the store has."""
        self._known |= {identity(record.key): record for record in records if record.measured is not None}

    def find(self, key: RunKey) -> Record | None:
        """The record of a successful run, or None."""
        return self._known.get(identity(key)) or self._known.get(identity(key, any_device=True))

    def find_field(self, key: RunKey) -> Field | None:
        """The field of a run on any device, or None."""
        for path in (folder / _field_file(key) for folder in self._folders):
            if path.is_file():
                field: Field = np.load(path, allow_pickle=False)
                return field
        return None

    def keep_field(self, key: RunKey, field: Field) -> None:
        """Write a field, whole or not at all. Sampling takes too long to do it twice for `figure-samples`."""
        with atomic_path(make_folder(self._folders[0]) / _field_file(key)) as temporary, temporary.open("wb") as file:
            np.save(file, field, allow_pickle=False)


@contextmanager
def open_records(out: Path, others: Sequence[Path] = ()) -> Iterator[Records]:
    """The records in a folder, locked against other processes, and in other machines' files."""
    known = [record for path in others for record in read_records(path)]
    with open_store(make_folder(out) / RECORDS) as store:
        yield Records(store, known, [path.parent / FIELDS for path in (out / RECORDS, *others)])


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


def _field_file(key: RunKey) -> str:
    return hashlib.blake2b(identity(key, any_device=True).encode(), digest_size=16).hexdigest() + ".npy"
