"""Batches of training, generated on the device or read ahead from disk, and the tasks made from them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.data import Batch
from flowinpaint.data.bank import read_bank
from flowinpaint.data.datasets import open_dataset
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.data.loader import DiskBatches
from flowinpaint.machine import usable_cores
from flowinpaint.masks import MaskMix
from flowinpaint.training.config import GENERATED, DataConfig, of_table
from flowinpaint.training.distributed import World

MASK_SEED = 7919
MOST_PROCESSES = 16
"""Processes that read from disk; each holds the batches that it has read ahead."""
NOISE_SEED = 104_729
"""Added to the seed, so that masks and noise do not repeat the random numbers of their scenes."""

Scenes = Callable[[Tensor], Batch]
"""A generator: maps sample numbers (B,) to their batch."""


class Task(NamedTuple):
    """A batch, its given vectors (B, C, H, W), and their mask (B, 1, H, W).

    samples: the sample numbers (B,), which determine all random numbers of a task.
    """

    batch: Batch
    given: Tensor
    mask: Tensor
    samples: Tensor


def draw_given(samples: Tensor, seed: int, masks: MaskMix, batch: Batch) -> tuple[Tensor, Tensor]:
    """The given vectors and their mask for the batch of these sample numbers (B,)."""
    draws = Draws(samples, seed + MASK_SEED)
    mask = masks.draw(draws, batch.image, batch.flow, batch.valid)
    return masks.disturb(draws, batch.flow), mask


class GeneratedSource:
    """Scenes generated on the device from sample numbers; distinct: the number of different scenes, 0 for no limit."""

    def __init__(self, scenes: Scenes, fast: Scenes | None = None, distinct: int = 0) -> None:
        self.scenes = scenes
        """All scenes, including those that training never sees."""
        self._fast = fast or scenes
        self._distinct = distinct

    def prepare(self) -> None:
        """Nothing to prepare before a step."""

    def batch(self, samples: Tensor) -> Batch:
        """The scenes of these sample numbers (B,), by the fast generator; does not synchronise with the device."""
        return self._fast(self._numbers(samples))

    def again(self, samples: Tensor) -> Batch:
        """The same scenes by the plain generator; can be called at any time, outside a step."""
        return self.scenes(self._numbers(samples))

    def _numbers(self, samples: Tensor) -> Tensor:
        return samples % self._distinct if self._distinct else samples


def reading_processes() -> int:
    """One process for each core that this one may use, shared with the others that torchrun started on this machine.

    The batches do not depend on it.
    """
    return max(1, min(MOST_PROCESSES, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


class DiskSource:
    """Batches from disk, copied into buffers with fixed addresses, which a recorded step requires."""

    def __init__(self, data: DataConfig, world: World, step: int) -> None:
        self._data, self._device = data, world.device
        with of_table("data", name="source"):
            dataset = open_dataset(data.source, data.root, split=data.split or None, render=data.render or None)
        self._dataset = dataset[: data.distinct] if data.distinct else dataset
        first, rank, size = step * data.batch, world.rank, world.size
        workers = reading_processes() if data.workers < 0 else data.workers
        batches = DiskBatches(self._dataset, data.batch, data.size, data.seed, first, rank, size, workers)
        self._batches: Iterator[Batch] = iter(batches)
        self._buffers: Batch | None = None

    def prepare(self) -> None:
        """Read the next batch into the buffers, before a step begins or is replayed."""
        batch = next(self._batches)
        if self._buffers is None:
            self._buffers = Batch(*(x.to(self._device, copy=True) for x in batch))
            return
        for buffer, x in zip(self._buffers, batch, strict=True):
            buffer.copy_(x, non_blocking=True)

    def batch(self, samples: Tensor) -> Batch:
        """The batch that `prepare` has read; samples come in order."""
        assert self._buffers is not None, "prepare() comes first"
        return self._buffers

    def again(self, samples: Tensor) -> Batch:
        """The batch of these consecutive sample numbers (B,), read again, outside a step."""
        data, first = self._data, int(samples[0])
        batches = DiskBatches(self._dataset, len(samples), data.size, data.seed, first, rank=0, world=1, workers=0)
        return Batch(*(x.to(self._device) for x in next(iter(batches))))


Source = GeneratedSource | DiskSource
"""The source of a training step's batches."""


def scenes_of(data: DataConfig, device: torch.device) -> Scenes:
    """The generator of a configuration, on a device."""
    bank = read_bank(data.bank) if data.bank else None
    return LayeredFlow(data.layered, data.size, bank, data.seed).to(device).scenes


def compiled(scenes: Scenes) -> Scenes:
    """A compiled copy of a generator, for batches of one size; every other size would be compiled again."""
    generator = getattr(scenes, "__self__", None)
    if not isinstance(generator, LayeredFlow):
        return scenes
    twin = copy.copy(generator)
    twin.compile_parts()
    return twin.scenes


def open_source(data: DataConfig, world: World, step: int, compile_scenes: bool) -> Source:
    """The source of a configuration, starting at a step."""
    if data.source == GENERATED:
        scenes = scenes_of(data, world.device)
        return GeneratedSource(scenes, compiled(scenes) if compile_scenes else None, data.distinct)
    return DiskSource(data, world, step)
