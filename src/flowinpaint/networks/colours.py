"""Images as networks see them: colours of mean 0 and deviation 1 over natural images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flowinpaint.neuroexplicit.config import IMAGENET_MEAN, IMAGENET_STD


class Colours(nn.Module):
    """Images (B, 3, H, W) in [0, 1], normalised, in the type of the network that this is a part of."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, 3, H, W)."""
        return (image.to(self.mean.dtype) - self.mean) / self.std
