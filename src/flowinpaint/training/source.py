"""Where the batches of a step come from: generated on the device, or read from disk ahead of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from flowinpaint.data import Batch
from flowinpaint.data.bank import PictureBank, read_bank
from flowinpaint.data.datasets import open_dataset
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.data.loader import DiskBatches
from flowinpaint.training.config import GENERATED, DataConfig, of_table
from flowinpaint.training.distributed import World


class Source(Protocol):
    """What a training step draws its batches from."""

    def prepare(self) -> None:
        """Make the next batch ready, before a step begins or is replayed."""

    def batch(self, samples: Tensor) -> Batch:
        """The batch of these sample numbers (B,), inside of a step: nothing here may wait for the device."""

    def again(self, samples: Tensor) -> Batch:
        """The batch of these consecutive sample numbers (B,), outside of a step, whenever that is."""


class GeneratedSource:
    """Scenes that are made on the device from their sample numbers."""

    def __init__(
        self, scenes: Callable[[Tensor], Batch], fast: Callable[[Tensor], Batch] | None = None, distinct: int = 0
    ) -> None:
        self.scenes = scenes
        """Any scene, also those that training never sees."""
        self._fast = fast or scenes
        self._distinct = distinct

    def prepare(self) -> None:
        """There is nothing to do ahead."""

    def batch(self, samples: Tensor) -> Batch:
        """The scenes of these sample numbers (B,), by the fast way."""
        return self._fast(self._numbers(samples))

    def again(self, samples: Tensor) -> Batch:
        """The same scenes by the plain way."""
        return self.scenes(self._numbers(samples))

    def _numbers(self, samples: Tensor) -> Tensor:
        """Those of the scenes, of which only so many may be different."""
        return samples % self._distinct if self._distinct else samples


class DiskSource:
    """Batches from disk, copied into buffers whose addresses a recorded step knows."""

    def __init__(self, data: DataConfig, world: World, step: int) -> None:
        self._data = data
        self._device = world.device
        with of_table("data", name="source"):
            dataset = open_dataset(data.source, data.root, split=data.split or None, render=data.render or None)
        self._dataset = dataset[: data.distinct] if data.distinct else dataset
        self._batches: Iterator[Batch] = iter(
            DiskBatches(
                self._dataset,
                data.batch,
                data.size,
                data.seed,
                first_sample=step * data.batch,
                rank=world.rank,
                world=world.size,
                workers=data.workers,
            )
        )
        self._buffers: Batch | None = None

    def prepare(self) -> None:
        """Read the next batch into the buffers."""
        batch = next(self._batches)
        if self._buffers is None:
            self._buffers = Batch(*(x.to(self._device, copy=True) for x in batch))
            return
        for buffer, x in zip(self._buffers, batch, strict=True):
            buffer.copy_(x, non_blocking=True)

    def batch(self, samples: Tensor) -> Batch:
        """What `prepare` has read; the samples come in order."""
        assert self._buffers is not None, "prepare() comes first"
        return self._buffers

    def again(self, samples: Tensor) -> Batch:
        """The same samples, read once more."""
        data = self._data
        batches = DiskBatches(
            self._dataset, len(samples), data.size, data.seed, int(samples[0]), rank=0, world=1, workers=0
        )
        return Batch(*(x.to(self._device) for x in next(iter(batches))))


def scenes_of(data: DataConfig, device: torch.device) -> Callable[[Tensor], Batch]:
    """The generator of a configuration, on a device: sample numbers (B,) to their batch."""
    bank: PictureBank | None = read_bank(data.bank) if data.bank else None
    return LayeredFlow(data.layered, data.size, bank, data.seed).to(device).scenes


def compiled(scenes: Callable[[Tensor], Batch]) -> Callable[[Tensor], Batch]:
    """The same scenes by compiled code, for batches of one size; those of other sizes would be compiled again."""
    generator = getattr(scenes, "__self__", None)
    if not isinstance(generator, LayeredFlow):
        return scenes
    twin = copy.copy(generator)
    twin.compile_parts()
    return twin.scenes


def open_source(data: DataConfig, world: World, step: int, compile_scenes: bool) -> Source:
    """The source of a configuration, to go on at a step."""
    if data.source == GENERATED:
        scenes = scenes_of(data, world.device)
        return GeneratedSource(scenes, compiled(scenes) if compile_scenes else None, data.distinct)
    return DiskSource(data, world, step)
