"""Train in one process and in two; print the results as JSON. Run by tests/training/test_distributed.py."""

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

from flowinpaint.training import dead_channels
from flowinpaint.training.checkpoint import read_newest
from flowinpaint.training.distributed import World, join
from flowinpaint.training.loop import Listener, Progress, train
from tiny_runs import CPU, lines, tiny, use_halves

REVIVING = {"optimiser": {"revive_every": 2}}
"""Processes must also agree on which channels are dead."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def outcome(world: World, out: Path, tables: dict[str, Any], stop_rank: int = -1, resume: bool = False) -> Any:
    """Step and interruption of a run, or its error; the process of stop_rank gets a signal after its third step."""

    def progress(at: Progress) -> None:
        if world.rank == stop_rank and at.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        ended = train(tiny(**tables), out, world, resume=resume, listener=Listener(progress=progress))
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return [ended.step, ended.interrupted]


def runs_of(rank: int, folder: Path) -> dict[str, Any]:
    """All runs of one of two processes."""
    with join("cpu") as world:
        return {
            "two": outcome(world, folder / "two", REVIVING),
            "stopped": outcome(world, folder / "stopped", REVIVING, stop_rank=1),
            "resumed": outcome(world, folder / "stopped", REVIVING, resume=True),
            "odd": outcome(world, folder / "odd", {"data": {"batch": 3}}),
        }


def together(folder: Path) -> dict[str, list[Any]]:
    """Results of two processes in an environment as set by torchrun: lists by rank."""
    children = []
    for rank in range(2):
        read, write = os.pipe()
        child = os.fork()
        if child:
            os.close(write)
            children.append((child, read))
            continue
        os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"})
        try:
            answer: Any = runs_of(rank, folder)
        except BaseException as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    answers = []
    for child, read in children:
        with os.fdopen(read) as pipe:
            answers.append(json.loads(pipe.read()))
        os.waitpid(child, 0)
    return {name: [answer.get(name) for answer in answers] for name in {**answers[0], **answers[1]}}


def tensors(out: Path) -> dict[str, Tensor]:
    return dict(read_newest(out / "checkpoints")[0].tensors)


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference of weights and averages."""
    names = [name for name in one if name.startswith(("weights", "average"))]
    return max((one[name] - other[name]).abs().max().item() for name in names)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dead_channels.MOST_BATCHES = 4  # the tiny batches would ask for all 32
    use_halves()
    os.environ["MASTER_PORT"] = str(free_port())
    outcomes: dict[str, Any] = together(folder)
    outcomes["alone"] = [outcome(CPU, folder / "alone", REVIVING)]
    outcome(CPU, folder / "seed", REVIVING | {"data": {"seed": 1}})
    alone, two, stopped, seed = (tensors(folder / name) for name in ("alone", "two", "stopped", "seed"))
    found = {
        "outcomes": outcomes,
        "two_against_one": difference(alone, two),
        "resumed_against_two": difference(two, stopped),
        "other_seed": difference(two, seed),
        "losses": {name: [line["loss"] for line in lines(folder / name)] for name in ("alone", "two", "stopped")},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
