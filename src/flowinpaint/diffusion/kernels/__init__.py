"""The inner loops of the multigrid solver, once in plain PyTorch and once for each kind of device.

Every module has the same four functions over the same padded arrays (`grid.Level`); the tests run them against each
other:

    half_sweep(level, u, f, axis, parity)   solve exactly on every second row (axis 0) or column (axis 1)
    residual(level, u, f, out)              out = f - A u
    restrict(level, r, out)                 out = Pᵀ r on the coarser grid
    prolong_add(level, e, u)                u += P e from the coarser grid
"""

from __future__ import annotations

from types import ModuleType

import torch

from flowinpaint.diffusion.kernels import reference


def kernels_for(device: torch.device) -> ModuleType:
    """The fastest kernels that run on a device with what is installed."""
    if device.type == "cpu":
        try:
            from flowinpaint.diffusion.kernels import cpu
        except ImportError:
            return reference
        return cpu
    if device.type == "cuda":
        try:
            from flowinpaint.diffusion.kernels import gpu
        except ImportError:
            return reference
        return gpu
    return reference
