"""CUDA graphs: record a sequence of launches and replay it at the cost of a single launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Memory(NamedTuple):
    """Memory pool and stream of recorded work; graphs that never run concurrently may share them."""

    pool: Any
    stream: torch.cuda.Stream


def new_memory() -> Memory:
    """A new, empty memory pool and a stream on the current device."""
    return Memory(torch.cuda.graph_pool_handle(), torch.cuda.Stream())


def record(work: Callable[[], None], memory: Memory | None = None) -> torch.cuda.CUDAGraph:
    """A graph of the launches of `work` on the current device, which are recorded but not executed.

    Unlike `torch.cuda.graph` this empties PyTorch's memory cache only if memory runs out: later allocations would have
    to wait for the driver. Other threads may use the device meanwhile.
    """
    memory = memory or new_memory()
    try:
        return _capture(work, memory)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return _capture(work, memory)


def _capture(work: Callable[[], None], memory: Memory) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    memory.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(memory.stream):
        graph.capture_begin(memory.pool, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(memory.stream)
    return graph
