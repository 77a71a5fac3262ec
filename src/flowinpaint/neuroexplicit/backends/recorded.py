"""CUDA graphs around the Triton backend: one recorded graph per image size that occurs more than once.

A new size runs launch by launch and is recorded on its second occurrence, so a folder of fifty sizes does not cause
fifty recordings. Large images always run launch by launch, so that memory stays bounded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels.launch import compile_ahead
from flowinpaint.diffusion.kernels.recording import Memory, new_memory, record
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.backends.cuda import CudaBackend
from flowinpaint.neuroexplicit.edge_weights import predicts_all
from flowinpaint.result import ProgressCallback

MOST_GRAPHS = 16
"""Recorded sizes that are kept; the least recently used one is dropped first."""
REHEARSED = ((64, 64), (448, 1024), (1088, 1920))
"""Sizes that between them need all kernel variants."""
MOST_SEEN = 4096
"""Sizes that are remembered as seen before."""
MOST_RECORDED_PIXELS = 4_000_000
"""Pixels of a batch. For larger ones launch overhead is negligible, and a recording would keep its memory."""


class _Record(NamedTuple):
    """A recorded run and the memory that it reads from and writes to."""

    graph: torch.cuda.CUDAGraph
    image: Tensor
    known: Tensor
    flow: Tensor
    result: Filled


class RecordedBackend:
    """A CUDA backend for exact float32 fields; calls of several threads and streams take turns."""

    def __init__(self, backend: CudaBackend) -> None:
        self._backend = backend
        self._records: OrderedDict[tuple[int, ...], _Record] = OrderedDict()
        self._seen: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._compiled: set[int] = set()
        self._memory: Memory | None = None
        self._last: torch.cuda.Event | None = None
        self._lock = threading.Lock()

    def __call__(
        self, image: Tensor, data: DataTerm, start: Tensor | None = None, progress: ProgressCallback | None = None
    ) -> Filled:
        """Fill fields f (B, C, H, W) float32 of images (B, 3, H, W).

        progress: called by a run without a graph; a replay is a single launch.
        """
        flow = data.f
        if not flow.is_cuda:  # Triton's interpreter
            return self._backend(image, data, start, progress)
        with self._lock, torch.no_grad(), torch.cuda.device_of(flow):  # type: ignore[no-untyped-call]
            if torch.cuda.is_current_stream_capturing():  # into the caller's graph
                return self._backend(image, data, start)
            self._wait_for_last()
            self._compile(flow.shape[1])
            key = tuple(flow.shape)
            if start is not None:
                return self._backend(image, data, start, progress)
            if key in self._records:
                self._records.move_to_end(key)
            elif self._is_due(key):
                self._records[key] = self._record(key, flow.device)
            else:
                return self._backend(image, data, progress=progress)
            return self._replay(self._records[key], image, data)

    def repack(self) -> None:
        """Read the network's weights again; only these are copied to another layout."""
        with self._lock:
            self._wait_for_last()
            self._backend.repack()

    def _wait_for_last(self) -> None:
        """Make this stream wait for the last replay: another stream may still use the same memory."""
        if self._last is not None:
            self._last.wait()

    def _compile(self, channels: int) -> None:
        """Compile all kernels for fields with this number of channels, so that later sizes need not wait."""
        config = self._backend.config
        fused_all_the_way = predicts_all(config) and config.start == "pull" and config.time_step == "quarter"
        if channels in self._compiled or not fused_all_the_way:
            return

        def rehearse() -> None:
            for H, W in REHEARSED:
                image, flow = (torch.empty(1, n, H, W, device="meta") for n in (3, channels))
                self._backend(image, DataTerm(flow, torch.empty(1, 1, H, W, dtype=torch.bool, device="meta")))

        compile_ahead(rehearse)
        self._compiled.add(channels)

    def _is_due(self, key: tuple[int, ...]) -> bool:
        """Whether a size should be recorded: it was seen before and is not too large."""
        came_before = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        B, _, H, W = key
        return came_before and B * H * W <= MOST_RECORDED_PIXELS

    def _record(self, shape: tuple[int, ...], device: torch.device) -> _Record:
        B, _, H, W = shape
        with torch.inference_mode(False):  # memory that calls in any mode may write to
            image, flow = torch.zeros(B, 3, H, W, device=device), torch.zeros(shape, device=device)
            known = torch.zeros(B, 1, H, W, dtype=torch.bool, device=device)
        results: list[Filled] = []
        # All graphs share one memory pool: the intermediate results of a run are not needed after it.
        self._memory = self._memory or new_memory()
        graph = record(lambda: results.append(self._backend(image, DataTerm(flow, known))), self._memory)
        if len(self._records) >= MOST_GRAPHS:
            self._records.popitem(last=False)
        return _Record(graph, image, known, flow, results[-1])

    def _replay(self, record: _Record, image: Tensor, data: DataTerm) -> Filled:
        record.image.copy_(image)
        record.known.copy_(data.known)
        record.flow.copy_(data.f)
        record.graph.replay()
        field, log_error = record.result
        result = Filled(field.clone(), None if log_error is None else log_error.clone())
        self._last = torch.cuda.current_stream().record_event()
        return result
