"""What the machine can do at best, measured here and now: copying memory and multiplying matrices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

COPY_BYTES = {"cpu": 2**28, "cuda": 2**31}
"""Far more than any cache holds."""
MATRIX_SIDE = {"cpu": 2048, "cuda": 8192}
TRIALS = 7


@dataclass(frozen=True)
class Rates:
    """The best that was seen: bytes per second, read and written ones both counted, and operations per second."""

    device: str
    dtype: str
    copy: float
    matrix: float

    def floor(self, operations: int, moved: int) -> float:
        """The least seconds for so many operations and bytes, if neither waits for the other."""
        return max(operations / self.matrix, moved / self.copy)

    def better(self, other: Rates) -> Rates:
        """The larger of each rate of two measurements."""
        return replace(self, copy=max(self.copy, other.copy), matrix=max(self.matrix, other.matrix))


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Copy a large buffer and multiply two square matrices, a few times each; the fastest time counts."""
    return Rates(str(device), str(dtype).removeprefix("torch."), copy_rate(device), matrix_rate(device, dtype))


def copy_rate(device: torch.device) -> float:
    """Bytes per second."""
    source = torch.zeros(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / _fastest(lambda: target.copy_(source), device)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second; in float32 on CUDA as cuDNN convolves: in TF32, unless that was switched off."""
    n = MATRIX_SIDE[device.type]
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(n, n, dtype=dtype, device=device, generator=generator) for _ in range(2))
    out = torch.empty_like(a)
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        torch.set_float32_matmul_precision("high")
    try:
        return 2 * n**3 / _fastest(lambda: torch.mm(a, b, out=out), device)
    finally:
        torch.set_float32_matmul_precision(before)


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    work()
    return min(timed(work, device) for _ in range(TRIALS))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """The seconds of one call: between CUDA events on a GPU, by the clock elsewhere."""
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
    return float(begin.elapsed_time(end)) / 1000
