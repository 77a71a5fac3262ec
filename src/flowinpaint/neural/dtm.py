"""The Diffusion Tensor Module: the paper's small U-Net (Table 4), under the table's layer names."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

STRIDE = 16
"""Input sizes must be multiples of this: the encoder halves four times."""


class DiffusionTensorModule(nn.Module):
    """Image (B, in_channels, H, W) to four maps z (B, out_channels, H/8 … H, W/8 … W), coarse to fine.

    With width 44, three input and five output channels it has 1,308,404 parameters. The paper's decoder has
    transposed convolutions of kernel 1 and stride 2, which leave three of four upsampled pixels to the bias;
    decoder_kernel = 2 fills them all.
    """

    def __init__(self, in_channels: int = 3, out_channels: int = 5, width: int = 44, decoder_kernel: int = 1) -> None:
        super().__init__()
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

    def forward(self, x: Tensor) -> list[Tensor]:
        """The four maps z, coarse to fine; H and W are multiples of STRIDE."""
        x0 = relu(self.cnv0(x))
        x1 = relu(self.cnv1_1(relu(self.cnv1(x0))))
        x2 = relu(self.cnv2_1(relu(self.cnv2(x1))))
        x3 = relu(self.cnv3_1(relu(self.cnv3(x2))))
        x4 = relu(self.cnv4(x3))

        y4 = torch.cat([relu(self.dcnv4(x4)), x3], 1)
        y3 = torch.cat([relu(self.dcnv3(y4)), x2], 1)
        y2 = torch.cat([relu(self.dcnv2(y3)), x1], 1)
        y1 = torch.cat([relu(self.dcnv1(y2)), x0], 1)
        return [self.dt4(y4), self.dt3(y3), self.dt2(y2), self.dt1(y1)]
