"""Kill a training run repeatedly, fill its disk, and signal its process group; print the findings as JSON.

Run by tests/training/test_survival.py. One process imports PyTorch and forks all others, so that runs start quickly.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from flowinpaint.training.checkpoint import list_checkpoints, read_checkpoint, read_newest
from flowinpaint.training.loop import Listener, Progress, train
from frame_folder import make_sample
from tiny_runs import CPU, lines, tiny, use_halves

KILLS = 12
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


def start(work: Callable[[], None]) -> int:
    """Do some work in a process of its own."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def on_a_full_disk(out: Path, said: int) -> None:
    """A run whose checkpoint of step 6 does not fit on the disk; its error goes to the file descriptor."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def progress(at: Progress) -> None:
        if at.step == 4:  # no file may grow beyond this from now on
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    try:
        train(tiny(model={"width": 8}), out, CPU, listener=Listener(progress=progress))
    except OSError as error:
        os.write(said, str(error).encode())


def in_a_group(frames: Path, out: Path, said: int) -> None:
    """An endless run with workers in a process group of its own, which reports its steps and how it ends."""
    os.setsid()
    disk = {"source": "folder", "root": str(frames), "size": [16, 16], "batch": 2, "workers": 2}
    config = tiny(data=disk, schedule={"steps": 10**6}, run={"checkpoint_every": 10**6})

    def progress(at: Progress) -> None:
        os.write(said, f"{at.step}\n".encode())

    os.write(
        said, f"interrupted {train(config, out, CPU, listener=Listener(progress=progress)).interrupted}\n".encode()
    )


def main(folder: Path) -> None:
    """Print the findings of all."""
    torch.set_num_threads(1)
    use_halves()
    run(folder / "first", steps=2)  # for the imports that happen late
    read, write = os.pipe()
    child = start(partial(on_a_full_disk, folder / "full", write))
    os.close(write)
    with os.fdopen(read) as pipe:
        full = {"error": pipe.read(), "status": os.waitpid(child, 0)[1]}
    for i in range(3):
        make_sample(folder / "frames" / "A" / f"{i}", seed=i)
    read, write = os.pipe()
    child = start(partial(in_a_group, folder / "frames", folder / "group", write))
    os.close(write)
    with os.fdopen(read) as pipe:
        first = pipe.readline()
        os.killpg(child, signal.SIGTERM)  # as torchrun and service managers do
        group = {"first": first, "rest": pipe.read(), "status": os.waitpid(child, 0)[1]}
    print(json.dumps({"full": full, "group": group, "killed": killed(folder)}))


def killed(folder: Path) -> dict[str, Any]:
    """One run in peace, then others with kills until there were KILLS of them."""
    began = time.monotonic()
    assert os.waitpid(start(partial(run, folder / "whole")), 0)[1] == 0
    longest = LONGEST * (time.monotonic() - began)
    whole = read_newest(folder / "whole" / "checkpoints")[0]
    rng = random.Random(0)
    kills = resumes = 0
    torn: list[str] = []
    runs: list[dict[str, Any]] = []
    while kills < KILLS:
        out = folder / f"killed-{len(runs)}"
        while True:
            resumes += bool(list_checkpoints(out / "checkpoints"))
            child = start(partial(run, out))
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
                    torn.append(str(error))
        ended = read_newest(out / "checkpoints")[0]
        same = all(torch.equal(value, ended.tensors[name]) for name, value in whole.tensors.items())
        models = [(path / "model.safetensors").read_bytes() for path in (out, folder / "whole")]
        same = same and models[0] == models[1]
        runs.append({"step": ended.step, "same": same, "log": lines(out) == lines(folder / "whole")})
    return {"kills": kills, "resumes": resumes, "partial": torn, "runs": runs}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
