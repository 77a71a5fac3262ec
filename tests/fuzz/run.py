"""Fuzz all readers and `inpaint` for longer than the tests do.

    make fuzz MINUTES=10
    python tests/fuzz/run.py --count 20000 --hostile 2000 --calls 5000 --seed 1

It prints a table of the readers and a line for each finding, and keeps the files of the findings. The exit status is 1
if there is one.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "docs")]

from fuzz.calls import check_calls  # noqa: E402
from fuzz.campaign import keep_findings, run_cases, table_of  # noqa: E402
from fuzz.child import Outcome  # noqa: E402

SMALL_BUDGET = "32M"
"""Of mutated files, so that one which takes more memory than it may is found with little."""
AT_ONCE = 2000
"""Files for one child."""


def main() -> None:
    """Run the files and the calls, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="mutated files")
    parser.add_argument("--hostile", type=int, default=2_000, help="hostile files")
    parser.add_argument("--calls", type=int, default=0, help="random calls of inpaint")
    parser.add_argument("--minutes", type=float, help="mutated files for so long, then calls for a quarter of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for the files of findings")
    options = parser.parse_args()
    start, outcomes, faults = time.monotonic(), list[Outcome](), list[str]()
    end = start + 60 * (options.minutes or math.inf)

    def files(kind: str, count: float, budget: str | None) -> None:
        first = 0
        while first < count and time.monotonic() < end:
            found = run_cases(kind, options.seed, first, int(min(count, first + AT_ONCE)), budget)
            outcomes.extend(outcome for _, outcome in found)
            faults.extend(keep_findings(kind, options.seed, found, options.keep))
            first += AT_ONCE

    files("hostile", options.hostile, None)
    files("mutated", math.inf if options.minutes else options.count, SMALL_BUDGET)
    print(table_of(outcomes))
    calls = check_calls(options.calls, 15 * options.minutes if options.minutes else None, options.seed)
    print(f"{calls.made} calls of inpaint, {calls.refused} refused, {len(calls.faults)} findings")
    faults += calls.faults
    print("\n".join(faults) or "no findings")
    print(f"{time.monotonic() - start:.0f} s")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
