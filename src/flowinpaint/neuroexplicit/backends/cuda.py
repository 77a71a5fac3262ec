"""CUDA backend: Triton kernels, with the network in half precision; for exact float32 fields.

`recorded.RecordedBackend` wraps it for inference, `cuda_training.CudaTrainingBackend` adds the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.kernels import fsi_gpu, pyramid_gpu
from flowinpaint.networks.network import IMAGENET_MEAN, IMAGENET_STD
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.backends.tiles import tiled_maps
from flowinpaint.neuroexplicit.config import LEVELS, levels_of
from flowinpaint.neuroexplicit.edge_weights import QUARTER, levels_of_maps, operator_of, predicts_all
from flowinpaint.neuroexplicit.kernels.dtm_gpu import PackedDtm
from flowinpaint.neuroexplicit.kernels.dtm_input_gpu import dtm_input, known_sums
from flowinpaint.neuroexplicit.kernels.dtm_training import TrainableDtm
from flowinpaint.neuroexplicit.kernels.edge_weights_gpu import edge_weights
from flowinpaint.neuroexplicit.method import Operator, fill
from flowinpaint.neuroexplicit.reporting import reported
from flowinpaint.progress import Tell
from flowinpaint.result import ProgressCallback

if TYPE_CHECKING:
    from flowinpaint.neuroexplicit.model import Neuroexplicit

MOST_NETWORK_PIXELS = 4_000_000
"""Pixels of a batch. The network processes larger ones in tiles of this size, with about 1 GB of activations."""


class CudaBackend:
    """A model on CUDA without gradient."""

    def __init__(self, model: Neuroexplicit, dtype: torch.dtype = torch.float16) -> None:
        self.config, self._lam, self._dtype = model.config, model.lam, dtype
        self._dtm: PackedDtm | TrainableDtm = self._pack(model)

    def __call__(
        self, image: Tensor, data: DataTerm, start: Tensor | None = None, progress: ProgressCallback | None = None
    ) -> Filled:
        """Fill fields f (B, C, H, W) float32 of images (B, 3, H, W), launch by launch."""
        with torch.autocast("cuda", enabled=False):
            levels = levels_of(data.f.shape[-2], data.f.shape[-1], self.config)
            return fill(image.float(), data, levels, self.config, reported(self, progress), start)

    def repack(self) -> None:
        """Read the weights of the network again."""
        assert isinstance(self._dtm, PackedDtm)
        self._dtm.repack()

    def push(self, data: DataTerm, levels: int) -> list[DataTerm]:
        """The data term of every level, fine to coarse."""
        return pyramid_gpu.push(data, levels)

    def pull(self, data: DataTerm) -> Tensor:
        """A dense field from the given vectors of the coarsest level."""
        return pyramid_gpu.pull(data)

    def refine(self, u: Tensor, data: DataTerm) -> Tensor:
        """The coarser field itself: the first launch of `diffuse` interpolates it."""
        return u

    def network(self, image: Tensor, guess: Tensor | None, data: DataTerm, tell: Tell | None = None) -> list[Tensor]:
        """The maps of the network, (B, 8, h, w) channels last, not cropped to the size of their levels."""
        return [z.permute(0, 3, 1, 2) for z in self._maps(self._input(image, guess, data), tell)]

    def edge_weights(self, maps: list[Tensor], image: Tensor, levels: int) -> Iterable[Operator]:
        """The process of every level, in one launch for all if everything is predicted."""
        size = (image.shape[-2], image.shape[-1])
        config, lam = self.config, self._lam.detach()
        dtype = torch.float16 if config.start == "pull" else torch.float32
        quarter = config.time_step == "quarter"
        if predicts_all(config) and (quarter or levels == LEVELS):
            maps = [z.permute(0, 2, 3, 1) for z in maps]
            tau = None if quarter else _bounds(maps, size)
            weights = edge_weights(maps, lam, size, levels, config.direction_floor, dtype, tau)
        else:
            inputs = levels_of_maps(cut_to_levels(maps, size), image, lam, levels, config)
            weights = [operator_of(*level, config)[0].to(dtype).contiguous() for level in inputs]
        return [Operator(w, QUARTER) for w in weights]  # τ matters only for a soft data term

    def diffuse(self, u: Tensor, data: DataTerm, operator: Operator, steps: int) -> Tensor:
        """One FSI cycle from u, or from the next coarser field."""
        weights, tau = operator
        if weights is None or self.config.start == "pull":
            return fsi_gpu.diffuse(u, data, weights, tau, steps)
        return inpainting_cycle(u, data, weights, steps)

    def _pack(self, model: Neuroexplicit) -> PackedDtm | TrainableDtm:
        return PackedDtm(model.dtm, self._dtype)

    @torch.no_grad()
    def _input(self, image: Tensor, guess: Tensor | None, data: DataTerm) -> Tensor:
        """The network's input (B, H', W', 8)."""
        hints = None if guess is None else (guess, data.known, known_sums(data.f, data.known))
        return dtm_input(image, IMAGENET_MEAN, IMAGENET_STD, hints, self._dtype, 2**self.config.depth)

    def _maps(self, x: Tensor, tell: Tell | None = None) -> Sequence[Tensor]:
        """The network's maps, coarse to fine, (B, h, w, 8), for its input (B, H', W', 8)."""
        B, H, W, _ = x.shape
        if B * H * W <= MOST_NETWORK_PIXELS or isinstance(self._dtm, TrainableDtm):
            return self._dtm(x)
        stride = 2**self.config.depth
        side = max(stride, math.isqrt(MOST_NETWORK_PIXELS // B))
        maps = tiled_maps(
            self._tile, lambda rows, columns: x[:, rows, columns].permute(0, 3, 1, 2), (H, W), side, stride, tell
        )
        return [z.permute(0, 2, 3, 1) for z in maps]

    def _tile(self, x: Tensor, tell: Tell | None = None) -> list[Tensor]:
        """The network on a tile (B, 8, h, w), channels last in memory."""
        return [z.permute(0, 3, 1, 2) for z in self._dtm(x.permute(0, 2, 3, 1).contiguous())]


def cut_to_levels(maps: list[Tensor], size: tuple[int, int]) -> list[Tensor]:
    """The maps cropped to the sizes of their levels, the finest being `size`."""
    return [
        z[..., : (size[0] - 1 >> k) + 1, : (size[1] - 1 >> k) + 1]
        for k, z in zip(reversed(range(LEVELS)), maps, strict=True)
    ]


def _bounds(maps: list[Tensor], size: tuple[int, int]) -> Tensor:
    """The paper's τ = 1 / (4 (1 - min α)) of each level and image, (levels, B)."""
    rows = []
    for k, z in zip(reversed(range(LEVELS)), maps, strict=True):
        h, w = ((side - 1 >> k) + 1 for side in size)
        least = torch.sigmoid(z[:, : h - 1, : w - 1, 0].amin((1, 2)).float()) / 2
        rows.append(1 / (4 * (1 - least)))
    return torch.stack(rows)
