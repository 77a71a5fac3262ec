"""The weights of the Diffusion Tensor Module as the matrices that `dtm_gpu_loops` multiplies pixels by.

A matrix has a row for each channel that is read, for each tap, and a column for each that is made. Channels are padded
by zeros to 16·2^k or 48·2^k, those before a seam and those behind it by themselves. Four pixels lie under a pixel of
the coarser level, in the order (0, 0), (0, 1), (1, 0), (1, 1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.neural.dtm import DiffusionTensorModule

CHANNELS = 8
"""Channels of the network's input and of the maps z, as they lie in memory."""
CONVOLUTIONS = ("cnv0", "cnv1", "cnv1_1", "cnv2", "cnv2_1", "cnv3", "cnv3_1", "cnv4")
DECODERS = ("dcnv4", "dcnv3", "dcnv2", "dcnv1")
Matrices = Callable[[DiffusionTensorModule], dict[str, Tensor]]


class PackedParameters:
    """The tensors that a function makes of a module's parameters, each entry one of the parameters' or zero."""

    def __init__(self, dtm: DiffusionTensorModule, matrices: Matrices, dtype: torch.dtype) -> None:
        self._dtm = dtm
        device = dtm.cnv0.weight.device
        tensors = places(dtm, matrices)
        self._index = torch.cat([tensor.flatten() for tensor in tensors.values()]).to(device)
        self._memory = torch.empty(self._index.numel(), dtype=dtype, device=device)
        self._tensors: dict[str, Tensor] = {}
        for (name, tensor), part in zip(
            tensors.items(), self._memory.split([tensor.numel() for tensor in tensors.values()]), strict=True
        ):
            self._tensors[name] = part.view(tensor.shape)
        self.repack()

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def repack(self, parameters: Tensor | None = None) -> None:
        """Copy the module's parameters, of which `parameters` is `flat`, into the same memory again."""
        self._memory.copy_((flat(self._dtm) if parameters is None else parameters)[self._index])


@torch.no_grad()
def flat(dtm: DiffusionTensorModule) -> Tensor:
    """A zero, and the parameters behind it in one."""
    parameters = [parameter.detach().flatten() for parameter in dtm.parameters()]
    return torch.cat([parameters[0].new_zeros(1), *parameters])


def places(dtm: DiffusionTensorModule, matrices: Matrices) -> dict[str, Tensor]:
    """Which parameter stands where in the matrices: its number among all of the module's, from one on, or zero."""
    # The same function of a module that holds these numbers tells.
    shape = dtm.cnv0.in_channels, dtm.out_channels, dtm.width, dtm.dcnv4.kernel_size[0]
    with torch.device("meta"):  # draws no random numbers, on which a training run's future depends
        numbered = DiffusionTensorModule(*shape)
    numbered = numbered.to_empty(device="cpu").double()
    count = 1
    for parameter in numbered.parameters():
        parameter.data = torch.arange(count, count + parameter.numel(), dtype=torch.float64).view_as(parameter)
        count += parameter.numel()
    return {name: tensor.long() for name, tensor in matrices(numbered).items()}


