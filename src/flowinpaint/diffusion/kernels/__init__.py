"""The inner loops of the multigrid solver: in plain PyTorch (`reference`), for the CPU (`cpu`) and for CUDA (`gpu`).

Every module has the same functions over the same padded arrays (`grid.Level`); the tests run them against each other:

    half_sweep(level, u, f, axis, parity, fresh)    solve exactly on every second row (axis 0) or column (axis 1)
    residual(level, u, f, out)              out = f - A u
    restrict(level, r, out)                 out = Pᵀ r on the coarser grid
    prolong_add(level, e, u)                u += P e from the coarser grid
    dot(a, b), scale_add(a, s, b), add_scaled(a, s, b)      aᵀb, a = s a + b, a = a + s b, for each channel
    for_each(work, parts)                   work(part) for independent parts, side by side where that helps
    interpolation(d, w), galerkin(d, w, p), invert_pivots(d, w)     what a grid is built from
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from flowinpaint.diffusion.kernels import multigrid_reference as reference


def kernels_for(device: torch.device) -> ModuleType:
    """The fastest kernels that run on a device with what is installed."""
    if device.type not in ("cpu", "cuda"):
        return reference
    try:
        return import_module(f"{__name__}.multigrid_{'gpu' if device.type == 'cuda' else 'cpu'}")
    except ImportError:
        _warn_of_plain_kernels(device.type)
        return reference


@cache
def _warn_of_plain_kernels(kind: str) -> None:
    """Say once why a solve is slow."""
    missing, remedy = ("numba", "pip install numba") if kind == "cpu" else ("triton", "pip install triton")
    warnings.warn(
        f"{missing} is not installed, so steady states are solved in plain PyTorch, many times more slowly: {remedy}.",
        stacklevel=2,
    )
