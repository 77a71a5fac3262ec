"""Training runs that take a fraction of a second, for the tests of training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flowinpaint.config_parsing import build
from flowinpaint.counter_rng import Draws
from flowinpaint.data import Batch
from flowinpaint.training import batches
from flowinpaint.training.config import DataConfig, TrainingConfig
from flowinpaint.training.distributed import World

CPU = World(torch.device("cpu"))


def halves(data: DataConfig, device: torch.device) -> Callable[[Tensor], Batch]:
    """In place of the generator: two noisy halves, each of its own colour and motion."""

    def scenes(samples: Tensor) -> Batch:
        H, W = data.size
        draws = Draws(samples, data.seed)
        right = torch.arange(W, device=device) >= draws.uniform((1, 1, 1), 0.2 * W, 0.8 * W)
        image = torch.where(right, draws.uniform((3, 1, 1)), draws.uniform((3, 1, 1))) + 0.1 * draws.normal((3, H, W))
        flow = 3 * torch.where(right, draws.normal((2, 1, 1)), draws.normal((2, 1, 1))).expand(-1, -1, H, -1)
        return Batch(image.clamp(0, 1), flow.contiguous(), torch.ones_like(flow[:, :1]))

    return scenes


def use_halves() -> None:
    """Let training draw its scenes from `halves`: for a process of its own; tests patch it for themselves."""
    batches.scenes_of = halves


TINY: dict[str, Any] = {
    "model": {"width": 4, "decoder_kernel": 2, "steps": [1, 1, 1, 2]},
    "data": {"size": [24, 32], "batch": 4},
    "masks": {"density": [0.1, 0.3]},
    "optimiser": {"lr": 1e-3},
    "schedule": {"curve": "cosine", "steps": 8, "warmup": 2},
    "validation": {"every": 0, "heldout": 0},
    "run": {"log_every": 1, "checkpoint_every": 3},
}


def tiny(baseline: dict[str, Any] | None = None, **tables: dict[str, Any]) -> TrainingConfig:
    """A configuration of a tiny run, with some tables changed; baseline: the [model] instead of a neuroexplicit one."""
    merged = {name: TINY.get(name, {}) | tables.get(name, {}) for name in TINY | tables}
    return build(TrainingConfig, merged | ({"model": baseline} if baseline else {}))


def lines(run: Path) -> list[dict[str, Any]]:
    """The log of a run, without what differs from machine to machine."""
    read = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "steps_per_second")} for line in read]
