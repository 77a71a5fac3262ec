"""The roofline: operations and bytes that a method needs at least, and the machine's measured peak rates.

The counts follow from the architecture. An operation is an addition or a multiplication. A byte counts when it has to
go through memory, assuming that only the following stays on the chip:

- in a network, nothing from layer to layer: each layer reads its input and weights once and writes its result once, in
  the network's type; concatenations are not written, and channels are not padded;
- in diffusion, a whole cycle of steps: its start, the edge weights (in the network's type) and the known pixels (a byte
  each) are read once, and the result is written once, in float32. `stepwise` counts the bytes without this fusion: each
  step reads two iterates, edge weights and known pixels, and writes one.

A cache that holds a whole layer can beat this, so the floor is a yardstick, not a law.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.networks.network import Network
from flowinpaint.networks.weights import read_model
from flowinpaint.neuroexplicit.config import START_STEPS, extended_size, levels_of, per_level
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.speed.cases import SpeedCase

FLOAT, FLAG, IMAGE = 4, 1, 3
"""Bytes of a float32 and of a flag; channels of an image."""
STEP_OPERATIONS = 3 * 8 + 4
"""One channel of one pixel in one diffusion step: difference, product and sum for 8 neighbours, 4 to extrapolate."""
ISOTROPIC_OPERATIONS = 2 * 4 + 1 + 4
"""The same for the isotropic operator: differences and sums of 4 neighbours, a product, 4 to extrapolate."""
WEIGHT_OPERATIONS = 50
"""One pixel's edge weights: sigmoid, two diffusivities, normalised orientation, tensor, δ, four sums of two cells."""
COPY_BYTES = {"cpu": 2**28, "cuda": 2**31}
"""Far larger than any cache."""
MATRIX_SIDE = {"cpu": 2048, "cuda": 8192}
TRIALS = 7


@dataclass(frozen=True)
class StageCount:
    """Operations and bytes of one stage of a method for one image; `stepwise`: bytes without fused steps."""

    stage: str
    operations: int
    bytes: int
    stepwise: int


def counts_of(case: SpeedCase, weights: Path | None) -> list[StageCount]:
    """The counts of a case's method, by stage."""
    if weights is None:
        return explicit_counts(case.height, case.width)
    model, element = read_model(weights), case.dtype.itemsize
    if isinstance(model, Neuroexplicit):
        return neuroexplicit_counts(model, case.height, case.width, element)
    return network_counts(model, case.height, case.width, element)


def explicit_counts(height: int, width: int, channels: int = 2) -> list[StageCount]:
    """A method without weights, whose solver is not counted: image, field and mask in, field out."""
    return [_once("input and output", 0, FLOAT * height * width * (IMAGE + channels + 1 + channels))]


def neuroexplicit_counts(
    model: Neuroexplicit, height: int, width: int, element: int, channels: int = 2
) -> list[StageCount]:
    """The stages of a neuroexplicit model; element: bytes of a number in the network, 2 in half precision.

    Learned kernels (+W) count as the stencil that they replace.
    """
    config = model.config
    levels = levels_of(height, width, config)
    height, width = extended_size(height, width, levels)
    sizes = level_sizes(height, width, levels)
    padded = _padded(height, model) * _padded(width, model)
    weights = 4 * element
    counts = [_pyramid(sizes, level_sizes(height, width) if config.start == "pull" else sizes, channels)]
    if config.start == "pull":
        counts.append(_cycles("start", sizes[-1:], [START_STEPS], channels, ISOTROPIC_OPERATIONS, 0))
    inputs, seen = IMAGE, FLOAT * IMAGE
    if config.flow_aware:
        counts.append(
            _cycles("first guess", sizes, per_level(config.guess_steps, levels), channels, ISOTROPIC_OPERATIONS, 0)
        )
        # The guess once, the known vectors twice: for their mean and for the mean deviation from it.
        seen += FLOAT * channels + 2 * (FLOAT * channels + FLAG) + FLAG
        inputs = model.dtm.cnv0.in_channels
    counts.append(_once("input", 2 * inputs * padded, seen * sizes[0] + element * inputs * padded))
    counts.append(network_count(model, height, width, element))
    pixels = sum(sizes)
    counts.append(_once("edge weights", WEIGHT_OPERATIONS * pixels, (element * config.predicted + weights) * pixels))
    counts.append(_cycles("diffusion", sizes, per_level(config.steps, levels), channels, STEP_OPERATIONS, weights))
    return counts


def network_count(model: Neuroexplicit, height: int, width: int, element: int) -> StageCount:
    """The convolutions, each reading its input once and writing its result once."""
    operations = moved = 0
    area = _padded(height, model) * _padded(width, model)
    for name, layer in model.dtm.named_children():
        assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        assert layer.bias is not None
        visited = area // _scale(name) ** 2
        transposed = isinstance(layer, nn.ConvTranspose2d)
        stride = layer.stride[0] ** 2
        read = layer.in_channels * visited * (1 if transposed else stride)
        written = layer.out_channels * visited * (stride if transposed else 1)
        operations += 2 * layer.weight.numel() * visited
        moved += element * (read + written + layer.weight.numel() + layer.bias.numel())
    return _once("network", operations, moved)


