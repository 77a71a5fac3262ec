"""U-Nets of probabilistic diffusion, built from the blocks of the library diffusers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from flowinpaint.baselines.pd.config import UNetConfig
from flowinpaint.errors import InputError
from flowinpaint.extras import needs

if TYPE_CHECKING:
    from diffusers.models.unets.unet_2d import UNet2DModel

FIELD_CHANNELS = 2
IMAGE_CHANNELS = 3
TIME_SCALE = 4.0
"""Factor on c_noise = ln σ / 4: the embedding's fastest wave has one period while σ grows 500-fold.

Faster waves would resolve σ better, but sampling starts with much stronger noise than training draws, and would then
see phases that never occur in training.
"""


class ConditionedUNet(nn.Module):
    """F of Karras et al.: noisy field, noise level and condition to a field, at any size.

    The condition has `seen` channels and is concatenated with the field. The last convolution starts at zero.
    """

    def __init__(self, config: UNetConfig, seen: int) -> None:
        super().__init__()
        self.unet = _build(config, FIELD_CHANNELS + seen)
        nn.init.zeros_(self.unet.conv_out.weight)
        assert self.unet.conv_out.bias is not None
        nn.init.zeros_(self.unet.conv_out.bias)

    def forward(self, x: Tensor, c_noise: Tensor, condition: Tensor) -> Tensor:
        """Field (B, 2, h, w), c_noise () or (B,), condition (B, seen, h, w) → (B, 2, h, w), all float32.

        h and w must be multiples of the stride. The network runs in the dtype of its weights, or under autocast.
        """
        weight = self.unet.conv_in.weight
        inputs = torch.cat([x, condition], 1).to(weight.dtype)
        if weight.is_cuda:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        F: Tensor = self.unet(inputs, TIME_SCALE * c_noise, return_dict=False)[0]
        return F.float()


def _build(config: UNetConfig, inputs: int) -> UNet2DModel:
    """The U-Net of diffusers; InputError without the extra."""
    try:
        from diffusers.models.unets.unet_2d import UNet2DModel
    except ImportError as error:
        raise InputError(f"method 'pd' {needs('pd')}.") from error
    prefixes = ["Attn" if attends else "" for attends in config.attention]
    unet: UNet2DModel = UNet2DModel(
        in_channels=inputs,
        out_channels=FIELD_CHANNELS,
        time_embedding_type="positional",
        block_out_channels=config.widths,
        layers_per_block=config.blocks,
        down_block_types=tuple(f"{prefix}DownBlock2D" for prefix in prefixes),
        up_block_types=tuple(f"{prefix}UpBlock2D" for prefix in reversed(prefixes)),
        add_attention=bool(config.attention[-1]),
        attention_head_dim=config.head,
        norm_num_groups=config.groups,
        attn_norm_num_groups=config.groups,
        resnet_time_scale_shift="scale_shift",
        act_fn="silu",
    )
    return unet
