"""Image normalisation: ImageNet's mean and standard deviation, as networks see colours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Of colours in [0, 1]."""


class Colours(nn.Module):
    """Normalises images (B, 3, H, W) in [0, 1]; the result has the dtype of the network that holds this module."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, 3, H, W)."""
        return (image.to(self.mean.dtype) - self.mean) / self.std