def forward_matrices(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """What the kernels of the network need: behind the columns of each decoder those of the z of its level."""
    w = dtm.width
    packed = {"cnv0": convolution_matrix(dtm.cnv0, CHANNELS)}
    for name in CONVOLUTIONS[1:]:
        layer = getattr(dtm, name)
        packed[name] = convolution_matrix(layer, padded(layer.in_channels))
    packed["dcnv4"] = upsampling_matrix(dtm.dcnv4, 0)
    for name, layer, head, seam in (
        ("dcnv3", dtm.dcnv3, dtm.dt4, 4 * w),
        ("dcnv2", dtm.dcnv2, dtm.dt3, 4 * w),
        ("dcnv1", dtm.dcnv1, dtm.dt2, 2 * w),
    ):
        packed[name] = torch.cat([upsampling_matrix(layer, seam), taps_matrix(head, seam)], 1)
    packed["dt1"] = taps_matrix(dtm.dt1, w)
    return packed


def backward_matrices(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """What the kernels of the gradient need: rows for what a layer made, columns for what it read."""
    w = dtm.width
    packed = {name: transposed_matrix(getattr(dtm, name)) for name in CONVOLUTIONS[1:]}
    packed["dcnv4"] = upsampling_matrix(dtm.dcnv4, 0).T
    for name, layer, head, seam in (
        ("dcnv3", dtm.dcnv3, dtm.dt4, 4 * w),
        ("dcnv2", dtm.dcnv2, dtm.dt3, 4 * w),
        ("dcnv1", dtm.dcnv1, dtm.dt2, 2 * w),
    ):
        packed[name] = torch.cat([upsampling_matrix(layer, seam).T, reverse_taps_matrix(head, seam)])
    packed["dt1"] = reverse_taps_matrix(dtm.dt1, w)
    return packed


def gradient_matrices(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """How the gradients of the weights come out of the kernels; decoders have two matrices, before and ".skipped"."""
    w = dtm.width
    made = forward_matrices(dtm)
    packed = {name: made[name] for name in CONVOLUTIONS}
    packed["dcnv4"] = made["dcnv4"].T
    for name, seam in (("dcnv3", 4 * w), ("dcnv2", 4 * w), ("dcnv1", 2 * w)):
        upsampling = upsampling_matrix(getattr(dtm, name), seam).T
        packed[name], packed[f"{name}.skipped"] = upsampling.tensor_split([padded(seam)], 1)
    for name, seam in (("dt4", 4 * w), ("dt3", 4 * w), ("dt2", 2 * w), ("dt1", w)):
        packed[name] = reverse_taps_matrix(getattr(dtm, name), seam)
    return packed


def forward_biases(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """The biases, those of the decoders once for each of the four pixels, those of the z in one, coarse to fine."""
    packed = {name: _bias(getattr(dtm, name)) for name in CONVOLUTIONS}
    packed.update({name: _bias(getattr(dtm, name)).repeat(4) for name in DECODERS})
    heads = (dtm.dt4, dtm.dt3, dtm.dt2, dtm.dt1)
    packed["dt"] = torch.cat([head.bias.detach() for head in heads if head.bias is not None])
    return packed


def padded(channels: int) -> int:
    """The number of channels in memory: 16·2^k or 48·2^k."""
    power = 1 << (max(channels, 16) - 1).bit_length()
    return power * 3 // 4 if power > 32 and channels <= power * 3 // 4 else power


def tap_columns(out_channels: int) -> int:
    """The columns that nine taps to so many channels take in memory."""
    return -(-9 * out_channels // 16) * 16


def convolution_matrix(layer: nn.Conv2d, channels: int) -> Tensor:
    """A 3×3, the channels it reads being so many in memory, as (9 · channels, columns)."""
    weight = layer.weight.detach().permute(2, 3, 1, 0).flatten(0, 1)
    return _pad_end(_pad_end(weight, 1, channels), 2, padded(weight.shape[2])).flatten(0, 1)


def upsampling_matrix(layer: nn.ConvTranspose2d, seam: int) -> Tensor:
    """A transposed layer as (channels, 4 · columns), for the four pixels under a pixel; of kernel 1 three are zero."""
    weight = layer.weight.detach()
    if weight.shape[-1] == 1:
        weight = F.pad(weight, (0, 1, 0, 1))
    weight = weight.permute(0, 2, 3, 1).flatten(1, 2)
    return _pad_halves(_pad_end(weight, 2, padded(weight.shape[2])).flatten(1), seam)


def taps_matrix(layer: nn.Conv2d, seam: int) -> Tensor:
    """A 3×3 to z as (channels, taps), for what each tap makes of a pixel; the columns of one tap stand together."""
    columns = layer.weight.detach().permute(1, 2, 3, 0).flatten(1)
    return _pad_end(_pad_halves(columns, seam), 1, tap_columns(layer.out_channels))


def transposed_matrix(layer: nn.Conv2d) -> Tensor:
    """A 3×3 as (9 · what it makes, what it reads), the taps in reverse for stride 1."""
    weight = layer.weight.detach().permute(2, 3, 0, 1).flatten(0, 1)
    if layer.stride == (1, 1):
        weight = weight.flip(0)
    return _pad_end(_pad_end(weight, 1, padded(weight.shape[1])), 2, padded(weight.shape[2])).flatten(0, 1)


def reverse_taps_matrix(layer: nn.Conv2d, seam: int) -> Tensor:
    """A 3×3 to z as (9 · 8, what it reads), the taps in reverse."""
    weight = layer.weight.detach().permute(1, 2, 3, 0).flatten(1, 2).flip(1)
    return _pad_halves(_pad_end(weight, 2, CHANNELS).flatten(1), seam).T


def _pad_halves(rows: Tensor, seam: int) -> Tensor:
    """Pad the rows before the seam and those behind it, each by themselves."""
    halves = rows.tensor_split([seam]) if seam else (rows,)
    return torch.cat([_pad_end(half, 0, padded(half.shape[0])) for half in halves])


def _bias(layer: nn.Conv2d | nn.ConvTranspose2d) -> Tensor:
    assert layer.bias is not None
    return _pad_end(layer.bias.detach(), 0, padded(layer.bias.numel()))


def _pad_end(x: Tensor, dimension: int, size: int) -> Tensor:
    """Zeros behind a dimension until it has that size."""
    return F.pad(x, (0, 0) * (x.ndim - 1 - dimension) + (0, size - x.shape[dimension]))
