"""Triton launches with little overhead, and compilation of several kernels in parallel before their first use.

Triton inspects every argument of every launch to find the matching binary; without a recorded graph, as for an image of
a new size, this would take longer than the kernels. Here the key of a binary is only what these kernels are compiled
for: constants, tensor types, and whether tensors are aligned to 16 bytes. Numbers that change from image to image are
exempt from specialisation (`do_not_specialize`) and are not inspected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from flowinpaint.diffusion.kernels.first_use import compiling_for_gpu

_MISALIGNED = 16 - 1
"""The bits of an address that are zero at multiples of 16 bytes."""
_LARGEST = 2**31 - 1
_MOST_COMPILERS = 8
_binaries: dict[tuple[Any, ...], Any] = {}
_numbers: dict[int, tuple[int, int]] = {}
"""Range of the arguments without specialisation of each kernel; keyed by id, because hashing a kernel is slow."""


class _Rehearsal(threading.local):
    """Launches that the current thread's `compile_ahead` has collected; None outside of it."""

    wanted: dict[tuple[Any, ...], tuple[Any, ...]] | None = None


_rehearsal = _Rehearsal()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: int) -> None:
    """`kernel[grid](*arguments, **options)` on the tensors' device, which is the current one.

    All arguments of the kernel are positional: tensors (or None), numbers without specialisation, then constants.
    """
    if not isinstance(kernel, JITFunction):  # Triton's interpreter
        kernel[grid](*arguments, **options)
        return
    begin, end = _numbers.get(id(kernel)) or _look_at(kernel)
    wanted = _rehearsal.wanted
    device = arguments[0].get_device() if wanted is None else torch.cuda.current_device()
    # Pass addresses: given a tensor, Triton would query the driver at every launch.
    addresses: list[int | None] = []
    features: list[Any] = [id(kernel), device, *options.items()]
    bits = 0
    for x in arguments[:begin]:
        if x is None:
            addresses.append(None)
            features.append(None)
        else:
            address = x.data_ptr()
            addresses.append(address)
            features.append(x.dtype)
            bits |= address
    if bits & _MISALIGNED:
        features += [address is None or address & _MISALIGNED == 0 for address in addresses]
    key = (*features, *arguments[end:])
    if wanted is not None:
        wanted.setdefault(key, (kernel, grid, arguments, options))
        return
    binary = _binaries.get(key)
    if binary is None or max(arguments[begin:end]) > _LARGEST:  # a 64-bit number needs another binary
        _binaries[key] = kernel[grid](*arguments, **options)
    else:
        x, y, z = (*grid, 1, 1)[:3]
        stream = driver.active.get_current_stream(device)
        # As Triton does it, but without its hooks.
        binary.run(
            x, y, z, stream, binary.function, binary.packed_metadata, None, None, None, *addresses, *arguments[begin:]
        )


def compile_ahead(work: Callable[[], object]) -> None:
    """Compile the kernels that `work` launches, several at a time; `work` runs, but its launches do nothing.

    Its tensors may be on the device "meta", which uses no memory.
    """
    wanted: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    _rehearsal.wanted = wanted
    try:
        work()
    finally:
        _rehearsal.wanted = None
    device = torch.cuda.current_device()

    def compile_one(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> Any:
        with torch.cuda.device(device):
            return kernel.warmup(*arguments, grid=grid, **options)

    missing = {key: call for key, call in wanted.items() if key not in _binaries}
    with compiling_for_gpu(), ThreadPoolExecutor(min(_MOST_COMPILERS, os.cpu_count() or 1)) as pool:
        for key, binary in zip(missing, pool.map(lambda call: compile_one(*call), missing.values()), strict=True):
            _binaries[key] = binary


def _look_at(kernel: JITFunction[Any]) -> tuple[int, int]:
    free = [parameter.num for parameter in kernel.params if parameter.do_not_specialize]
    assert free == list(range(free[0], free[-1] + 1)), "arguments without specialisation must be consecutive"
    _numbers[id(kernel)] = free[0], free[-1] + 1
    return _numbers[id(kernel)]
