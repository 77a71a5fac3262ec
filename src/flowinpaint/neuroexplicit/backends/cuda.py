"""A model's fast way on CUDA: half precision, fused kernels, and a recorded graph for every size that comes again.

    push f and c down the levels → guess → network → edge weights of all levels → diffusion, coarse to fine

A size that is new runs launch by launch, and is recorded when it comes a second time: a folder of fifty sizes costs no
fifty recordings. Big images run launch by launch as well, and their network in tiles, so that memory stays bounded.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.kernels.fsi_gpu import diffuse_levels
from flowinpaint.diffusion.kernels.launch import compile_ahead
from flowinpaint.diffusion.kernels.recording import Memory, new_memory, record
from flowinpaint.diffusion.pyramid import image_pyramid, upsample
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.backends.cuda_input import prepare
from flowinpaint.neuroexplicit.backends.tiles import tiled_maps
from flowinpaint.neuroexplicit.config import LEVELS
from flowinpaint.neuroexplicit.edge_weights import edge_weights_of, predicts_all
from flowinpaint.neuroexplicit.kernels.dtm_gpu import PackedDtm
from flowinpaint.neuroexplicit.kernels.edge_weights_gpu import edge_weights
from flowinpaint.neuroexplicit.levels import Known, extend, per_level

if TYPE_CHECKING:
    from flowinpaint.neuroexplicit.model import Neuroexplicit

MOST_GRAPHS = 16
"""Recorded sizes that are kept, the least recently used one going first."""
REHEARSED = ((64, 64), (448, 1024), (1088, 1920))
"""Sizes for which kernels differ."""
MOST_SEEN = 4096
"""Sizes of which it is remembered that they came before."""
MOST_RECORDED_PIXELS = 4_000_000
"""Of a batch. Larger ones take so long that launches are nothing beside it, and a record would hold their memory."""
MOST_NETWORK_PIXELS = 4_000_000
"""Of a batch. Larger ones go through the network in tiles of so many pixels, with about a gigabyte of activations."""


class _Record(NamedTuple):
    """A recorded run and the memory that it reads from and writes to."""

    graph: torch.cuda.CUDAGraph
    image: Tensor
    known: Tensor
    flow: Tensor
    result: Filled


class CudaInference:
    """A model on CUDA, for float32 fields; calls of several threads and streams take their turns."""

    def __init__(self, model: Neuroexplicit) -> None:
        self.config, self._lam = model.config, model.lam
        self._dtm = PackedDtm(model.dtm, torch.float16)
        self._records: OrderedDict[tuple[int, ...], _Record] = OrderedDict()
        self._seen: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._compiled: set[int] = set()
        self._memory: Memory | None = None
        self._last: torch.cuda.Event | None = None
        self._lock = threading.Lock()

    def __call__(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """Image (B, 3, H, W), mask (B, 1, H, W), flow (B, C, H, W) float32 → (B, C, H, W), and its error."""
        if not flow.is_cuda:  # Triton's interpreter
            return self._fill(image.float(), flow, mask > 0)
        with self._lock, torch.no_grad(), torch.cuda.device_of(flow):  # type: ignore[no-untyped-call]
            if torch.cuda.is_current_stream_capturing():  # into a graph of the caller's
                return self._fill(image.float(), flow, mask > 0)
            self._wait_for_last()
            self._compile(flow.shape[1])
            key = tuple(flow.shape)
            if key in self._records:
                self._records.move_to_end(key)
            elif self._is_due(key):
                self._records[key] = self._record(key, flow.device)
            else:
                return self._fill(image.float(), flow, mask > 0)
            return self._replay(self._records[key], image, flow, mask)

    def repack(self) -> None:
        """Take the model's weights again, of which only the network's are kept in another form."""
        with self._lock:
            self._wait_for_last()
            self._dtm.repack()

    def _fill(self, image: Tensor, flow: Tensor, known: Tensor) -> Filled:
        """The model's `fill`, launch by launch."""
        with torch.autocast("cuda", enabled=False):
            H, W = flow.shape[-2:]
            x, levels, start = prepare(image, flow, known, self.config, torch.float16)
            image = extend(image, levels[-1][0].shape[-2], levels[-1][0].shape[-1])
            maps = self._maps(x)
            log_error = None
            if self.config.confidence:
                log_error = maps[-1][:, None, :H, :W, self.config.predicted].float()
            weights = self._edge_weights(maps, image, len(levels))
            del maps
            return Filled(self._diffuse(start, levels, weights)[..., :H, :W].contiguous(), log_error)

    def _maps(self, x: Tensor) -> list[Tensor]:
        """The network's maps, coarse to fine, (B, h, w, 8), of its input (B, H', W', 8)."""
        B, H, W, _ = x.shape
        if B * H * W <= MOST_NETWORK_PIXELS:
            return self._dtm(x)
        stride = self._dtm.stride
        side = max(stride, math.isqrt(MOST_NETWORK_PIXELS // B))
        maps = tiled_maps(
            self._tile, lambda rows, columns: x[:, rows, columns].permute(0, 3, 1, 2), (H, W), side, stride
        )
        return [z.permute(0, 2, 3, 1) for z in maps]

    def _tile(self, x: Tensor) -> list[Tensor]:
        """The network on a tile, channels second in name only."""
        return [z.permute(0, 3, 1, 2) for z in self._dtm(x.permute(0, 2, 3, 1).contiguous())]

    def _edge_weights(self, maps: list[Tensor], image: Tensor, count: int) -> list[Tensor]:
        """τ times the edge weights (B, 4, h, w) of every level, coarse to fine."""
        size = (image.shape[-2], image.shape[-1])
        config, lam = self.config, self._lam.detach()
        dtype = torch.float16 if config.start == "pull" else torch.float32
        if predicts_all(config) and config.time_step == "quarter":
            return edge_weights(maps, lam, size, count, config.direction_floor, dtype)
        if predicts_all(config) and count == LEVELS:
            return edge_weights(maps, lam, size, count, config.direction_floor, dtype, _bounds(maps, size))
        images = image_pyramid(image, count)
        sizes = [x.shape[-2:] for x in images]
        z = [
            y.permute(0, 3, 1, 2)[:, : config.predicted, :h, :w]
            for y, (h, w) in zip(maps, sizes[-LEVELS:], strict=True)
        ]
        z[:1] = image_pyramid(z[0], 1 + count - LEVELS)
        lams = [lam[0]] * (count - LEVELS) + list(lam)
        return [edge_weights_of(*level, config).to(dtype).contiguous() for level in zip(z, images, lams, strict=True)]

    def _diffuse(self, u: Tensor, levels: list[Known], weights: list[Tensor]) -> Tensor:
        """One FSI cycle a level, coarse to fine."""
        steps = per_level(self.config.steps, len(levels))
        if self.config.start == "pull":
            return diffuse_levels(u, levels, weights, steps)
        for k, (count, (f, known), w) in enumerate(zip(steps, levels, weights, strict=True)):
            # In the paper the given vectors enter only after the first step.
            u = inpainting_cycle(upsample(u, (f.shape[-2], f.shape[-1])) if k else u, f, known, w, count)
        return u

    def _wait_for_last(self) -> None:
        """Let this stream wait for the last replay: another one may still be at work in the same memory."""
        if self._last is not None:
            self._last.wait()

    def _compile(self, channels: int) -> None:
        """Compile all kernels for fields of so many channels at once: later sizes wait for none, the first for less."""
        config = self.config
        fused_all_the_way = predicts_all(config) and config.start == "pull" and config.time_step == "quarter"
        if channels in self._compiled or not fused_all_the_way:
            return

        def rehearse() -> None:
            for H, W in REHEARSED:
                image, flow = (torch.empty(1, n, H, W, device="meta") for n in (3, channels))
                self._fill(image, torch.empty(1, 1, H, W, dtype=torch.bool, device="meta"), flow)

        compile_ahead(rehearse)
        self._compiled.add(channels)

    def _is_due(self, key: tuple[int, ...]) -> bool:
        """Whether a size is to be recorded: it came before, and is not too large."""
        came_before = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        B, _, H, W = key
        return came_before and B * H * W <= MOST_RECORDED_PIXELS

    def _record(self, shape: tuple[int, ...], device: torch.device) -> _Record:
        B, _, H, W = shape
        with torch.inference_mode(False):  # memory that calls of any mode may write to
            image, flow = torch.zeros(B, 3, H, W, device=device), torch.zeros(shape, device=device)
            known = torch.zeros(B, 1, H, W, dtype=torch.bool, device=device)
        results: list[Filled] = []
        # One memory for all: what a run computes on the way is of no use after it, so the next record may lie there.
        self._memory = self._memory or new_memory()
        graph = record(lambda: results.append(self._fill(image, flow, known)), self._memory)
        if len(self._records) >= MOST_GRAPHS:
            self._records.popitem(last=False)
        return _Record(graph, image, flow, known, results[-1])

    def _replay(self, record: _Record, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        record.image.copy_(image)
        torch.gt(mask, 0, out=record.known)
        record.flow.copy_(flow)
        record.graph.replay()
        field, log_error = record.result
        result = Filled(field.clone(), None if log_error is None else log_error.clone())
        self._last = torch.cuda.current_stream().record_event()
        return result


def _bounds(maps: list[Tensor], size: tuple[int, int]) -> Tensor:
    """The paper's τ = 1 / (4 (1 - min α)) of each level and image, (levels, B)."""
    rows = []
    for k, z in zip(reversed(range(LEVELS)), maps, strict=True):
        h, w = ((side - 1 >> k) + 1 for side in size)
        least = torch.sigmoid(z[:, : h - 1, : w - 1, 0].amin((1, 2)).float()) / 2
        rows.append(1 / (4 * (1 - least)))
    return torch.stack(rows)
