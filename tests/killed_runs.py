"""Kill a training run again and again, and compare what it ends with. Run by tests/training/test_survival.py.

One process imports PyTorch and forks all others, so that a run starts in no time. What it finds it prints as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from flowinpaint.training.checkpoint import list_checkpoints, read_checkpoint, read_newest
from flowinpaint.training.loop import train
from tiny_runs import CPU, lines, tiny, use_halves

KILLS = 20
STEPS = 10
WIDTH = 20
"""Of the network: wide enough that a good share of a run goes into the writing of checkpoints."""
LONGEST = 0.6
"""A run is killed at the latest after this share of the time that all of it takes."""


def run(out: Path, steps: int = STEPS) -> None:
    """Begin or resume the run."""
    small = {"size": [16, 16], "batch": 1}
    seen = {"every": 4, "heldout": 1, "densities": [0.2]}
    config = tiny(
        model={"width": WIDTH}, schedule={"steps": steps}, data=small, run={"checkpoint_every": 1}, validation=seen
    )
    train(config, out, CPU, resume=bool(list_checkpoints(out / "checkpoints")))


def start(out: Path) -> int:
    """Begin or resume the run in a process of its own."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run(out)
        code = 0
    finally:
        os._exit(code)


def main(folder: Path) -> None:
    """Do one run in peace, then others with kills until there were KILLS of them, and tell of each."""
    torch.set_num_threads(1)
    use_halves()
    run(folder / "first", steps=2)  # imports what is imported late, for all processes to come
    began = time.monotonic()
    assert os.waitpid(start(folder / "whole"), 0)[1] == 0
    longest = LONGEST * (time.monotonic() - began)
    whole = read_newest(folder / "whole" / "checkpoints")[0]
    rng = random.Random(0)
    kills = resumes = 0
    partial: list[str] = []
    runs: list[dict[str, Any]] = []
    while kills < KILLS:
        out = folder / f"killed-{len(runs)}"
        while True:
            resumes += bool(list_checkpoints(out / "checkpoints"))
            child = start(out)
            if kills < KILLS:
                time.sleep(rng.uniform(0, longest))
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0
                break
            kills += 1
            for path in list_checkpoints(out / "checkpoints"):
                try:
                    read_checkpoint(path)
                except ValueError as error:
                    partial.append(str(error))
        ended = read_newest(out / "checkpoints")[0]
        same = all(torch.equal(value, ended.tensors[name]) for name, value in whole.tensors.items())
        models = [(path / "model.safetensors").read_bytes() for path in (out, folder / "whole")]
        same = same and models[0] == models[1]
        runs.append({"step": ended.step, "same": same, "log": lines(out) == lines(folder / "whole")})
    print(json.dumps({"kills": kills, "resumes": resumes, "partial": partial, "runs": runs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
