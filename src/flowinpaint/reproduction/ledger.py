"""The runs that are known: those of this reproduction, and those that another machine has made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.evaluation.records import Record, RecordStore, RunKey, open_store, record_of
from flowinpaint.io import make_folder

RECORDS = "records.jsonl"


def identity(key: RunKey, *, any_device: bool = False) -> str:
    """What makes two runs the same, wherever their weights lay, and on any device if so asked."""
    method = "" if key.weights else key.method
    return replace(key, method=method, device="" if any_device else key.device).text


class Ledger:
    """Finds the record of a run: of this reproduction on its device, or of others on any device."""

    def __init__(self, store: RecordStore, others: Sequence[Record] = ()) -> None:
        self.store = store
        self._own = {identity(record.key): record for record in store if record.measured is not None}
        self._others = {identity(r.key, any_device=True): r for r in reversed(others) if r.measured is not None}

    def find(self, key: RunKey) -> Record | None:
        """The record of a key, None if there is none that tells of success."""
        return self._own.get(identity(key)) or self._others.get(identity(key, any_device=True))

    def keep(self, record: Record) -> None:
        """Remember a record that the store has been given."""
        if record.measured is not None:
            self._own[identity(record.key)] = record


@contextmanager
def open_ledger(out: Path, others: Sequence[Path] = ()) -> Iterator[Ledger]:
    """The ledger of a folder, which no other process may write to meanwhile, and of other machines' files."""
    known = [record for path in others for record in read_records(path)]
    with open_store(make_folder(out) / RECORDS) as store:
        yield Ledger(store, known)


def read_records(path: Path) -> list[Record]:
    """The records in a file of JSON lines, such as a reproduction on another machine has left."""
    if not path.is_file():
        raise MissingFileError(f"--records: {path}: there is no such file; the {RECORDS} of a reproduction is taken.")
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(record_of(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise FileFormatError(f"--records: {path}: line {number} is no record of a run.") from error
    return records
