"""Start children on ranges of cases, kill those that hang, go on behind those that crash, and sum up."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import flowinpaint as fi
from flowinpaint.io.budget import VARIABLE
from fuzz.child import Outcome, case_of, stage

HANGS = 30.0
"""Seconds after which a case hangs; the limit of the readers is `child.LONGEST`, in CPU time."""
START = 120.0
"""Seconds in which a child must be ready."""
_ROOT = Path(__file__).resolve().parents[2]


def run_cases(kind: str, seed: int, start: int, stop: int, budget: str | None = None) -> list[tuple[int, Outcome]]:
    """The outcomes of the cases from start to stop - 1, by number; kind: mutated, hostile or hostile without bombs."""
    found: list[tuple[int, Outcome]] = []
    while start < stop:
        start = _child(kind, seed, start, stop, budget, found)
    return found


def _child(kind: str, seed: int, start: int, stop: int, budget: str | None, found: list[tuple[int, Outcome]]) -> int:
    """Run a child until it ends, and return the number of the next case."""
    paths = [str(Path(fi.__file__).parents[1]), str(_ROOT / "tests"), str(_ROOT / "docs")]
    # The thresholds keep glibc from hiding memory that a case uses in what an earlier one left.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
    }
    if budget is not None:
        environment[VARIABLE] = budget
    command = [sys.executable, "-m", "fuzz.child", kind, str(seed), str(start), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment) as child:
        assert child.stdout is not None
        lines = _Lines(child.stdout.fileno())
        assert lines.next(START) == "ready", f"the child must start: exit status {child.wait()}"
        try:
            while True:
                begun = lines.next(HANGS)
                if begun is None:
                    assert start == stop, f"the child must run all cases, it ended at {start}"
                    return stop
                assert begun.startswith("["), f"the suite itself fails: {begun}"
                start, reader, name = json.loads(begun)
                ended = lines.next(HANGS)
                if ended is None:
                    hangs = child.poll() is None and not lines.closed
                    child.kill()
                    fault = f"it hangs for {HANGS:g} s" if hangs else f"it crashes: exit status {child.wait()}"
                    found.append((start, Outcome(reader, name, False, fault, HANGS if hangs else 0, 0)))
                    return start + 1
                assert ended.startswith("["), f"the suite itself fails: {ended}"
                found.append((start, Outcome(*json.loads(ended))))
                start += 1
        finally:
            child.kill()


class _Lines:
    """Lines from a pipe, with a limit of time."""

    def __init__(self, handle: int) -> None:
        self._handle, self._text, self.closed = handle, b"", False
        self._selector = selectors.DefaultSelector()
        self._selector.register(handle, selectors.EVENT_READ)

    def next(self, seconds: float) -> str | None:
        """The next line; None at the end, or if there is none in time."""
        end = time.monotonic() + seconds
        while b"\n" not in self._text:
            if not self._selector.select(max(0, end - time.monotonic())):
                return None
            data = os.read(self._handle, 65536)
            if not data:
                self.closed = True
                return None
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()


def table_of(outcomes: Iterable[Outcome]) -> str:
    """Counts, the longest time and the largest growth of memory by reader."""
    by_reader: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_reader[outcome.reader].append(outcome)
    by_reader["all"] = [outcome for group in by_reader.values() for outcome in group]
    rows = [
        f"{'reader':26}{'files':>7}{'accepted':>10}{'refused':>9}{'findings':>10}{'longest, s':>12}{'most MiB':>10}"
    ]
    for reader, group in by_reader.items():
        faults = sum(bool(outcome.fault) for outcome in group)
        good = sum(outcome.accepted and not outcome.fault for outcome in group)
        longest, most = max(o.seconds for o in group), max(o.growth for o in group) / 2**20
        rows.append(
            f"{reader:26}{len(group):7}{good:10}{len(group) - good - faults:9}{faults:10}{longest:12.2f}{most:10.0f}"
        )
    return "\n".join(rows)


def keep_findings(kind: str, seed: int, found: Iterable[tuple[int, Outcome]], folder: Path) -> list[str]:
    """Write the files of each finding to a folder of its own; a line for each finding."""
    lines = []
    for number, outcome in found:
        if outcome.fault:
            place = folder / f"{kind}-{seed}-{number}"
            lines.append(f"{place.name}: {outcome.reader}, {outcome.name}: {outcome.fault}")
            place.mkdir(parents=True, exist_ok=True)
            stage(case_of(kind, seed, number), place)
            (place / "finding.txt").write_text(lines[-1] + "\n", encoding="utf-8")
    return lines
