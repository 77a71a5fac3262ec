"""One reader under atheris: `python -m fuzz.guided READER [libFuzzer's options]`; findings are left in this folder."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from random import Random


def main() -> None:
    """Fuzz until libFuzzer's limits."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["flowinpaint"]):
        from fuzz.child import stage
        from fuzz.corpus import seeds
        from fuzz.hostile import Case
        from fuzz.mutations import mutated
        from fuzz.readers import ALLOWED, READERS
    reader = sys.argv.pop(1)
    own = [seed for seed in seeds() if seed.reader == reader]

    def read(data: bytes) -> None:
        seed = own[data[0] % len(own)] if data else own[0]
        with tempfile.TemporaryDirectory() as folder:
            path = stage(Case(reader, seed.name, data[1:], seed.suffix, seed.file, seed.files), Path(folder))
            try:
                READERS[reader](path)
            except ALLOWED:
                return

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        number = data[0] % len(own) if data else seed % len(own)
        start = data[1:] or own[number].data
        return (bytes([number]) + mutated(start, own[number].suffix, own[0].data, Random(seed)))[:longest]

    atheris.Setup(sys.argv, read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
