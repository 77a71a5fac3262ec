"""CUDA graphs: what was launched once is launched again at the cost of a single launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Memory(NamedTuple):
    """Where recorded work computes: graphs that run in turns may share it, if they are recorded on the same stream."""

    pool: Any
    stream: torch.cuda.Stream


def new_memory() -> Memory:
    """Memory of the current device, of which nothing is taken yet."""
    return Memory(torch.cuda.graph_pool_handle(), torch.cuda.Stream())


def record(work: Callable[[], None], memory: Memory | None = None) -> torch.cuda.CUDAGraph:
    """A graph of what `work` launches on the current device; the work itself is not done.

    Unlike `torch.cuda.graph` this leaves PyTorch's cache of memory alone, unless memory runs out: whoever came next
    would wait for the driver to hand it out again. Other threads may go on as they like.
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
