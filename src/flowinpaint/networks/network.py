"""`Network`: the base class of all networks, from image, sparse field and mask to the dense field at any size.

Also shared preprocessing of inputs: normalised colours, and fields as pairs of channels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from flowinpaint.diffusion.pyramid import extend
from flowinpaint.errors import InputError
from flowinpaint.networks.output import Filled
from flowinpaint.result import ProgressCallback

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of colours in [0, 1]."""
PAIR = 2
"""Channels of a field for networks that expect two; a field with more channels is split into pairs."""


def normalised_colours(image: Tensor) -> Tensor:
    """Image (B, 3, H, W) in [0, 1] minus the mean and over the standard deviation of ImageNet's colours.

    The constants are written on the device, since a CUDA graph cannot record a copy from the CPU.
    """
    mean, std = (torch.cat([image.new_full((1, 1, 1, 1), x) for x in c], 1) for c in (IMAGENET_MEAN, IMAGENET_STD))
    return (image - mean) / std


def by_pixel(x: Tensor) -> Tensor:
    """(B, C, H, W) in channels-last memory format on CUDA, where half-precision convolutions are fastest with it."""
    return x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x


def extended(x: Tensor, multiple: int) -> Tensor:
    """(B, ·, H, W) with the last row and column repeated until its sides are multiples of a number."""
    return extend(x, *(-(-side // multiple) * multiple for side in x.shape[-2:]))


def versions_of(weights: Iterable[Tensor]) -> list[int] | None:
    """Version counters of the weights; None if one is an inference tensor, which has no counter."""
    try:
        return [weight._version for weight in weights]
    except RuntimeError:
        return None


class Network(nn.Module):
    """A module that fills fields; `config` describes its layers and belongs to its weights.

    Training calls `fill`, which is deterministic and differentiable. `inpaint` calls `complete`, which may take longer,
    reports progress, and accepts the `parameters` of the configuration as keywords.
    """

    config: Any
    samples: bool = False
    """True if `complete` calls its parts so often that compiling them pays off after a few fields."""

    @abstractmethod
    def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """Image (B, 3, H, W) in [0, 1], flow (B, C, H, W), mask (B, 1, H, W) above 0 where known → (B, C, H, W)."""

    def complete(
        self, image: Tensor, flow: Tensor, mask: Tensor, progress: ProgressCallback | None = None, **parameters: Any
    ) -> Filled:
        """The output of `fill`, or a random sample of it from a network that samples."""
        return self.fill(image, flow, mask)

    def forward(self, image: Tensor, flow: Tensor, mask: Tensor) -> Tensor:
        """The field of `fill`, (B, C, H, W)."""
        return self.fill(image, flow, mask).field

    def iterations(self, H: int, W: int, **parameters: Any) -> int:
        """Number of steps `complete` needs for a field of this size; 0 for a network without steps."""
        return 0

    def compile_parts(self) -> None:
        """Compile, in place, the parts that training on CUDA calls; every new image size is compiled again."""

    def refresh(self) -> None:
        """Drop cached backends after a weight change that PyTorch does not track."""

    def constrain_(self) -> None:
        """Restore constraints on the weights that an optimiser step may have broken."""

    def check(self, image: Tensor, flow: Tensor, mask: Tensor) -> None:
        """Raise InputError unless shapes and dtypes fit `fill`."""
        if flow.ndim != 4 or min(flow.shape) < 1:
            raise InputError(f"flow must be of shape (B, C, H, W), all at least 1, got {tuple(flow.shape)}")
        if flow.dtype not in (torch.float32, torch.float64):
            raise InputError(f"flow must be torch.float32 or torch.float64, got {flow.dtype}")
        B, _, H, W = flow.shape
        for name, x, channels in (("image", image, 3), ("mask", mask, 1)):
            if x.shape != (B, channels, H, W):
                raise InputError(
                    f"{name} must be of shape {(B, channels, H, W)} for a flow of shape {tuple(flow.shape)}, "
                    f"got {tuple(x.shape)}"
                )
        if not image.is_floating_point():
            raise InputError(f"image must be of a floating dtype with values in [0, 1], got {image.dtype}")


def pairs_of(channels: int) -> int:
    """Number of pairs; an odd channel is paired with zeros."""
    return -(-channels // PAIR)


def to_pairs(field: Tensor) -> Tensor:
    """(B, C, H, W) → (B·P, 2, H, W), the P pairs of a sample next to each other."""
    B, C, H, W = field.shape
    if C % PAIR:
        field = torch.cat([field, torch.zeros_like(field[:, :1])], 1)
    return field.reshape(B * pairs_of(C), PAIR, H, W)


def repeated(x: Tensor, channels: int) -> Tensor:
    """Repeat per-sample data (B, ·, H, W) for each pair of a field with `channels` channels: (B·P, ·, H, W)."""
    return x if pairs_of(channels) == 1 else x.repeat_interleave(pairs_of(channels), 0)


def from_pairs(pairs: Tensor, channels: int) -> Tensor:
    """Inverse of `to_pairs`: (B·P, 2, H, W) → (B, C, H, W)."""
    H, W = pairs.shape[-2:]
    return pairs.reshape(-1, PAIR * pairs_of(channels), H, W)[:, :channels]
