"""Endless, reproducible batches from a data set on disk.

Sample n of a seed is a pure function of both: a frame of the shuffled epoch n // length, cropped and possibly mirrored.
So a run resumes exactly where it stopped, and several processes share the samples of one.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from flowinpaint.checks import check_image
from flowinpaint.data import Batch
from flowinpaint.data.datasets import Dataset
from flowinpaint.errors import InputError
from flowinpaint.interrupts import SIGNALS

_Float = npt.NDArray[np.float32]

_ORDER, _CROP = 0, 1
"""Streams of random numbers."""


class DiskBatches:
    """Iterator over batches of crops of size (H, W), on the CPU, pinned if CUDA is available.

    batch is the size of the joint batch of all `world` processes; rank r gets the r-th part. Joint batch k starts at
    sample first_sample + k·batch. Each iteration starts again at first_sample.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch: int,
        size: tuple[int, int],
        seed: int = 0,
        first_sample: int = 0,
        rank: int = 0,
        world: int = 1,
        workers: int = 2,
    ) -> None:
        _check("size", tuple(size), len(size) == 2 and min(size) >= 1, "(H, W), each at least 1")
        _check("world", world, world >= 1, "at least 1")
        _check("rank", rank, 0 <= rank < world, f"from 0 to {world - 1}")
        _check("batch", batch, batch >= 1 and batch % world == 0, f"a positive multiple of the {world} processes")
        for name, number in {"seed": seed, "first_sample": first_sample, "workers": workers}.items():
            _check(name, number, number >= 0, "at least 0")
        self.channels = dataset.channels
        self._samples = _Samples(dataset, (size[0], size[1]), seed)
        self._batch, self._local = batch, batch // world
        self._first = first_sample + rank * self._local
        self._workers = workers

    def __iter__(self) -> Iterator[Batch]:
        loader = DataLoader(
            self._samples,
            batch_size=None,
            sampler=(range(start, start + self._local) for start in count(self._first, self._batch)),
            num_workers=self._workers,
            worker_init_fn=_leave_signals_to_the_parent,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # otherwise PyTorch's global generator would advance
        )
        for batch in loader:
            if isinstance(batch, Exception):
                raise batch
            yield batch


def _leave_signals_to_the_parent(worker: int) -> None:
    """Keep a signal to the process group from ending the workers before the run has saved its state."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class _Samples(TorchDataset[Batch | Exception]):
    """Data set of whole batches, indexed by a range of sample numbers.

    An error is returned, not raised, because DataLoader would wrap its message in the worker's traceback.
    """

    def __init__(self, dataset: Dataset, size: tuple[int, int], seed: int) -> None:
        self.dataset, self.size, self.seed = dataset, size, seed

    def __getitem__(self, numbers: range) -> Batch | Exception:
        try:
            samples = [read_sample(self.dataset, n, self.size, self.seed) for n in numbers]
        except (ValueError, OSError) as error:
            return error
        return Batch(*(torch.from_numpy(np.stack(part)).contiguous() for part in zip(*samples, strict=True)))


def read_sample(dataset: Dataset, n: int, size: tuple[int, int], seed: int) -> tuple[_Float, _Float, _Float]:
    """Read sample n: image (3, H, W), flow (C, H, W), 0 where not valid, and valid (1, H, W), of size (H, W)."""
    epoch, place = divmod(n, len(dataset))
    example = dataset[int(_order(seed, epoch, len(dataset))[place])]
    rng = np.random.default_rng([seed, _CROP, n])
    window = _window(example.valid, size, rng)
    valid = example.valid[window]
    image = check_image(example.image[window], valid.shape)
    flow = np.where(valid[..., None], example.truth[window], 0).astype(np.float32)
    if rng.random() < 0.5:
        image, flow, valid = image[:, ::-1], flow[:, ::-1], valid[:, ::-1]
        if flow.shape[2] == 2:
            flow = flow * np.array([-1, 1], np.float32)
    # A frame smaller than the crop is centred in it.
    before = [(want - have) // 2 for want, have in zip(size, valid.shape, strict=True)]
    borders = [(b, want - have - b) for b, want, have in zip(before, size, valid.shape, strict=True)]
    image = np.pad(image, [*borders, (0, 0)], mode="symmetric")
    flow, known = np.pad(flow, [*borders, (0, 0)]), np.pad(valid.astype(np.float32), borders)
    return image.transpose(2, 0, 1), flow.transpose(2, 0, 1), known[None]


def _window(valid: npt.NDArray[np.bool_], size: tuple[int, int], rng: np.random.Generator) -> tuple[slice, slice]:
    """The rows and columns of a random crop, or all of them if there are fewer."""
    room = [max(0, have - want) for have, want in zip(valid.shape, size, strict=True)]
    corner = rng.integers(room, endpoint=True)
    if not valid[_from(corner, size)].any() and valid.any():
        # Sparse truths leave large parts empty (KITTI's sky); a crop without any truth is useless for training.
        places = np.argwhere(valid)
        corner = np.clip(places[rng.integers(len(places))] - rng.integers(size), 0, room)
    return _from(corner, size)


def _from(corner: npt.NDArray[np.int64], size: tuple[int, int]) -> tuple[slice, slice]:
    top, left = corner.tolist()
    return slice(top, top + size[0]), slice(left, left + size[1])


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, length: int) -> npt.NDArray[np.int64]:
    """The order of an epoch's samples."""
    return np.random.default_rng([seed, _ORDER, epoch]).permutation(length)


def _check(argument: str, value: object, fits: bool, rule: str) -> None:
    if not fits:
        raise InputError(f"{argument} must be {rule}, got {value}")
