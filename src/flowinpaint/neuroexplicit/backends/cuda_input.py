"""What the network sees on CUDA: the fields of all levels, the first guess, and its input, by fused kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.fsi_gpu import diffuse, diffuse_levels
from flowinpaint.diffusion.kernels.pyramid_gpu import pull, push
from flowinpaint.networks.colours import IMAGENET_MEAN, IMAGENET_STD
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.kernels.dtm_input_gpu import dtm_input, known_sums
from flowinpaint.neuroexplicit.levels import START_STEPS, Known, extend, extended_size, levels_of, per_level


@torch.no_grad()
def prepare(
    image: Tensor, flow: Tensor, known: Tensor, config: NeuroexplicitConfig, dtype: torch.dtype
) -> tuple[Tensor, list[Known], Tensor]:
    """The network's input (B, H', W', 8), the levels from coarse to fine, and where the coarsest starts.

    image (B, 3, H, W), known (B, 1, H, W) bool and flow (B, C, H, W) are float32; small ones are extended.
    """
    H, W = flow.shape[-2:]
    count, stride = levels_of(H, W, config), 2**config.depth
    size = extended_size(H, W, count)
    if size != (H, W):
        image, flow, known = (extend(x, *size) for x in (image, flow, known))
    levels = push(flow, known, count)[::-1]
    start = levels[0][0]
    if config.start == "pull":
        start = diffuse(pull(*levels[0]), levels[0][1], None, START_STEPS)
    if not config.flow_aware:
        return dtm_input(image, IMAGENET_MEAN, IMAGENET_STD, None, dtype, stride), levels, start
    guess = diffuse_levels(start, levels, [None] * count, per_level(config.guess_steps, count))
    f, is_known = levels[-1]
    hints = guess, is_known, known_sums(f, is_known)
    return dtm_input(image, IMAGENET_MEAN, IMAGENET_STD, hints, dtype, stride), levels, start
