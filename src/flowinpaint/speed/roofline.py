"""Roofline model: minimum operations and bytes of a method, and the machine's measured peak rates.

The counts follow from the architecture. An operation is an addition or a multiplication. A byte counts if it has to
go through memory, assuming that only the following stays on the chip:

- in a network, nothing from layer to layer: each layer reads its input and weights once and writes its result once, in
  the network's type; concatenations are not written, and channels are not padded;
- in diffusion, a whole cycle of steps: its start, the edge weights (in the network's type) and the known pixels (a byte
  each) are read once, and the result is written once, in float32. `stepwise` counts the bytes without this fusion: each
  step reads two iterates, edge weights and known pixels, and writes one.

A cache that holds a whole layer can beat this, so the floor is a reference value, not a strict bound.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.methods.registry import get_method
from flowinpaint.networks.network import Network
from flowinpaint.networks.weights import read_model
from flowinpaint.neuroexplicit.config import START_STEPS, extended_size, levels_of, per_level
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.speed.cases import SpeedCase

IMAGE, CHANNELS = 3, 2
"""Channels of an image and of a field."""
FLOAT, FLAG = 4, 1
FIELD = FLOAT * CHANNELS
"""Bytes of a float32, of a flag, and of a pixel of a field."""
STEP_OPERATIONS = 3 * 8 + 4
"""Per channel, pixel and diffusion step: difference, product and sum for 8 neighbours, 4 for the extrapolation."""
ISOTROPIC_OPERATIONS = 2 * 4 + 1 + 4
"""The same for the isotropic operator: differences and sums of 4 neighbours, a product, 4 for the extrapolation."""
WEIGHT_OPERATIONS = 50
"""Per pixel's edge weights: sigmoid, two diffusivities, normalised orientation, tensor, δ, four sums of two cells."""
COPY_BYTES = {"cpu": 2**28, "cuda": 2**31}
"""Size of the copied buffer, far larger than any cache."""
MATRIX_SIDE = {"cpu": 2048, "cuda": 8192}
TRIALS = 7


@dataclass(frozen=True)
class StageCount:
    """Operations and bytes of one stage of a method for one image; `stepwise`: bytes without fused steps."""

    stage: str
    operations: int
    bytes: int
    stepwise: int


def counts_of(case: SpeedCase) -> list[StageCount]:
    """The counts of a case's method, by stage; none for networks that sample."""
    height, width, weights = case.height, case.width, get_method(case.method).weights
    if weights is None:  # the solver is not counted: image, field and mask in, field out
        return [_once("input and output", 0, FLOAT * height * width * (IMAGE + 2 * CHANNELS + 1))]
    model, element = read_model(weights), case.dtype.itemsize
    if isinstance(model, Neuroexplicit):
        return neuroexplicit_counts(model, height, width, element)
    return [] if isinstance(model.config, PDConfig) else [network_count(model, height, width, element)]


def neuroexplicit_counts(model: Neuroexplicit, height: int, width: int, element: int) -> list[StageCount]:
    """The stages of a neuroexplicit model; element: bytes of a number in the network, 2 in half precision.

    Learned kernels (+W) count as the stencil that they replace.
    """
    config, inputs = model.config, model.dtm.cnv0.in_channels
    levels = levels_of(height, width, config)
    height, width = extended_size(height, width, levels)
    sizes = level_sizes(height, width, levels)
    pixels, padded = sum(sizes), math.prod(_padded(height, width, model))
    counts = [_pyramid(sizes, level_sizes(height, width) if config.start == "pull" else sizes)]
    if config.start == "pull":
        counts.append(_cycles("start", sizes[-1:], [START_STEPS], ISOTROPIC_OPERATIONS))
    seen = FLOAT * IMAGE
    if config.flow_aware:
        counts.append(_cycles("first guess", sizes, per_level(config.guess_steps, levels), ISOTROPIC_OPERATIONS))
        # Reads the guess once, and the known vectors twice: for their mean and for the mean deviation from it.
        seen += FIELD + 2 * (FIELD + FLAG) + FLAG
    weights = 4 * element
    return [
        *counts,
        _once("input", 2 * inputs * padded, seen * sizes[0] + element * inputs * padded),
        network_count(model, height, width, element),
        _once("edge weights", WEIGHT_OPERATIONS * pixels, (element * config.predicted + weights) * pixels),
        _cycles("diffusion", sizes, per_level(config.steps, levels), STEP_OPERATIONS, weights),
    ]


