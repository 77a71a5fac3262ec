"""Many sizes in a row: whether each new one costs more than its computation, by compiling or recording anew."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from flowinpaint.evaluation.speed_cells import Size, described, filler, given_at
from flowinpaint.evaluation.speed_floor import timed

STEADY_CALLS = 5


@dataclass(frozen=True)
class ManySizes:
    """A method on a device: for each size the seconds of the first call, and the median of a few after it."""

    method: str
    device: str
    sizes: list[Size]
    first: list[float]
    steady: list[float]
    error: str | None = None
    """What went wrong, if anything did; the sizes are those before it."""

    @property
    def ratio(self) -> float | None:
        """The first calls over the steady ones, in sum; the very first size, which compiles, is left out."""
        return sum(self.first[1:]) / sum(self.steady[1:]) if len(self.steady) > 1 else None


def measure_many_sizes(
    method: str,
    weights: Path | None,
    device: str,
    count: int,
    sides: tuple[int, int],
    *,
    density: float,
    seed: int,
    progress: Callable[[], None],
) -> ManySizes:
    """Fill a field of each of so many sizes, at the precision "auto", and then the same again a few times.

    sides: the least and the largest that is drawn.
    """
    place = torch.device(device)
    sizes, first, steady, error = drawn_sizes(count, sides, seed), list[float](), list[float](), None
    try:
        fill = filler(method, weights, place, "auto")
        for size in sizes:
            work = partial(fill, *given_at(*size, density, seed).on(place))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what there is to say was said of the single sizes
                seconds = timed(work, place)
                steady.append(statistics.median(timed(work, place) for _ in range(STEADY_CALLS)))
            first.append(seconds)
            progress()
    except Exception as fault:  # of whatever method, as with single sizes
        error = described(fault)
    return ManySizes(method, device, sizes[: len(first)], first, steady, error)


def drawn_sizes(count: int, sides: tuple[int, int], seed: int) -> list[Size]:
    """Different sizes, (height, width), at random."""
    rng = np.random.default_rng(seed)
    sizes: dict[Size, None] = {}
    while len(sizes) < count:
        height, width = rng.integers(*sides, size=2, endpoint=True).tolist()
        sizes[height, width] = None
    return list(sizes)
