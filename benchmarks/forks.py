"""Fills in children that are forked from a process which has filled with every method.

    python benchmarks/forks.py [FORKS]

The parent fills a field with every method, with several threads, and again with one of them before each fork. The child
fills with another method, by turns. It has LIMIT seconds. Prints a row per method of the children.
"""

import os
import signal
import statistics
import sys
import time
import warnings
from functools import partial

import numpy as np
import torch

import flowinpaint as fi

LIMIT = 60
SIZE = 120, 160
rng = np.random.default_rng(0)
image = rng.integers(0, 256, (*SIZE, 3), np.uint8)
flow = np.where(rng.random((*SIZE, 1)) < 0.2, rng.normal(size=(*SIZE, 2)), np.nan).astype(np.float32)
FILLS = {method: partial(fi.inpaint, image, flow, method=method, device="cpu") for method in fi.methods()}
FILLS |= {
    "harmonic, robust": partial(fi.inpaint, image, flow, method="harmonic", device="cpu", robust=True),
    "neuroexplicit, robust": partial(fi.inpaint, image, flow, device="cpu", robust=True),
    "harmonic, second": partial(fi.inpaint, image, flow, method="harmonic", device="cpu", second=image),
}


def main(forks: int) -> None:
    """Fork this often and print how the children ended."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(max(2, torch.get_num_threads()))
    expected = {name: fill().flow for name, fill in FILLS.items()}
    names = list(FILLS)
    outcomes: dict[str, list[str]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(forks):
        FILLS[names[(7 * i + 3) % len(names)]]()
        name, start = names[i % len(names)], time.perf_counter()
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            result = FILLS[name]().flow
            os._exit(0 if np.array_equal(result, expected[name]) else 1)
        status = os.waitpid(child, 0)[1]
        seconds[name].append(time.perf_counter() - start)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
        outcomes[name].append("hung" if killed else ("equal", "differs")[status >> 8] if not status & 255 else "died")
    print(f"{'method of the child':24} forks equal differs hung died  seconds")
    for name in names:
        counts = [outcomes[name].count(outcome) for outcome in ("equal", "differs", "hung", "died")]
        typical = statistics.median(seconds[name] or [0.0])
        print(f"{name:24} {sum(counts):5} {counts[0]:5} {counts[1]:7} {counts[2]:4} {counts[3]:4}  {typical:7.2f}")
    total = sum(outcome == "equal" for found in outcomes.values() for outcome in found)
    print(f"{total} of {forks} children filled with the result of their parent.")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
