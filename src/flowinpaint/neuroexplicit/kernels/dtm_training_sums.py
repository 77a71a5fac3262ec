"""Sums of weight gradients for `dtm_training`: one partial sum per program, added in a fixed order."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.integers import ceil_div, power_of_two
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from flowinpaint.neuroexplicit.kernels import dtm_training_triton
from flowinpaint.neuroexplicit.kernels.dtm_gpu_packing import (
    CHANNELS,
    forward_biases,
    gradient_matrices,
    places,
)

_PROGRAMS = 528
"""Approximate number of programs that share a weight's gradient."""


class GradientSums:
    """Memory for the partial sums of the weights' gradients, and the place of each parameter's sums."""

    def __init__(self, dtm: DiffusionTensorModule) -> None:
        self._shapes = [parameter.shape for parameter in dtm.parameters()]
        self._sizes = [shape.numel() for shape in self._shapes]
        device = dtm.cnv0.weight.device
        place, parts, stride = (torch.zeros(sum(self._sizes) + 1, dtype=torch.int32) for _ in range(3))
        self.parts: dict[str, int] = {}
        self._slices: dict[str, tuple[int, torch.Size]] = {}
        offset = 0
        for name, numbers in places(dtm, gradient_matrices).items():
            self.parts[name] = max(1, _PROGRAMS // _tiles(name, *numbers.shape))
            self._slices[name] = (offset, numbers.shape)
            place[numbers.flatten()] = offset + torch.arange(numbers.numel(), dtype=torch.int32)
            parts[numbers.flatten()] = self.parts[name]
            stride[numbers.flatten()] = numbers.numel()
            offset += self.parts[name] * numbers.numel()
        for name, numbers in places(dtm, forward_biases).items():
            numbers = numbers[: numbers.numel() // 4] if name.startswith("dcnv") else numbers  # without its copies
            self._slices[f"{name}.bias"] = (offset, numbers.shape)
            place[numbers] = offset + torch.arange(numbers.numel(), dtype=torch.int32)
            parts[numbers] = 1
            offset += numbers.numel()
        self._place, self._parts, self._stride = (table[1:].to(device) for table in (place, parts, stride))
        self._memory = torch.empty(offset, device=device)

    def __getitem__(self, name: str) -> Tensor:
        """(parts, rows, columns) of a weight, or the sums of a bias, by the name of the matrix."""
        offset, shape = self._slices[name]
        parts = self.parts.get(name)
        flat = self._memory[offset : offset + (parts or 1) * shape.numel()]
        return flat if parts is None else flat.view(parts, *shape)

    def gradients(self) -> list[Tensor]:
        """The total gradients, in the shapes and order of the module's parameters."""
        out = torch.empty(sum(self._sizes), device=self._memory.device)
        grid = (ceil_div(out.numel(), 256),)
        launch(
            dtm_training_triton.gather_sums,
            grid,
            self._memory,
            self._place,
            self._parts,
            self._stride,
            out,
            out.numel(),
            256,
        )
        return [part.view(shape) for part, shape in zip(out.split(self._sizes), self._shapes, strict=True)]


def block(channels: int) -> int:
    """Channels of a tile of a weight's gradient: at most 128, but 64 where the last tile would be at most half full."""
    return 64 if 0 < channels % 128 <= 64 else min(128, power_of_two(channels))


def _tiles(name: str, rows: int, columns: int) -> int:
    """Number of tiles of a matrix in the kernels; for a source of eight channels, one tile covers all taps."""
    across = -(-columns // block(columns))
    if rows == 9 * CHANNELS:
        return across
    taps = 4 if name.startswith("dcnv") else 9
    channels = rows // taps
    return taps * -(-channels // block(channels)) * across