def network_counts(model: Network, height: int, width: int, element: int) -> list[StageCount]:
    """The convolutions of a baseline network; none for networks that sample."""
    if isinstance(model.config, PDConfig):
        return []
    layers: list[tuple[int, int]] = []

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        visited = inputs[0] if isinstance(layer, nn.ConvTranspose2d) else output
        weights = sum(p.numel() for p in layer.parameters())
        moved = element * (inputs[0].numel() + output.numel() + weights)
        layers.append((2 * layer.weight.numel() * visited.shape[-2] * visited.shape[-1], moved))

    twin = copy.deepcopy(model).to("meta")
    for layer in twin.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            layer.register_forward_hook(count)
    image, flow, mask = (torch.zeros(1, channels, height, width, device="meta") for channels in (IMAGE, 2, 1))
    twin.fill(image, flow, mask)
    operations, moved = (sum(column) for column in zip(*layers, strict=True))
    return [_once("network", operations, moved)]


def level_sizes(height: int, width: int, levels: int | None = None) -> list[int]:
    """The pixels of each level, fine to coarse; by default down to a single pixel."""
    levels = (max(height, width) - 1).bit_length() + 1 if levels is None else levels
    return [-(-height // 2**k) * -(-width // 2**k) for k in range(levels)]


def _pyramid(sizes: list[int], all_sizes: list[int], channels: int) -> StageCount:
    """Push the known vectors down through all levels, and pull them up to where the diffusion's levels start."""
    field = FLOAT * channels
    down = sum((field + FLAG) * (fine + coarse) for fine, coarse in pairwise(all_sizes))
    given = (FLOAT - FLAG) * sizes[0]  # the mask comes as a number
    return _once("pyramid", 2 * channels * sum(all_sizes), given + down + _starts(all_sizes[len(sizes) :], channels))


def _cycles(stage: str, sizes: list[int], steps: list[int], channels: int, operations: int, weights: int) -> StageCount:
    """Diffusion; sizes are fine to coarse, steps coarse to fine; weights: bytes of a pixel's edge weights."""
    visits = sum(n * size for n, size in zip(reversed(steps), sizes, strict=True))
    start = _starts(sizes, channels)
    stepwise = start + visits * (3 * FLOAT * channels + FLAG + weights)
    return StageCount(stage, operations * channels * visits, start + weights * sum(sizes), stepwise)


def _starts(sizes: list[int], channels: int) -> int:
    """Bytes to read and write one field per level, which starts from the coarser field where nothing is known."""
    field = FLOAT * channels
    return sum((2 * field + FLAG) * size for size in sizes) + sum(field * coarse for coarse in sizes[1:])


def _once(stage: str, operations: int, moved: int) -> StageCount:
    return StageCount(stage, operations, moved, moved)


def _padded(side: int, model: Neuroexplicit) -> int:
    return -(-side // model.dtm.stride) * model.dtm.stride


def _scale(layer: str) -> int:
    """The factor from the image to the pixels that a layer's kernel visits: its output's, or its input's if transposed.

    A layer's name ends in its level; layers that merge a level, and its map, have the size of the next finer scale.
    """
    level = int(layer.removesuffix("_1")[-1])
    return int(2 ** (level - layer.startswith(("mrg", "dt"))))


@dataclass(frozen=True)
class PeakRates:
    """The best rates seen on a device: bytes copied per second (read plus written), matrix operations per second."""

    device: str
    dtype: str
    copy: float
    matrix: float

    def floor(self, counts: list[StageCount]) -> float:
        """The least seconds for these counts if computing and moving overlap fully."""
        return max(sum(c.operations for c in counts) / self.matrix, sum(c.bytes for c in counts) / self.copy)

    def better(self, other: PeakRates) -> PeakRates:
        """The larger of each rate of two measurements."""
        return replace(self, copy=max(self.copy, other.copy), matrix=max(self.matrix, other.matrix))


def measure_rates(device: torch.device, dtype: torch.dtype) -> PeakRates:
    """Copy a large buffer and multiply two square matrices, a few times each; the fastest time counts."""
    return PeakRates(str(device), str(dtype).removeprefix("torch."), _copy_rate(device), _matrix_rate(device, dtype))


def _copy_rate(device: torch.device) -> float:
    source = torch.zeros(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / _fastest(lambda: target.copy_(source), device)


def _matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second; float32 on CUDA uses TF32, as cuDNN's convolutions do unless that is switched off."""
    n = MATRIX_SIDE[device.type]
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(n, n, dtype=dtype, device=device, generator=generator) for _ in range(2))
    out = torch.empty_like(a)
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        torch.set_float32_matmul_precision("high")
    try:
        return 2 * n**3 / _fastest(lambda: torch.mm(a, b, out=out), device)
    finally:
        torch.set_float32_matmul_precision(before)


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    work()
    return min(timed(work, device) for _ in range(TRIALS))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """The seconds of one call: between CUDA events on a GPU, by the clock elsewhere."""
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
    return float(begin.elapsed_time(end)) / 1000
