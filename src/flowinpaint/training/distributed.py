"""Distributed training: this process, and the agreement of all processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed

from flowinpaint import checks
from flowinpaint.errors import InputError

PATIENCE = timedelta(hours=2)
"""Time the others wait while the first process validates."""


@dataclass(frozen=True)
class World:
    """The processes of a run; only the first one, of rank 0, writes and prints."""

    device: torch.device
    rank: int = 0
    size: int = 1
    control: distributed.ProcessGroup | None = None
    """Group in which the processes agree through host memory, without synchronising with a device."""

    @property
    def first(self) -> bool:
        """True for the process that writes, logs and validates."""
        return self.rank == 0

    def mean(self, x: Tensor) -> Tensor:
        """The mean of a tensor over all processes, without synchronising with the device."""
        if self.size > 1:
            distributed.all_reduce(x)
            x = x / self.size
        return x

    def agree(self, *values: float) -> list[float]:
        """The maximum of each value over all processes."""
        if self.control is None:
            return list(values)
        joint = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(joint, distributed.ReduceOp.MAX, group=self.control)
        return joint.tolist()

    def share(self, batch: int) -> int:
        """The number of samples of a joint batch for each process."""
        if batch % self.size:
            raise InputError(f"data.batch must be a multiple of the {self.size} processes, got {batch}")
        return batch // self.size


@contextmanager
def join(device: str | torch.device = "auto") -> Iterator[World]:
    """The world of this process: a single process, or the group that torchrun set up."""
    chosen = checks.check_device(device)
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys() or not distributed.is_available():
        yield World(chosen)
        return
    if chosen == torch.device("cuda"):
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        checks.check_device(chosen)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    distributed.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        control = distributed.new_group(backend="gloo", timeout=PATIENCE)
        yield World(chosen, distributed.get_rank(), distributed.get_world_size(), control)
    finally:
        distributed.destroy_process_group()
