"""FlowNetS for inpainting: the paper's U-Net baseline, from image, sparse field and mask to the dense field."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.baselines.flownets.config import FlowNetSConfig
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

STRIDE = 64
"""The encoder halves six times."""
SUPERVISED = 5
"""Predictions with a loss, from full resolution to a sixteenth; the sixth and coarsest has none."""
SLOPE = 0.1
"""Slope of the leaky ReLU below zero, as in FlowNet."""


@register_model(
    "flownets",
    config=FlowNetSConfig,
    objective="flowinpaint.baselines.flownets.objective:DeeplySupervised",
)
class FlowNetS(Network):
    """The encoder of FlowNetS (Dosovitskiy et al., 2015) at smaller width, and a decoder up to full resolution.

    The decoder's transposed convolutions have kernel 1 and stride 2, as in the authors' code, so three of four
    upsampled pixels depend only on the skip, the coarser prediction and the bias. Fields are in pixels and not
    normalised: the network knows the range of motions in its training data. Fields of more than two channels are
    filled pair by pair.
    """

    def __init__(self, config: FlowNetSConfig | None = None) -> None:
        super().__init__()
        self.config = config or FlowNetSConfig()
        n = self.config.width
        self.encoder = nn.ModuleList(
            [
                _layer(3 + 1 + PAIR, n, 7),
                _layer(n, 2 * n, 5),
                nn.Sequential(*_layer(2 * n, 4 * n, 5), *_layer(4 * n, 4 * n, 3, 1)),
                nn.Sequential(*_layer(4 * n, 8 * n, 3), *_layer(8 * n, 8 * n, 3, 1)),
                nn.Sequential(*_layer(8 * n, 8 * n, 3), *_layer(8 * n, 8 * n, 3, 1)),
                _layer(8 * n, 16 * n, 3),
            ]
        )
        skips = [8 * n, 8 * n, 4 * n, 2 * n, n, 0]
        made = [8 * n, 4 * n, 2 * n, n, n // 2, n // 2]
        guesses = [0, *[PAIR] * (len(made) - 1)]
        joined = [skip + own + guess for skip, own, guess in zip(skips, made, guesses, strict=True)]
        self.decoder = nn.ModuleList(_doubling(i, o) for i, o in zip([16 * n, *joined[:-1]], made, strict=True))
        self.heads = nn.ModuleList(nn.Conv2d(channels, PAIR, 5, padding=2) for channels in joined)

    def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """The finest prediction, with known vectors kept."""
        self.check(image, flow, mask)
        H, W = flow.shape[-2:]
        u = from_pairs(self.predictions(image, flow, mask)[0], flow.shape[1])
        return Filled(torch.where(mask > 0, flow, u[..., :H, :W].to(flow.dtype)), None)

    def predictions(self, image: Tensor, flow: Tensor, mask: Tensor) -> list[Tensor]:
        """The SUPERVISED finest predictions (B·P, 2, h, w), fine to coarse, at sizes that are multiples of STRIDE."""
        c = (mask > 0).to(flow.dtype)
        given = to_pairs(torch.where(c > 0, flow, 0))
        colours = normalised_colours(image.to(next(self.parameters()).dtype))
        parts = [repeated(colours, flow.shape[1]), repeated(c, flow.shape[1]), given]
        x = by_pixel(torch.cat([extended(part, STRIDE).to(colours.dtype) for part in parts], 1))
        skips = []
        for layer in self.encoder:
            x = layer(x)
            skips.append(x)
        x, guesses = skips.pop(), list[Tensor]()
        for up, head in zip(self.decoder, self.heads, strict=True):
            parts = [up(x), *([skips.pop()] if skips else [])]
            if guesses:
                parts.append(F.interpolate(guesses[-1], scale_factor=2, mode="bilinear"))
            x = torch.cat(parts, 1)
            guesses.append(head(x))
        return guesses[: -SUPERVISED - 1 : -1]

    def compile_parts(self) -> None:
        """Compile the predictions, in place."""
        self.predictions = torch.compile(self.predictions, dynamic=False)  # type: ignore[method-assign]


def _layer(inputs: int, outputs: int, kernel: int, stride: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2), nn.LeakyReLU(SLOPE))


def _doubling(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 1, stride=2, output_padding=1), nn.LeakyReLU(SLOPE))
