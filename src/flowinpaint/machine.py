"""Description of the machine and the software that results were computed with."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from flowinpaint.version import __version__


def machine(device: str) -> dict[str, str]:
    """Versions of the software, and the device by name."""
    return {
        "flowinpaint": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": device,
        "device_name": device_name(device),
    }


def device_name(device: str | torch.device) -> str:
    """The name of a GPU, or cores and architecture of the CPU."""
    if str(device).startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return f"{os.cpu_count()} cores, {platform.machine()}"


def usable_cores() -> int:
    """The CPU cores that this process may use, by its affinity and, in a container, by its share of CPU time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = _cpu_quota()
    return max(1, min(cores, round(quota / period)) if quota > 0 else cores)


def _cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> tuple[int, int]:
    """The CPU time that the control group may use in a period of time, in µs; (0, 1) without a limit."""
    with suppress(OSError, ValueError):  # version 2: "max 100000" or "200000 100000"
        quota, period = (root / "cpu.max").read_text(encoding="ascii").split()
        return int(quota), int(period)
    with suppress(OSError, ValueError):
        quota, period = ((root / "cpu" / f"cpu.cfs_{x}_us").read_text(encoding="ascii") for x in ("quota", "period"))
        return int(quota), int(period)
    return 0, 1


def processor_model() -> str:
    """The CPU's model on Linux, else its architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
