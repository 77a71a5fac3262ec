"""Kernels of the diffusion: inner loops in plain PyTorch, for the CPU (numba) and for CUDA (Triton).

An operation is a set of modules with the same functions, which the tests compare with each other:
`<operation>_reference` runs anywhere, `<operation>_cpu` needs numba, `<operation>_gpu` needs Triton. The operations are

multigrid: relaxation, residual, transfer and set-up on the padded arrays of `multigrid.Level`.
    half_sweep(level, u, f, axis, parity, fresh)    solve exactly on every second row (axis 0) or column (axis 1)
    residual(level, u, f, out)                      out = f - A u
    restrict(level, r, out), prolong_add(level, e, u)       out = Pᵀ r on the coarser grid, u += P e from it
    dot(a, b), scale_add(a, s, b), add_scaled(a, s, b)      aᵀb, a = s a + b, a = a + s b, for each channel
    for_each(work, parts)                           work(part) for independent parts, in parallel where that helps
    interpolation(d, w), galerkin(d, w, p), invert_pivots(d, w)     set-up of a grid
fsi: an FSI cycle (`diffuse`), its steps for the gradient (`advance`) and their adjoint (`retreat`).
pyramid: `push`, `pull` and `refine` of `diffusion.pyramid`.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from flowinpaint.diffusion.kernels.first_use import compiling

_NEEDS = {"cpu": ("numba", "pip install 'flowinpaint[fast]'"), "gpu": ("Triton", "pip install triton")}
_SLOWER = "neuroexplicit, neuroexplicit-paper, eed, laplace-beltrami and harmonic"


def kernels_for(operation: str, device: torch.device, fallback: str | None = None) -> ModuleType:
    """The fastest kernels of an operation that run on a device with the installed packages.

    operation: the full module name without suffix, such as "flowinpaint.diffusion.kernels.fsi". fallback: the module
    that runs anywhere, by default `<operation>_reference`.
    """
    suffix = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
    if suffix is not None:
        name = f"{operation}_{suffix}"
        if (loaded := sys.modules.get(name)) is not None:
            return loaded
        try:
            with compiling():
                return import_module(name)
        except ImportError:
            _warn_of_plain_kernels(suffix)
    return import_module(fallback or f"{operation}_reference")


MULTIGRID = f"{__name__}.multigrid"
FSI = f"{__name__}.fsi"
PYRAMID = f"{__name__}.pyramid"


def load_multigrid(device: torch.device) -> None:
    """Load the kernels of the steady-state solver; the first use compiles them."""
    kernels_for(MULTIGRID, device)


@cache
def _warn_of_plain_kernels(suffix: str) -> None:
    """Warn once per process that computations are slow, and why."""
    missing, remedy = _NEEDS[suffix]
    warnings.warn(
        f"{missing} is not installed, so {_SLOWER} run in plain PyTorch, many times slower: {remedy}", stacklevel=3
    )
