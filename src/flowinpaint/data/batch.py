"""What a network is trained on."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """image (B, 3, H, W) in [0, 1], flow (B, C, H, W), 0 where not valid, and valid (B, 1, H, W), 0 or 1; float32."""

    image: Tensor
    flow: Tensor
    valid: Tensor
