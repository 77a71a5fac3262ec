"""Filled fields on disk, for the figure of samples: some take so long that they are not to be made twice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flowinpaint.evaluation.records import RunKey
from flowinpaint.io import atomic_path, make_folder
from flowinpaint.reproduction.ledger import identity
from flowinpaint.viz.colours import Field

FIELDS = "fields"
"""The folder of filled fields, beside the records."""


@dataclass(frozen=True)
class FieldStore:
    """Fields by the run that makes them, on whatever machine; those of other machines lie beside their records."""

    own: Path
    others: tuple[Path, ...] = ()

    def find(self, key: RunKey) -> Field | None:
        """The field of a run, if it is there."""
        for folder in (self.own, *self.others):
            if (folder / _name(key)).is_file():
                field: Field = np.load(folder / _name(key), allow_pickle=False)
                return field
        return None

    def keep(self, key: RunKey, field: Field) -> None:
        """Write a field, whole or not at all."""
        make_folder(self.own)
        with atomic_path(self.own / _name(key)) as temporary, temporary.open("wb") as file:
            np.save(file, field, allow_pickle=False)


def _name(key: RunKey) -> str:
    """The name of a field's file: a hash of all that it depends on."""
    return hashlib.blake2b(identity(key, any_device=True).encode(), digest_size=16).hexdigest() + ".npy"
