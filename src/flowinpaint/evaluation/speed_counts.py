"""How much a method must compute and move at least: counted from its architecture, not measured.

Operations are additions and multiplications, so a multiply-add counts as two. Bytes are those that go through memory
if nothing but the following stays on the chip:

- the network layer by layer: each layer reads what it needs once, its weights included, and writes its result once, in
  the network's type; no concatenation is written, and channels are not padded;
- a cycle of diffusion steps in one go: what it starts from, the edge weights (in the network's type) and the known
  pixels (a byte each) are read once and the result is written once, in float32. `stepwise` is what the diffusions
  would move if every step went through memory instead: two iterates, edge weights and known pixels read, one written.

A cache can do better than this where it holds a whole layer, so the floor is a yardstick and no law of nature.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.networks.network import Network
from flowinpaint.neuroexplicit.levels import START_STEPS, extended_size, levels_of, per_level
from flowinpaint.neuroexplicit.model import Neuroexplicit

FLOAT = 4
FLAG = 1
IMAGE = 3
# Of one channel of one pixel in one step: a difference, a product and a sum for each of eight neighbours, then four
# for the extrapolation; of the isotropic operator four differences and sums, one product, and again the extrapolation.
STEP_OPERATIONS = 3 * 8 + 4
ISOTROPIC_OPERATIONS = 2 * 4 + 1 + 4
# Of one pixel: sigmoid, two diffusivities, the orientation's normal form, tensor, δ, and four sums of two cells.
WEIGHT_OPERATIONS = 50


@dataclass(frozen=True)
class Count:
    """What one stage of a method computes and moves for one image; `stepwise` is its bytes without fused steps."""

    stage: str
    operations: int
    bytes: int
    stepwise: int


def explicit_counts(height: int, width: int, channels: int = 2) -> list[Count]:
    """Of a method without weights only what no solver can do without: image, field and mask in, field out."""
    return [_once("input and output", 0, FLOAT * height * width * (IMAGE + channels + 1 + channels))]


def neuroexplicit_counts(model: Neuroexplicit, height: int, width: int, element: int, channels: int = 2) -> list[Count]:
    """The stages of a model; element: bytes of a number in the network, 2 in half precision.

    Learned kernels (+W) are counted as the stencil whose place they take.
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
        # The guess once, the given vectors twice: for their mean, then for the mean deviation from it.
        seen += FLOAT * channels + 2 * (FLOAT * channels + FLAG) + FLAG
        inputs = model.dtm.cnv0.in_channels
    counts.append(_once("input", 2 * inputs * padded, seen * sizes[0] + element * inputs * padded))
    counts.append(network_count(model, height, width, element))
    pixels = sum(sizes)
    counts.append(_once("edge weights", WEIGHT_OPERATIONS * pixels, (element * config.predicted + weights) * pixels))
    counts.append(_cycles("diffusion", sizes, per_level(config.steps, levels), channels, STEP_OPERATIONS, weights))
    return counts


def network_count(model: Neuroexplicit, height: int, width: int, element: int) -> Count:
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


def network_counts(model: Network, height: int, width: int, element: int) -> list[Count]:
    """The convolutions of a network of another kind; of one that samples, nothing is counted."""
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
    image, flow, mask = (torch.zeros(1, channels, height, width, device="meta") for channels in (IMAGE, 1, 2))
    twin.fill(image, flow, mask)
    operations, moved = (sum(column) for column in zip(*layers, strict=True))
    return [_once("network", operations, moved)]


def level_sizes(height: int, width: int, levels: int | None = None) -> list[int]:
    """The pixels of each level, fine to coarse; without a number of them down to a single pixel."""
    levels = (max(height, width) - 1).bit_length() + 1 if levels is None else levels
    return [-(-height // 2**k) * -(-width // 2**k) for k in range(levels)]


def _pyramid(sizes: list[int], all_sizes: list[int], channels: int) -> Count:
    """The known vectors downwards to the last of all levels, and up again to where the diffusion's levels start."""
    field = FLOAT * channels
    down = sum((field + FLAG) * (fine + coarse) for fine, coarse in pairwise(all_sizes))
    given = (FLOAT - FLAG) * sizes[0]  # the mask comes as a number
    return _once("pyramid", 2 * channels * sum(all_sizes), given + down + _starts(all_sizes[len(sizes) :], channels))


def _cycles(stage: str, sizes: list[int], steps: list[int], channels: int, operations: int, weights: int) -> Count:
    """Diffusion: sizes from fine to coarse, steps from coarse to fine; weights: bytes of a pixel's edge weights."""
    visits = sum(n * size for n, size in zip(reversed(steps), sizes, strict=True))
    start = _starts(sizes, channels)
    stepwise = start + visits * (3 * FLOAT * channels + FLAG + weights)
    return Count(stage, operations * channels * visits, start + weights * sum(sizes), stepwise)


def _starts(sizes: list[int], channels: int) -> int:
    """Bytes of one field for each level, from the coarser field where nothing is known: read, and written once."""
    field = FLOAT * channels
    return sum((2 * field + FLAG) * size for size in sizes) + sum(field * coarse for coarse in sizes[1:])


def _once(stage: str, operations: int, moved: int) -> Count:
    return Count(stage, operations, moved, moved)


def _padded(side: int, model: Neuroexplicit) -> int:
    return -(-side // model.dtm.stride) * model.dtm.stride


def _scale(layer: str) -> int:
    """The side of the pixels that a layer's kernel visits, as a divisor of the image's side.

    These are the pixels of its result, or of its input where it is transposed. A level's number stands behind the
    layer's letters; what merges it, and its map, have the size of the next finer scale.
    """
    level = int(layer.removesuffix("_1")[-1])
    return int(2 ** (level - layer.startswith(("mrg", "dt"))))
