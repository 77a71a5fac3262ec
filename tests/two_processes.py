"""Train in one process and in two that share the work. Run by tests/training/test_distributed.py; prints JSON."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flowinpaint.training.checkpoint import read_newest
from flowinpaint.training.distributed import join
from flowinpaint.training.loop import Listener, Outcome, Progress, train
from tiny_runs import lines, tiny, use_halves

REVIVING = {"optimiser": {"revive_every": 2}}
"""Processes must also agree on which channels are dead."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def together(size: int, out: Path, tables: dict[str, Any], stop_rank: int = -1, resume: bool = False) -> list[Any]:
    """Outcomes by rank of a run by some processes; the one of stop_rank gets a signal after its third step."""
    port = free_port()
    children = []
    for rank in range(size):
        read, write = os.pipe()
        child = os.fork()
        if child:
            os.close(write)
            children.append((child, read))
            continue
        try:
            os.environ.update(
                {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
            )
            os.environ["MASTER_PORT"] = str(port)

            def progress(at: Progress, rank: int = rank) -> None:
                if rank == stop_rank and at.step == 3:
                    os.kill(os.getpid(), signal.SIGTERM)

            with join("cpu") as world:
                outcome: Outcome = train(
                    tiny(**tables), out, world, resume=resume, listener=Listener(progress=progress)
                )
            answer: Any = [outcome.step, outcome.interrupted]
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    answers = []
    for child, read in children:
        with os.fdopen(read) as pipe:
            answers.append(json.loads(pipe.read()))
        os.waitpid(child, 0)
    return answers


def tensors(out: Path) -> dict[str, Tensor]:
    return dict(read_newest(out / "checkpoints")[0].tensors)


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference of weights and averages."""
    names = [name for name in one if name.startswith(("weights", "average"))]
    return max((one[name] - other[name]).abs().max().item() for name in names)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    use_halves()
    found: dict[str, Any] = {"outcomes": {}}
    found["outcomes"]["alone"] = together(1, folder / "alone", REVIVING)
    found["outcomes"]["two"] = together(2, folder / "two", REVIVING)
    found["outcomes"]["stopped"] = together(2, folder / "stopped", REVIVING, stop_rank=1)
    found["outcomes"]["resumed"] = together(2, folder / "stopped", REVIVING, resume=True)
    found["outcomes"]["odd"] = together(2, folder / "odd", {"data": {"batch": 3}})
    alone, two, stopped = (tensors(folder / name) for name in ("alone", "two", "stopped"))
    found["two_against_one"] = difference(alone, two)
    found["resumed_against_two"] = difference(two, stopped)
    found["other_seed"] = None
    together(2, folder / "seed", REVIVING | {"data": {"seed": 1}})
    found["other_seed"] = difference(two, tensors(folder / "seed"))
    found["losses"] = {name: [line["loss"] for line in lines(folder / name)] for name in ("alone", "two", "stopped")}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
