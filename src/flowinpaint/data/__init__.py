"""Images with dense flow, from disk or generated."""

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """B training samples: image (B, 3, H, W) in [0, 1], flow (B, C, H, W), valid (B, 1, H, W) as 0 or 1; float32.

    The flow is 0 where not valid.
    """

    image: Tensor
    flow: Tensor
    valid: Tensor
