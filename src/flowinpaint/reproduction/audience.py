"""Whom a reproduction tells what it does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from flowinpaint.evaluation.runner import Step
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.distributed import World
from flowinpaint.training.loop import Listener


@dataclass(frozen=True)
class Audience:
    """note: takes a sentence. training, runs: open a display of a network's training, and of runs; by default none."""

    note: Callable[[str], None] = lambda sentence: None
    training: Callable[[TrainingConfig, World], AbstractContextManager[Listener]] = lambda config, world: nullcontext(
        Listener()
    )
    runs: Callable[[], AbstractContextManager[Callable[[Step], None]]] = lambda: nullcontext(lambda step: None)
