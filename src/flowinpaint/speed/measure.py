"""Time and memory of speed cases: single calls, and many sizes in a row."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flowinpaint.api import inpaint
from flowinpaint.errors import sentence_of
from flowinpaint.interrupts import end_with_parent
from flowinpaint.masks import random_mask
from flowinpaint.speed.cases import Inputs, Size, SpeedCase, fill_function
from flowinpaint.speed.roofline import PeakRates, StageCount, counts_of, measure_rates, timed

LEAST_SECONDS = 1.0
"""Calls are repeated for at least this long."""
WARM_UP = 3
"""Uncounted calls: the first may compile, the second record a CUDA graph."""
STEADY_CALLS = 5
WARM_SIDE = 64
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Timing:
    """Seconds of the first call, which may compile, and of the calls after the warm-up."""

    first: float
    samples: list[float]

    @property
    def median(self) -> float:
        """The median of the calls after the warm-up."""
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and upper quartile of the calls after the warm-up."""
        low, high = np.quantile(self.samples, (0.25, 0.75))
        return float(low), float(high)


@dataclass
class SpeedResult:
    """The measurements of a case, or an error.

    call: input and output are tensors on the device. end_to_end: `fi.inpaint`. memory: peak bytes above those in use
    before the call, on a GPU including model and input. floor: minimum seconds for the counts at the peak rates.
    """

    case: SpeedCase
    call: Timing | None = None
    end_to_end: Timing | None = None
    memory: int | None = None
    counts: list[StageCount] = field(default_factory=list)
    floor: float | None = None
    error: str | None = None
    notes: list[str] = field(default_factory=list)


def repeat(work: Callable[[], Any], device: torch.device, repeats: int) -> Timing:
    """Time a call after the warm-up, at least `repeats` times and for at least LEAST_SECONDS."""
    first = timed(work, device)
    for _ in range(WARM_UP - 1):
        work()
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < repeats or time.perf_counter() - start < LEAST_SECONDS:
        samples.append(timed(work, device))
    return Timing(first, samples)


def measure_cases(
    cases: Sequence[SpeedCase],
    inputs_of: Callable[[int, int], Inputs],
    repeats: int,
    memory: bool,
    progress: Callable[[SpeedResult], None],
) -> tuple[list[SpeedResult], list[PeakRates]]:
    """Measure each case, and the peak rates of each device and type in use.

    inputs_of: a function of height and width. memory: also measure the memory of CPU cases, each in its own process;
    GPU memory is always measured. A case that fails becomes a result with an error. After Ctrl-C the finished cases are
    returned, if there are any.
    """
    kinds = dict.fromkeys((case.device, case.dtype) for case in cases)
    rates = {kind: measure_rates(*kind) for kind in kinds}
    results: list[SpeedResult] = []
    try:
        for case in cases:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    result = _measure(case, inputs_of(case.height, case.width), repeats, memory)
                except Exception as error:
                    result = SpeedResult(case, error=sentence_of(error))
            result.notes = list(dict.fromkeys(str(warning.message) for warning in caught))
            results.append(result)
            progress(result)
        # Keep the better of two measurements, in case another program was busy during one of them.
        rates = {kind: rate.better(measure_rates(*kind)) for kind, rate in rates.items()}
    except KeyboardInterrupt:
        if not results:
            raise
    for result in results:
        if result.error is None:
            result.floor = rates[result.case.device, result.case.dtype].floor(result.counts)
    return results, list(rates.values())


def _measure(case: SpeedCase, inputs: Inputs, repeats: int, memory: bool) -> SpeedResult:
    device, end_to_end = torch.device(case.device), None
    before = _free_memory(device)
    fill = partial(fill_function(case.method, device, case.precision), *inputs.on(device))
    call = repeat(fill, device, repeats)
    peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None
    del fill  # frees the model and its input
    _free_memory(device)
    if case.precision == "auto":
        # Wall-clock time, also on a GPU: the call ends when the result is in the caller's memory.
        end_to_end = repeat(partial(inpaint, *inputs, case.method, device), torch.device("cpu"), repeats)
    if peak is None and memory:
        peak = cpu_memory(case, inputs)
    return SpeedResult(case, call, end_to_end, peak, counts_of(case))


def _free_memory(device: torch.device) -> int:
    """Free unreferenced memory and reset the peak; returns the bytes still in use on a GPU."""
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def cpu_memory(case: SpeedCase, inputs: Inputs) -> int | None:
    """Peak resident bytes of a call, including its input but not the model, measured in a separate process.

    None if the system does not report them: only Linux does.
    """
    if not RESET.exists():
        return None
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        return pool.submit(peak_memory, case, inputs).result()


def peak_memory(case: SpeedCase, inputs: Inputs) -> int:
    """Peak resident bytes of a call above those of this process after filling a small field."""
    device = torch.device(case.device)
    fill = fill_function(case.method, device, case.precision)
    rows, columns = (slice(None, None, -(-side // WARM_SIDE)) for side in inputs.mask.shape)
    image, flow = inputs.image[rows, columns], inputs.flow[rows, columns]
    small = Inputs(image, flow, random_mask((flow.shape[0], flow.shape[1]), 0.05))
    fill(*small.on(device))  # compiles and loads what later calls share
    before = _resident("VmRSS")
    tensors = inputs.on(device)
    RESET.write_text("5")  # resets VmHWM, the peak
    fill(*tensors)
    return max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


@dataclass
class SizeSweep:
    """A method at many sizes: seconds of the first call at each size, and the median of a few later calls.

    error: the reason why it ended early; `sizes` are those measured before.
    """

    method: str
    device: str
    sizes: list[Size] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    error: str | None = None

    @property
    def ratio(self) -> float | None:
        """Total time of the first calls over that of the later ones, without the very first size, which compiles."""
        return sum(self.first[1:]) / sum(self.steady[1:]) if len(self.steady) > 1 else None


def sweep_sizes(
    method: str,
    device: str,
    sizes: Sequence[Size],
    inputs_of: Callable[[int, int], Inputs],
    progress: Callable[[], None],
) -> SizeSweep:
    """Fill fields of different sizes in a row at precision "auto", each a few times.

    A ratio well above 1 means that new sizes cause compilation or recording.
    """
    place, sweep = torch.device(device), SizeSweep(method, device)
    try:
        fill = fill_function(method, place, "auto")
        for size in sizes:
            work = partial(fill, *inputs_of(*size).on(place))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # already reported by the single cases
                first = timed(work, place)
                steady = statistics.median(timed(work, place) for _ in range(STEADY_CALLS))
            sweep.sizes.append(size)
            sweep.first.append(first)
            sweep.steady.append(steady)
            progress()
    except Exception as fault:  # any failure of any method, as for single cases
        sweep.error = sentence_of(fault)
    return sweep


def random_sizes(count: int, sides: tuple[int, int], seed: int) -> list[Size]:
    """Different random sizes (height, width)."""
    rng = np.random.default_rng(seed)
    sizes: dict[Size, None] = {}
    while len(sizes) < count:
        height, width = rng.integers(*sides, size=2, endpoint=True).tolist()
        sizes[height, width] = None
    return list(sizes)
