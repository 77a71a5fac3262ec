"""`flowinpaint warmup`."""

from __future__ import annotations

import os
import time
from importlib import import_module

import numpy as np
from rich.text import Text

from flowinpaint.checks import check_device
from flowinpaint.cli.console import output, say, warnings_told
from flowinpaint.cli.options import Device
from flowinpaint.diffusion.kernels import load_multigrid
from flowinpaint.diffusion.kernels.first_use import COMPILATIONS, NO_CACHE
from flowinpaint.extras import is_installed, needs

_PARTS = {
    "pyramids": "flowinpaint.diffusion.kernels.pyramid_cpu",
    "diffusion": "flowinpaint.diffusion.kernels.fsi_cpu",
    "edge weights": "flowinpaint.neuroexplicit.kernels.edge_weights_cpu",
    "steady states": "flowinpaint.diffusion.kernels.multigrid_cpu",
}
"""The modules that compile loops when they are imported, by what these compute."""
_ON_GPU = ("neuroexplicit", "neuroexplicit-paper", "laplace-beltrami")
"""Methods that use all of the GPU kernels together."""
_SIZE = (256, 320)


def command(device: Device = "auto") -> None:
    """Compile the CPU loops and GPU kernels of fills ahead, so that the first fill is fast.

    One run per machine is enough, because a cache on disk keeps the result. GPU kernels are compiled if the device is
    a GPU.
    """
    chosen = check_device(device)
    if is_installed("fast"):
        _compile_loops()
    else:
        say("Note:", "yellow", f"nothing is compiled for the CPU: much faster fills {_need()}.")
    if chosen.type == "cuda":
        _compile_gpu(str(chosen))


def _need() -> str:
    return "need" + needs("fast").removeprefix("needs")


def _compile_loops() -> None:
    """Compile the loops for the CPU, or load them, and say which."""
    start, found = time.perf_counter(), COMPILATIONS
    found.announced = True  # this command has its own lines
    for name, module in _PARTS.items():
        before = time.perf_counter(), len(found.compiled)
        import_module(module)
        if module == _PARTS["steady states"]:
            load_multigrid(check_device("cpu"))
        if new := len(found.compiled) - before[1]:
            say(
                "Compiled:", "green", f"{name}, {new} loop{'s' * (new > 1)} in {time.perf_counter() - before[0]:.1f} s."
            )
    from flowinpaint.methods.amle import load_loop

    load_loop(check_device("cpu"))
    seconds, total = time.perf_counter() - start, len(found.compiled) + len(found.loaded)
    folder = os.path.commonpath(found.folders) if found.folders else ""
    if found.uncached:
        say("Warning:", "yellow", f"the {total} loops for the CPU were compiled for this process alone: {NO_CACHE}.")
    elif found.compiled:
        _tell(
            f"Compiled {len(found.compiled)} of {total} loops for the CPU in {seconds:.1f} s; they are below {folder}."
        )
    else:
        _tell(f"All {total} loops for the CPU were compiled before; they are below {folder}.")


def _compile_gpu(device: str) -> None:
    """Fill a small field with the methods that have kernels for the GPU, twice; the first fill compiles them."""
    from flowinpaint.api import inpaint

    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*_SIZE, 3), np.uint8)
    flow = np.where(rng.random((*_SIZE, 1)) < 0.05, rng.normal(size=(*_SIZE, 2)), np.nan).astype(np.float32)
    seconds = []
    with warnings_told():
        for _ in range(2):
            start = time.perf_counter()
            for method in _ON_GPU:
                inpaint(image, flow, method=method, device=device)
            seconds.append(time.perf_counter() - start)
    _tell(f"First fills on {device}: {seconds[0]:.1f} s; the next: {seconds[1]:.2f} s.")


def _tell(sentence: str) -> None:
    output.print(Text(sentence), soft_wrap=True)
