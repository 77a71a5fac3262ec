"""The Diffusion Tensor Module: the paper's small U-Net (Table 4), under the table's layer names."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import relu

STRIDE = 16
"""Input sizes must be multiples of this: the encoder halves four times."""
TENSOR_CORE_CHANNELS = 8
"""Tensor cores take channels by eights; for other counts cuDNN is about half as fast."""


class DiffusionTensorModule(nn.Module):
    """Image (B, in_channels, H, W) to four maps z (B, out_channels, H/8 … H, W/8 … W), coarse to fine.

    With width 44, three input and five output channels it has 1,308,404 parameters. The paper's decoder has
    transposed convolutions of kernel 1 and stride 2, which leave three of four upsampled pixels to the bias;
    decoder_kernel = 2 fills them all.
    """

    def __init__(self, in_channels: int = 3, out_channels: int = 5, width: int = 44, decoder_kernel: int = 1) -> None:
        super().__init__()
        self.width, self.out_channels = width, out_channels
        w = width

        def conv(n_in: int, n_out: int, stride: int = 1) -> nn.Conv2d:
            return nn.Conv2d(n_in, n_out, 3, stride, padding=1)

        def up(n_in: int, n_out: int) -> nn.ConvTranspose2d:
            return nn.ConvTranspose2d(n_in, n_out, decoder_kernel, stride=2, output_padding=2 - decoder_kernel)

        self.cnv0 = conv(in_channels, w)
        self.cnv1, self.cnv1_1 = conv(w, w, 2), conv(w, w)
        self.cnv2, self.cnv2_1 = conv(w, 2 * w, 2), conv(2 * w, 2 * w)
        self.cnv3, self.cnv3_1 = conv(2 * w, 4 * w, 2), conv(4 * w, 4 * w)
        self.cnv4 = conv(4 * w, 8 * w, 2)

        self.dcnv4, self.dcnv3 = up(8 * w, 4 * w), up(8 * w, 4 * w)
        self.dcnv2, self.dcnv1 = up(6 * w, 2 * w), up(3 * w, w)

        self.dt4, self.dt3 = conv(8 * w, out_channels), conv(6 * w, out_channels)
        self.dt2, self.dt1 = conv(3 * w, out_channels), conv(2 * w, out_channels)

    def forward(self, x: Tensor, pad_channels: bool | None = None) -> list[Tensor]:
        """The four maps z, coarse to fine; H and W are multiples of STRIDE.

        pad_channels: compute with channels padded by zeros to multiples of TENSOR_CORE_CHANNELS, which stay zero from
        layer to layer and change no result; by default in half precision on CUDA.
        """
        w, pad = self.width, _runs_on_tensor_cores(x) if pad_channels is None else pad_channels
        multiple = TENSOR_CORE_CHANNELS if pad else 1
        conv, up = partial(_convolve, multiple=multiple), partial(_upsample, multiple=multiple)
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)

        x0 = relu(conv(self.cnv0, _pad_dimension(x, 1, multiple)))
        x1 = relu(conv(self.cnv1_1, relu(conv(self.cnv1, x0))))
        x2 = relu(conv(self.cnv2_1, relu(conv(self.cnv2, x1))))
        x3 = relu(conv(self.cnv3_1, relu(conv(self.cnv3, x2))))
        x4 = relu(conv(self.cnv4, x3))

        # Each half of a concatenation is padded by itself; the layers behind it must know where the seam is.
        y4 = torch.cat([relu(up(self.dcnv4, x4)), x3], 1)
        y3 = torch.cat([relu(up(self.dcnv3, y4, seam=4 * w)), x2], 1)
        y2 = torch.cat([relu(up(self.dcnv2, y3, seam=4 * w)), x1], 1)
        y1 = torch.cat([relu(up(self.dcnv1, y2, seam=2 * w)), x0], 1)
        maps = [
            conv(self.dt4, y4, seam=4 * w),
            conv(self.dt3, y3, seam=4 * w),
            conv(self.dt2, y2, seam=2 * w),
            conv(self.dt1, y1, seam=w),
        ]
        return [z[:, : self.out_channels] for z in maps]


def _runs_on_tensor_cores(x: Tensor) -> bool:
    half = (torch.float16, torch.bfloat16)
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") in half
    return x.is_cuda and (autocast or x.dtype in half)


def _convolve(layer: nn.Conv2d, x: Tensor, multiple: int, seam: int = 0) -> Tensor:
    """The layer, its channels padded; x is padded likewise, before the seam and behind it."""
    weight = _pad_dimension(_pad_dimension(layer.weight, 1, multiple, seam), 0, multiple)
    return F.conv2d(x, weight, _pad_bias(layer, multiple), layer.stride, layer.padding)


def _upsample(layer: nn.ConvTranspose2d, x: Tensor, multiple: int, seam: int = 0) -> Tensor:
    """The transposed layer of kernel 1 or 2 and stride 2, its channels padded as in `_convolve`."""
    weight = _pad_dimension(_pad_dimension(layer.weight, 0, multiple, seam), 1, multiple)
    bias = _pad_bias(layer, multiple)
    if layer.kernel_size == (2, 2):
        return F.conv_transpose2d(x, weight, bias, layer.stride)
    # Kernel 1 is a convolution of the pixels; its result lies at the even pixels, and the bias alone at the others.
    y = F.conv2d(x, weight.transpose(0, 1), bias)
    B, C, H, W = y.shape
    layout = torch.channels_last if x.is_cuda else torch.contiguous_format
    out = bias.to(y.dtype).view(1, C, 1, 1).expand(B, C, 2 * H, 2 * W).contiguous(memory_format=layout)
    out[..., ::2, ::2] = y
    return out


def _pad_bias(layer: nn.Conv2d | nn.ConvTranspose2d, multiple: int) -> Tensor:
    assert layer.bias is not None
    return _pad_dimension(layer.bias, 0, multiple)


def _pad_dimension(x: Tensor, dimension: int, multiple: int, seam: int = 0) -> Tensor:
    """Zeros behind each of the two parts of a dimension, until the size of each is a multiple."""
    size = x.shape[dimension]
    before, behind = -seam % multiple, (seam - size) % multiple
    if behind:
        x = F.pad(x, (0, 0) * (x.ndim - 1 - dimension) + (0, behind))
    if before:
        first, second = x.tensor_split([seam], dimension)
        x = torch.cat([F.pad(first, (0, 0) * (x.ndim - 1 - dimension) + (0, before)), second], dimension)
    return x
