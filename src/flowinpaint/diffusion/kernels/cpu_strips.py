"""Threads that share the rows of a compiled loop.

The loops release the GIL. numba's own parallel loops take several times as long to compile, and its thread layers abort
the process when it forks or when two threads call them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")

SMALLEST_SHARE = 1 << 15
"""Number of field values below which another thread costs more time than it saves."""


def threads_for(rows: int, work: int) -> int:
    """Number of threads for `rows` rows with `work` values in total."""
    return max(1, min(torch.get_num_threads(), rows, work // SMALLEST_SHARE))


def in_strips(loop: Callable[..., None], rows: int, work: int, *operands: Any) -> None:
    """Call loop(*operands, start, stop) over range(rows), in several threads if there is enough work."""
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in operands]
    together(lambda bounds: loop(*arrays, *bounds), bounds_of(rows, threads_for(rows, work)))


def bounds_of(count: int, parts: int) -> list[tuple[int, int]]:
    """Split range(count) into `parts` ranges of nearly equal length."""
    return [(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


def together(work: Callable[[Part], object], parts: Sequence[Part]) -> None:
    """Call `work` on every part in parallel and wait for all; `work` must not call this function."""
    others = [_pool(torch.get_num_threads()).submit(work, part) for part in parts[1:]]
    for part in parts[:1]:
        work(part)
    for other in others:
        other.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="flowinpaint")


if hasattr(os, "register_at_fork"):
    # The threads do not survive a fork, so a child that uses any starts its own. `forked` is about PyTorch's threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)
