"""`flowinpaint speed`: how long methods take, how much memory, and how that compares with what the machine can do."""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flowinpaint.api import inpaint
from flowinpaint.evaluation.speed_cells import Cell, Given, described, filler, given_at, network_dtype
from flowinpaint.evaluation.speed_counts import Count, explicit_counts, network_counts, neuroexplicit_counts
from flowinpaint.evaluation.speed_floor import Rates, measure_rates, timed
from flowinpaint.evaluation.speed_memory import cpu_memory
from flowinpaint.networks.weights import read_model
from flowinpaint.neuroexplicit.model import Neuroexplicit

LEAST_SECONDS = 1.0
"""Calls are repeated for at least so long."""
WARM_UP = 3
"""Calls that are not counted: the first may compile, the second record a CUDA graph."""


@dataclass(frozen=True)
class Timing:
    """Seconds of the first call, which may compile, and of those after the warm-up."""

    first: float
    samples: list[float]

    @property
    def median(self) -> float:
        """The median of the calls after the warm-up."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the calls is below the one, a quarter above the other."""
        low, high = np.quantile(self.samples, (0.25, 0.75))
        return float(low), float(high)


@dataclass(frozen=True)
class Measurement:
    """What was measured of a cell; `error` says why not.

    call: tensors on the device in and out. end_to_end: `fi.inpaint`. memory: the most bytes beyond those in use before,
    model and input included on a GPU. floor: the seconds that the counts allow at the machine's rates.
    """

    cell: Cell
    call: Timing | None = None
    end_to_end: Timing | None = None
    memory: int | None = None
    counts: list[Count] = field(default_factory=list)
    floor: float | None = None
    error: str | None = None
    notes: list[str] = field(default_factory=list)


def repeat(work: Callable[[], Any], device: torch.device, repeats: int) -> Timing:
    """Time a call at least so often, and for at least LEAST_SECONDS, after the warm-up."""
    first = timed(work, device)
    for _ in range(WARM_UP - 1):
        work()
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < repeats or time.perf_counter() - start < LEAST_SECONDS:
        samples.append(timed(work, device))
    return Timing(first, samples)


def measure_cells(
    cells: Sequence[Cell],
    weights: Mapping[str, Path | None],
    *,
    density: float,
    seed: int,
    repeats: int,
    memory: bool,
    progress: Callable[[Measurement], None],
) -> tuple[list[Measurement], list[Rates]]:
    """Measure each cell, and the rates of each device and type that they compute in.

    memory: also that of the CPU's cells, each in a process of its own; a GPU's is always measured. A cell that fails
    is a measurement with an error. Interrupted (Ctrl-C), it returns those cells that were done, if there are any.
    """
    kinds = list(dict.fromkeys((cell.device, network_dtype(cell)) for cell in cells))
    rates = [measure_rates(torch.device(device), dtype) for device, dtype in kinds]
    measured: list[Measurement] = []
    try:
        for cell in cells:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    given = given_at(cell.height, cell.width, density, seed)
                    result = _measure(cell, weights[cell.method], given, repeats, memory)
                except Exception as error:
                    result = {"error": described(error)}
            notes = list(dict.fromkeys(str(warning.message) for warning in caught))
            measured.append(Measurement(cell, **result, notes=notes))
            progress(measured[-1])
        # Measured again, and the better counts: another program may have been busy at one of the times.
        rates = [
            rate.better(measure_rates(torch.device(rate.device), dtype))
            for rate, (_, dtype) in zip(rates, kinds, strict=True)
        ]
    except KeyboardInterrupt:
        if not measured:
            raise
    by_kind = dict(zip(kinds, rates, strict=True))
    return [_with_floor(m, by_kind[m.cell.device, network_dtype(m.cell)]) for m in measured], rates


def _with_floor(m: Measurement, rates: Rates) -> Measurement:
    if m.error is not None:
        return m
    return replace(m, floor=rates.floor(sum(c.operations for c in m.counts), sum(c.bytes for c in m.counts)))


def counts_of(cell: Cell, weights: Path | None) -> list[Count]:
    """What the method of a cell must compute and move."""
    if weights is None:
        return explicit_counts(cell.height, cell.width)
    model, element = read_model(weights), network_dtype(cell).itemsize
    if isinstance(model, Neuroexplicit):
        return neuroexplicit_counts(model, cell.height, cell.width, element)
    return network_counts(model, cell.height, cell.width, element)


def _measure(cell: Cell, weights: Path | None, given: Given, repeats: int, memory: bool) -> dict[str, Any]:
    device = torch.device(cell.device)
    counts = counts_of(cell, weights)
    before = _clean(device)
    timing = _time_on_device(cell, weights, given, repeats)
    peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None
    _clean(device)
    whole = None
    if cell.precision == "auto":
        method = cell.method if weights is None else weights
        # By the clock: the call ends when the result is in the caller's memory.
        whole = repeat(partial(inpaint, *given, method, device), torch.device("cpu"), repeats)
    if peak is None and memory:
        peak = cpu_memory(cell, weights)
    return {"call": timing, "end_to_end": whole, "memory": peak, "counts": counts}


def _time_on_device(cell: Cell, weights: Path | None, given: Given, repeats: int) -> Timing:
    device = torch.device(cell.device)
    inputs = given.on(device)
    fill = filler(cell.method, weights, device, cell.precision)
    return repeat(partial(fill, *inputs), device, repeats)


def _clean(device: torch.device) -> int:
    """Give back what nobody holds any more, and start to watch the most memory anew: the bytes still in use."""
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
