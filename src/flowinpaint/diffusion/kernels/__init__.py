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

_NEEDS = {"cpu": ("numba", "pip install numba"), "gpu": ("Triton", "pip install triton")}
_SIDE = 32
_SLOWER = "neuroexplicit, neuroexplicit-paper, eed, laplace-beltrami and harmonic"


def kernels_for(operation: str, device: torch.device, fallback: str | None = None) -> ModuleType:
    """The fastest kernels of an operation that run on a device with the installed packages.

    operation: the full module name without suffix, such as "flowinpaint.diffusion.kernels.fsi". fallback: the module
    that runs anywhere, by default `<operation>_reference`.
    """
    suffix = {"cpu": "cpu", "cuda": "gpu"}.get(device.type)
    if suffix is not None:
        name = f"{operation}_{suffix}"
        loaded = sys.modules.get(name)
        if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):  # another thread imports it
            return loaded
        try:
            return import_module(name)
        except ImportError as error:
            _warn_of_plain_kernels(suffix, "" if isinstance(error, ModuleNotFoundError) else str(error))
    return import_module(fallback or f"{operation}_reference")


MULTIGRID = f"{__name__}.multigrid"
FSI = f"{__name__}.fsi"
PYRAMID = f"{__name__}.pyramid"


@cache
def load_multigrid(device: torch.device) -> None:
    """Load the kernels of the steady-state solver, and compile them by solving a small problem."""
    from flowinpaint.diffusion.steady import solve_steady  # which imports this module

    f = torch.arange(2 * _SIDE**2, dtype=torch.float64, device=device).view(1, 2, _SIDE, _SIDE)
    known = f[:, :1] % 7 == 0
    solve_steady(f, known.double(), f.new_full((1, 4, _SIDE, _SIDE), 0.25))


@cache
def _warn_of_plain_kernels(suffix: str, problem: str) -> None:
    """Warn once per process that computations are slow, and why."""
    missing, remedy = _NEEDS[suffix]
    state = f"cannot be imported ({problem})" if problem else "is not installed"
    warnings.warn(
        f"{missing} {state}, so {_SLOWER} run in plain PyTorch, several times slower. Run: {remedy}.", stacklevel=3
    )
