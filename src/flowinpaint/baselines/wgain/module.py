"""WGAIN: the paper's adversarial baseline, a generator that imputes the field, and the critic it is trained against."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.counter_rng import Draws, check_seed
from flowinpaint.diffusion.pyramid import extend
from flowinpaint.errors import InputError
from flowinpaint.networks.channel_pairs import PAIR, from_pairs, repeated, to_pairs
from flowinpaint.networks.colours import Colours
from flowinpaint.networks.network import Network, by_pixel
from flowinpaint.networks.output import Filled
from flowinpaint.result import ProgressCallback

STRIDE = 8
"""The generator halves three times."""
INPUTS = 3 + 2 * PAIR + 1
"""Image, given vectors, noise, and mask."""
LAST_AT_FIRST = 0.1
"""Of the weights that PyTorch gives to the last layer."""
LAST = 8
"""Channels of the layer before the last."""
SLOPE = 0.3
"""Of the critic's leaky ReLU below zero."""
CRITIC_KERNEL = 5
CRITIC_WIDTHS = (64, 128, 256, 256, 512)
FEWEST = 2
"""Rows and columns that each of the critic's layers makes at least: the norm of a single number is none."""
WIDEST = 512


@dataclass(frozen=True)
class WGAINConfig:
    """width: channels of a dilated part of the first layer; 32 gives the paper's 11,505,882 parameters.

    scale: what fields are divided by, so that most of a flow lies in [-1, 1]. noise: standard deviation, in that
    scale, of what stands where nothing is known; the authors' code has 1, ten times most of a flow.
    """

    kind: Literal["wgain"] = "wgain"
    width: int = 32
    scale: float = 100.0
    noise: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.width <= WIDEST:
            raise InputError(f"width: {self.width} was given; a count from 1 to {WIDEST} is taken.")
        if not 1e-6 <= self.scale <= 1e6:
            raise InputError(f"scale: {self.scale} was given; a number from 1e-6 to 1e6 is taken.")
        if not 0 <= self.noise <= 100:
            raise InputError(f"noise: {self.noise} was given; a standard deviation from 0 to 100 is taken.")

    @property
    def parameters(self) -> dict[str, int]:
        """What a user may set when a field is filled: the seed of the noise that stands where nothing is known."""
        return {"seed": 0}