def network_count(model: Network, height: int, width: int, element: int) -> StageCount:
    """The convolutions of a network, each reading its input once and writing its result once."""
    layers: list[tuple[int, int]] = []

    def count(layer: nn.Conv2d | nn.ConvTranspose2d, inputs: tuple[Tensor], output: Tensor) -> None:
        visited = inputs[0] if isinstance(layer, nn.ConvTranspose2d) else output
        numbers = inputs[0].numel() + output.numel() + sum(p.numel() for p in layer.parameters())
        layers.append((2 * layer.weight.numel() * visited[0, 0].numel(), element * numbers))

    twin = copy.deepcopy(model).to("meta")
    for layer in twin.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            layer.register_forward_hook(count)
    if isinstance(twin, Neuroexplicit):  # uses the weights of its layers without calling these
        for name, layer in twin.dtm.named_children():
            assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
            sides = (side // _input_scale(name, layer) for side in _padded(height, width, twin))
            layer(torch.empty(1, layer.in_channels, *sides, device="meta"))
    else:
        twin.fill(*(torch.zeros(1, channels, height, width, device="meta") for channels in (IMAGE, CHANNELS, 1)))
    operations, moved = (sum(column) for column in zip(*layers, strict=True))
    return _once("network", operations, moved)


def _padded(height: int, width: int, model: Neuroexplicit) -> tuple[int, int]:
    """The size of the network's input."""
    stride = model.dtm.stride
    return -(-height // stride) * stride, -(-width // stride) * stride


def _input_scale(name: str, layer: nn.Conv2d | nn.ConvTranspose2d) -> int:
    """The factor from a layer's input to the image.

    A layer's name ends in its level; layers that enter or merge a level, and its map, read the next finer scale.
    """
    reads_finer = name.startswith(("mrg", "dt")) or (isinstance(layer, nn.Conv2d) and layer.stride == (2, 2))
    return int(2 ** (int(name.removesuffix("_1")[-1]) - reads_finer))


def level_sizes(height: int, width: int, levels: int | None = None) -> list[int]:
    """The pixels of each level, fine to coarse; by default down to a single pixel."""
    levels = (max(height, width) - 1).bit_length() + 1 if levels is None else levels
    return [-(-height // 2**k) * -(-width // 2**k) for k in range(levels)]


def _pyramid(sizes: list[int], all_sizes: list[int]) -> StageCount:
    """Push the known vectors down through all levels, and pull them up to where the diffusion's levels start."""
    down = sum((FIELD + FLAG) * (fine + coarse) for fine, coarse in pairwise(all_sizes))
    given = (FLOAT - FLAG) * sizes[0]  # the mask is passed as float32
    return _once("pyramid", 2 * CHANNELS * sum(all_sizes), given + down + _starts(all_sizes[len(sizes) :]))


def _cycles(stage: str, sizes: list[int], steps: list[int], operations: int, weights: int = 0) -> StageCount:
    """Diffusion; sizes are fine to coarse, steps coarse to fine; weights: bytes of a pixel's edge weights."""
    visits = sum(n * size for n, size in zip(reversed(steps), sizes, strict=True))
    start = _starts(sizes)
    stepwise = start + visits * (3 * FIELD + FLAG + weights)
    return StageCount(stage, operations * CHANNELS * visits, start + weights * sum(sizes), stepwise)


def _starts(sizes: list[int]) -> int:
    """Bytes to read and write one field per level, which starts from the coarser field where nothing is known."""
    return sum((2 * FIELD + FLAG) * size for size in sizes) + FIELD * sum(sizes[1:])


def _once(stage: str, operations: int, moved: int) -> StageCount:
    return StageCount(stage, operations, moved, moved)


@dataclass(frozen=True)
class PeakRates:
    """The best rates seen on a device: bytes copied per second (read plus written), matrix operations per second."""

    device: str
    dtype: str
    copy: float
    matrix: float

    def floor(self, counts: list[StageCount]) -> float:
        """Minimum seconds for these counts if computation and memory traffic overlap fully."""
        return max(sum(c.operations for c in counts) / self.matrix, sum(c.bytes for c in counts) / self.copy)

    def better(self, other: PeakRates) -> PeakRates:
        """The larger of each rate of two measurements."""
        return replace(self, copy=max(self.copy, other.copy), matrix=max(self.matrix, other.matrix))


def measure_rates(device: str, dtype: torch.dtype) -> PeakRates:
    """Copy a large buffer and multiply two square matrices, a few times each; the fastest time counts.

    float32 on CUDA uses TF32, as cuDNN's convolutions do by default.
    """
    place = torch.device(device)
    source = torch.zeros(COPY_BYTES[place.type], dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    copied = 2 * source.numel() / _fastest(lambda: target.copy_(source), place)
    n = MATRIX_SIDE[place.type]
    generator = torch.Generator(place).manual_seed(0)
    a, b = (torch.randn(n, n, dtype=dtype, device=place, generator=generator) for _ in range(2))
    out = torch.empty_like(a)
    before = torch.get_float32_matmul_precision()
    if place.type == "cuda" and torch.backends.cudnn.allow_tf32:
        torch.set_float32_matmul_precision("high")
    try:
        multiplied = 2 * n**3 / _fastest(lambda: torch.mm(a, b, out=out), place)
    finally:
        torch.set_float32_matmul_precision(before)
    return PeakRates(device, str(dtype).removeprefix("torch."), copied, multiplied)


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    work()
    return min(timed(work, device) for _ in range(TRIALS))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """The seconds of one call: between CUDA events on a GPU, wall-clock time elsewhere."""
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
