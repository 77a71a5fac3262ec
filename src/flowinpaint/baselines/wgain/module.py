"""WGAIN's generator: the paper's adversarial baseline, which imputes unknown vectors from noise."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.baselines.wgain.config import WGAINConfig
from flowinpaint.counter_rng import Draws, check_seed
from flowinpaint.networks.network import (
    PAIR,
    Network,
    by_pixel,
    extended,
    from_pairs,
    normalised_colours,
    repeated,
    to_pairs,
)
from flowinpaint.networks.output import Filled
from flowinpaint.networks.registry import register_model
from flowinpaint.result import ProgressCallback

STRIDE = 8
"""The generator halves three times."""
INPUTS = 3 + 2 * PAIR + 1
"""Channels of image, given vectors, noise, and mask."""
INITIAL_LAST = 0.1
"""Factor on PyTorch's initial weights of the last layer."""
LAST = 8
"""Channels of the second-last layer."""


@register_model("wgain", config=WGAINConfig, objective="flowinpaint.baselines.wgain.objective:Adversarial")
class WGAIN(Network):
    """The generator of Vašata, Halama and Friedjungová (2021) for fields, without its final hard sigmoid.

    Image, scaled field, noise at unknown pixels and mask pass a U-Net whose layers are three parallel convolutions of
    dilations 2, 5 and 1. The result depends on the seed of the noise. Fields of more than two channels are filled pair
    by pair.
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
        self._initialise_in_pixels()

    def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """The generator's field for the noise of seed 0, with known vectors kept."""
        return self.complete(image, flow, mask)

    def complete(
        self, image: Tensor, flow: Tensor, mask: Tensor, progress: ProgressCallback | None = None, **parameters: Any
    ) -> Filled:
        """The generator's field for the noise of `seed`, with known vectors kept."""
        seed = check_seed(parameters.get("seed", 0))
        self.check(image, flow, mask)
        samples = torch.arange(len(flow), device=flow.device)
        u = self.generate(image, flow, mask, Draws(samples, seed).normal(tuple(flow.shape[1:])))
        return Filled(torch.where(mask > 0, flow, u.to(flow.dtype)), None)

    def generate(self, image: Tensor, flow: Tensor, mask: Tensor, noise: Tensor) -> Tensor:
        """The generator's field (B, C, H, W), also at known pixels, for noise (B, C, H, W)."""
        colours = normalised_colours(image.to(self.joined.weight.dtype))
        c = (mask > 0).to(colours.dtype)
        given = torch.where(c > 0, flow, 0).to(colours.dtype) / self.config.scale
        fields = (to_pairs(given), to_pairs((1 - c) * self.config.noise * noise.to(colours.dtype)))
        whole = (repeated(colours, flow.shape[1]), *fields, repeated(c, flow.shape[1]))
        u: Tensor = self._network(by_pixel(extended(torch.cat(whole, 1), STRIDE)))
        H, W = flow.shape[-2:]
        field: Tensor = from_pairs(u[..., :H, :W], flow.shape[1]) * self.config.scale
        return field

    def compile_parts(self) -> None:
        """Compile the generator, in place."""
        self._network = torch.compile(self._network, dynamic=False)  # type: ignore[method-assign]

    def _initialise_in_pixels(self) -> None:
        """Scale the initial weights so that a new network reads and predicts fields of about the size in pixels.

        Divided by the scale, fields are so small compared with image and mask that training ignores them for thousands
        of steps.
        """
        fields = slice(3, 3 + PAIR)
        with torch.no_grad():
            for part in self.first.parts:
                assert isinstance(part, nn.Conv2d)
                part.weight[:, fields] *= self.config.scale
            self.joined.weight[:, -INPUTS:][:, fields] *= self.config.scale
            for tensor in self.last.parameters():
                tensor.mul_(INITIAL_LAST)

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
    """Three parallel convolutions of kernel 5, then ELU: n channels of dilation 2, n of 5, 2 n of 1."""

    def __init__(self, inputs: int, n: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 5, dilation=dilation, padding=2 * dilation)
            for outputs, dilation in ((n, 2), (n, 5), (2 * n, 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, h, w) → (B, 4 n, h, w)."""
        return F.elu(torch.cat([part(x) for part in self.parts], 1))
