"""What every network of this package is: image, mask and sparse field to the dense field, at any size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from flowinpaint.errors import InputError
from flowinpaint.networks.output import Filled
from flowinpaint.result import ProgressCallback


def by_pixel(x: Tensor) -> Tensor:
    """(B, C, H, W) laid out in memory pixel by pixel on CUDA, where convolutions in half precision want it so."""
    return x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x


def versions_of(weights: Iterable[Tensor]) -> list[int] | None:
    """How often each was changed; None where one is of the inference mode, which does not count."""
    try:
        return [weight._version for weight in weights]
    except RuntimeError:
        return None


class Network(nn.Module):
    """A module that fills fields; its configuration says what it is made of, and with which weights it fits.

    `fill` is the way of training: nothing is drawn at random but by the module's own rules, and gradients pass.
    `inpaint` calls `complete`, which may take longer, tell of its progress, and take the `parameters` of the
    configuration by name.
    """

    config: Any
    samples: bool = False
    """Whether `complete` calls its parts so often that compiling them pays for a few fields already."""

    @abstractmethod
    def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """Image (B, 3, H, W) in [0, 1], mask (B, 1, H, W) above 0 where known, flow (B, C, H, W) → (B, C, H, W)."""

    def complete(
        self, image: Tensor, flow: Tensor, mask: Tensor, progress: ProgressCallback | None = None, **parameters: Any
    ) -> Filled:
        """What `fill` makes, or a network that samples draws, with parameters of its own."""
        return self.fill(image, flow, mask)

    def forward(self, image: Tensor, flow: Tensor, mask: Tensor) -> Tensor:
        """The field of `fill`, (B, C, H, W)."""
        return self.fill(image, flow, mask).field

    def iterations(self, H: int, W: int, **parameters: Any) -> int:
        """Steps that `complete` takes for a field of this size, 0 for a network without any."""
        return 0

    def compile_parts(self) -> None:
        """Compile, in place, what training on CUDA calls; each size compiles anew."""

    def refresh(self) -> None:
        """Forget what fast ways have made of the weights, after these were changed behind PyTorch's back."""

    def constrain_(self) -> None:
        """Enforce what an optimiser's step may have broken."""

    def check(self, image: Tensor, flow: Tensor, mask: Tensor) -> None:
        """Raise InputError unless shapes and types are those that `fill` takes."""
        if flow.ndim != 4 or min(flow.shape) < 1:
            raise InputError(f"flow: shape {tuple(flow.shape)} was given; (B, C, H, W), none of them 0, is taken.")
        if flow.dtype not in (torch.float32, torch.float64):
            raise InputError(f"flow: {flow.dtype} was given; torch.float32 or torch.float64 is taken.")
        B, _, H, W = flow.shape
        for name, x, channels in (("image", image, 3), ("mask", mask, 1)):
            if x.shape != (B, channels, H, W):
                raise InputError(
                    f"{name}: shape {tuple(x.shape)} was given; {(B, channels, H, W)} is taken beside a flow of shape "
                    f"{tuple(flow.shape)}."
                )
        if not image.is_floating_point():
            raise InputError(f"image: {image.dtype} was given; a floating type with values in [0, 1] is taken.")
