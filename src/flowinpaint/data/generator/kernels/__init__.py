"""The pixels of a layered scene in Triton, for CUDA: what `LayeredFlow.render` does in PyTorch, in eight launches."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import torch


def scene_kernels(device: torch.device) -> ModuleType | None:
    """The module whose `render` is fastest on a device, or None where that is plain PyTorch."""
    if device.type != "cuda":
        return None
    try:
        return import_module(f"{__name__}.scene_gpu")
    except ImportError:
        return None
