"""Run cases in this process, under limits, and say on stdout what each of them did; `campaign` starts it.

    python -m fuzz.child KIND SEED START STOP

A line before each case names it, so that the parent knows which one crashed or hung; a line after it has the outcome.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import cv2
import torch

from flowinpaint.io.budget import byte_budget
from fuzz import mutations
from fuzz.corpus import Seed, seeds
from fuzz.hostile import SPECIALS, Case, Special, hostile
from fuzz.readers import ALLOWED, READERS

LONGEST = 2.0
"""Seconds of CPU time that a reader may take."""
MEMORY_FACTOR, MEMORY_MORE = 4.0, 64 << 20
"""A reader may use this multiple of the byte budget, and a constant: decoded, converted to float32, copied."""
ADDRESS_SPACE = 6 << 30
"""Bytes of address space that all cases together may add; MemoryError beyond it is a finding."""


DECODED = ("image", "mask", "flow", "depth", "map", "probability")
"""Readers of pictures. libpng and libjpeg print errors, and only a change of the process's stderr would stop them."""


class Outcome(NamedTuple):
    """What a reader did with a case. fault: "" if it kept its promises."""

    reader: str
    name: str
    accepted: bool
    fault: str
    seconds: float
    growth: int


def case_of(kind: str, seed: int, number: int) -> Case:
    """The case with this number: a mutated seed, or a hostile file; the same in every process."""
    if kind != "mutated":
        cases = _hostile(kind == "hostile")
        return cases[number % len(cases)]
    rng = Random(f"{seed} {number}")
    readers: dict[str, list[Seed]] = {}
    for each in seeds():
        readers.setdefault(each.reader, []).append(each)
    chosen = rng.choice(readers[list(readers)[number % len(readers)]])
    data = mutations.mutated(chosen.data, chosen.suffix, rng.choice(seeds()).data, rng)
    return Case(chosen.reader, chosen.name, data, chosen.suffix, chosen.file, chosen.files)


_hostile = cache(hostile)


def stage(case: Case, folder: Path) -> Path:
    """Put a case's files into a folder."""
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    path = folder / (case.file or f"file{case.suffix}")
    if isinstance(case.data, Special):
        SPECIALS[case.data.kind](path)
    else:
        path.write_bytes(case.data if isinstance(case.data, bytes) else case.data())
    return path


def peak_growth(before: int) -> int:
    """Bytes that the process had at its peak beyond `before`, since `forget_peak`."""
    for text in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if text.startswith("VmHWM:"):
            return int(text.split()[1]) * 1024 - before
    return 0


def forget_peak() -> int:
    """Start a new measurement of the peak memory, if Linux allows; the memory now."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # growth is then only that above all before
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _global_state() -> list[Any]:
    log = getattr(cv2.utils, "logging", cv2)
    return [list(warnings.filters), log.getLogLevel(), warnings.showwarning, Path.cwd()]


def run(case: Case, printed: Any) -> Outcome:
    """Read a case; printed: the file that stands for stdout and stderr."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    fault, accepted = "", False
    sys.stdout = sys.stderr = said = io.StringIO()
    try:
        path = stage(case, folder)
        state, before = _global_state(), forget_peak()
        start = time.process_time()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            inside = _global_state()
            try:
                result = READERS[case.reader](path)
                accepted = True
            except ALLOWED as error:
                result = None
                if not str(error).strip():
                    fault = f"{type(error).__name__} without a message"
            except BaseException as error:
                result = None
                fault = f"{type(error).__name__}: {str(error)[:200]}"
            seconds = time.process_time() - start
            if _global_state() != inside:
                fault = fault or "it changed the state of the process"
        growth = peak_growth(before)
        del result
        for warning in warned:
            if not issubclass(warning.category, UserWarning):
                fault = fault or f"{warning.category.__name__}: {str(warning.message)[:200]}"
        if _global_state() != state:
            fault = fault or "it changed the state of the process"
        text = said.getvalue()
        if os.fstat(printed.fileno()).st_size:
            printed.seek(0)
            text += "" if case.reader in DECODED else printed.read(200).decode(errors="replace")
            printed.truncate(0)
            printed.seek(0)
        if text:
            fault = fault or f"it prints: {text[:200]!r}"
        if seconds > LONGEST:
            fault = fault or f"it takes {seconds:.1f} s"
        if growth > MEMORY_FACTOR * byte_budget() + MEMORY_MORE:
            fault = fault or f"it takes {growth / 2**20:.0f} MiB"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(case.reader, case.name, accepted, fault, seconds, growth)


def warm_up() -> None:
    """Read a valid file with every reader, which imports and compiles what the first use needs."""
    folder = Path(tempfile.mkdtemp())
    for k, seed in enumerate(seeds()):
        inner = folder / str(k)
        inner.mkdir()
        try:
            READERS[seed.reader](stage(Case(*seed), inner))
        except ALLOWED:
            continue
    shutil.rmtree(folder)


def main() -> None:
    """Run the cases START to STOP - 1."""
    kind, seed, start, stop = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    report = os.fdopen(os.dup(1), "w", buffering=1)
    warm_up()
    limit = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (limit + ADDRESS_SPACE, limit + ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryFile() as printed:
        for fd in (1, 2):
            os.dup2(printed.fileno(), fd)
        print("ready", file=report)
        sys.excepthook = lambda *about: print(repr("".join(traceback.format_exception(*about))), file=report)
        for number in range(start, stop):
            case = case_of(kind, seed, number)
            print(json.dumps([number, case.reader, case.name]), file=report)
            print(json.dumps(run(case, printed)), file=report)
            if number % 200 == 0:
                gc.collect()


if __name__ == "__main__":
    main()
