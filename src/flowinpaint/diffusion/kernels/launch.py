"""Launching Triton kernels at a fraction of the usual cost, and compiling them side by side before they are wanted.

Triton looks at every argument of every launch to find the binary that fits, which for an image of a new size, with no
graph recorded, would take longer than the work. Here a launch is told apart by what these kernels are compiled for:
constants, the types of tensors, and whether those begin at multiples of 16 bytes. Numbers that change from image to
image are exempt from specialisation (`do_not_specialize`), and are not looked at.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

_ALIGNMENT = 16
_LARGEST = 2**31 - 1
_MOST_COMPILERS = 8
_binaries: dict[tuple[Any, ...], Any] = {}
_positions: dict[int, tuple[list[int], list[int]]] = {}
"""By a kernel's id, for its hash takes long: which arguments decide about its binary, and which numbers do not."""
_rehearsal = threading.local()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: int) -> None:
    """`kernel[grid](*arguments, **options)`, with all of the kernel's arguments by position."""
    if not isinstance(kernel, JITFunction):  # Triton's interpreter
        kernel[grid](*arguments, **options)
        return
    looked_at, free = _positions.get(id(kernel)) or _look_at(kernel)
    values, features = list(arguments), list[Any]()
    for i in looked_at:
        x = values[i]
        if isinstance(x, Tensor):
            # By address: given a tensor, Triton would ask the driver about it at every launch.
            values[i] = address = x.data_ptr()
            features.append((x.dtype, address % _ALIGNMENT == 0))
        else:
            features.append(x)
    key = (id(kernel), torch.cuda.current_device(), *features, *options.items())
    wanted = getattr(_rehearsal, "wanted", None)
    if wanted is not None:
        wanted.setdefault(key, (kernel, grid, arguments, options))
        return
    binary = _binaries.get(key)
    for i in free:
        if arguments[i] > _LARGEST:  # a 64-bit number, for which the kernel is compiled anew
            binary = None
    if binary is None:
        _binaries[key] = kernel[grid](*arguments, **options)
    else:
        binary[(*grid, 1, 1)[:3]](*values)


def compile_ahead(work: Callable[[], object]) -> None:
    """Compile, several at a time, the kernels that `work` would launch; it runs, but its launches do nothing.

    Its tensors may be on the device "meta", which takes no memory.
    """
    _rehearsal.wanted = {}
    try:
        work()
        wanted = _rehearsal.wanted
    finally:
        del _rehearsal.wanted
    device = torch.cuda.current_device()

    def compile_one(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> Any:
        with torch.cuda.device(device):
            return kernel.warmup(*arguments, grid=grid, **options)

    missing = {key: call for key, call in wanted.items() if key not in _binaries}
    with ThreadPoolExecutor(min(_MOST_COMPILERS, os.cpu_count() or 1)) as pool:
        for key, binary in zip(missing, pool.map(lambda call: compile_one(*call), missing.values()), strict=True):
            _binaries[key] = binary


def _look_at(kernel: JITFunction[Any]) -> tuple[list[int], list[int]]:
    free = [parameter.num for parameter in kernel.params if parameter.do_not_specialize]
    _positions[id(kernel)] = [parameter.num for parameter in kernel.params if parameter.num not in free], free
    return _positions[id(kernel)]
