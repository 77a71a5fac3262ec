"""Description of the machine and the software that results were computed with."""

from __future__ import annotations

import os
import platform
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


def processor_model() -> str:
    """The CPU's model on Linux, else its architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