class WGAIN(Network):
    """The generator of Vašata, Halama and Friedjungová (2021) for fields, without its last hard sigmoid.

    Image, scaled field, noise where nothing is known, and mask pass a U-Net whose layers are three convolutions side by
    side, of dilations 2, 5 and 1. The result depends on the seed of the noise. Channels beyond two are taken pair by
    pair.
    """

    def __init__(self, config: WGAINConfig | None = None) -> None:
        super().__init__()
        self.config = config or WGAINConfig()
        n = self.config.width
        self.first = Parallel(INPUTS, n)
        self.down = nn.ModuleList([Parallel(4 * n, n), Parallel(4 * n, 2 * n)])
        self.middle = Parallel(8 * n, 4 * n)
        self.up = nn.ModuleList([Parallel(16 * n + 8 * n, 2 * n), Parallel(8 * n + 4 * n, n), Parallel(8 * n, n)])
        self.joined = nn.Conv2d(4 * n + INPUTS, LAST, 3, padding=1)
        self.last = nn.Conv2d(LAST, PAIR, 3, padding=1)
        self._begin_in_pixels()
        self.colours = Colours()

    def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """What the generator makes with the noise of seed 0, the known vectors put in."""
        return self.complete(image, flow, mask)

    def complete(
        self, image: Tensor, flow: Tensor, mask: Tensor, progress: ProgressCallback | None = None, **parameters: Any
    ) -> Filled:
        """What the generator makes with the noise of a seed, the known vectors put in."""
        seed = check_seed(parameters.get("seed", 0))
        self.check(image, flow, mask)
        samples = torch.arange(len(flow), device=flow.device)
        u = self.generate(image, flow, mask, noise_for(flow, Draws(samples, seed)))
        return Filled(torch.where(mask > 0, flow, u.to(flow.dtype)), None)

    def generate(self, image: Tensor, flow: Tensor, mask: Tensor, noise: Tensor) -> Tensor:
        """The field (B, C, H, W) that the generator makes, also of known vectors, with noise (B, C, H, W)."""
        H, W = flow.shape[-2:]
        colours = self.colours(image)
        c = (mask > 0).to(colours.dtype)
        given = torch.where(c > 0, flow, 0).to(colours.dtype) / self.config.scale
        fields = (to_pairs(given), to_pairs((1 - c) * self.config.noise * noise.to(colours.dtype)))
        whole = (repeated(colours, flow.shape[1]), *fields, repeated(c, flow.shape[1]))
        x = extend(torch.cat(whole, 1), *(-(-side // STRIDE) * STRIDE for side in (H, W)))
        u: Tensor = self._network(by_pixel(x))
        field: Tensor = from_pairs(u[..., :H, :W], flow.shape[1]) * self.config.scale
        return field

    def compile_parts(self) -> None:
        """Compile, in place, the generator."""
        self._network = torch.compile(self._network, dynamic=False)  # type: ignore[method-assign]

    def _begin_in_pixels(self) -> None:
        """Let a new network see fields, and make them, about as large as they are in pixels.

        Divided by the scale they are so small beside image and mask that thousands of steps pass before it sees them.
        """
        fields = slice(3, 3 + PAIR)
        with torch.no_grad():
            for part in self.first.parts:
                assert isinstance(part, nn.Conv2d)
                part.weight[:, fields] *= self.config.scale
            self.joined.weight[:, -INPUTS:][:, fields] *= self.config.scale
            for tensor in self.last.parameters():
                tensor.mul_(LAST_AT_FIRST)

    def _network(self, inputs: Tensor) -> Tensor:
        x, skips = inputs, []
        for layer in (self.first, *self.down):
            skips.append(layer(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.middle(x)
        for layer in self.up:
            x = layer(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), skips.pop()], 1))
        joined: Tensor = F.elu(self.joined(torch.cat([x, inputs], 1)))
        u: Tensor = self.last(joined)
        return u


class Parallel(nn.Module):
    """Three convolutions of kernel 5 side by side, then ELU: n channels of dilation 2, n of 5, 2 n of 1."""

    def __init__(self, inputs: int, n: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 5, dilation=dilation, padding=2 * dilation)
            for outputs, dilation in ((n, 2), (n, 5), (2 * n, 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, h, w) → (B, 4 n, h, w)."""
        return F.elu(torch.cat([part(x) for part in self.parts], 1))


class Critic(nn.Module):
    """How much a field looks like a true one, (B,): image (B, 3, H, W), field (B, 2, H, W), mask (B, 1, H, W).

    For one size of pictures; at 384 x 384 it has 5,992,705 parameters, and for small ones fewer layers. Instance norm,
    since a gradient penalty needs each sample judged by itself.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        sides, widths = list(size), [3 + PAIR + 1]
        for outputs in CRITIC_WIDTHS:
            if min(halved := [(side - CRITIC_KERNEL) // 2 + 1 for side in sides]) < FEWEST:
                break
            sides = halved
            widths.append(outputs)
        if len(widths) == 1:
            raise InputError(f"size: {list(size)} was given; sides from {CRITIC_KERNEL + 2} are taken for a critic.")
        pairs = list(pairwise(widths))
        self.layers = nn.ModuleList(nn.Conv2d(i, o, CRITIC_KERNEL, stride=2, bias=False) for i, o in pairs)
        self.norms = nn.ModuleList(nn.InstanceNorm2d(o, affine=True) for _, o in pairs)
        self.verdict = nn.Linear(widths[-1] * math.prod(sides), 1)
        self.colours = Colours()

    def forward(self, image: Tensor, field: Tensor, mask: Tensor) -> Tensor:
        """Field is what the generator works with: divided by its scale."""
        x = by_pixel(torch.cat([self.colours(image), field, mask], 1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.leaky_relu(norm(layer(x)), SLOPE)
        verdict: Tensor = self.verdict(x.flatten(1))[:, 0]
        return verdict


def noise_for(flow: Tensor, draws: Draws) -> Tensor:
    """Standard normal noise of the shape of a field (B, C, H, W), a function of the samples' numbers."""
    return draws.normal((flow.shape[1], flow.shape[2], flow.shape[3]))
