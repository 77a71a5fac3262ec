"""The weights of the Diffusion Tensor Module as the matrices that `dtm_triton` multiplies pixels by.

A matrix has one row per input channel and tap, and one column per output channel. Channels are padded with zeros to
16·2^k or 48·2^k, those before and after a seam separately. A pixel of the coarser level covers four pixels, in the
order (0, 0), (0, 1), (1, 0), (1, 1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule

CHANNELS = 8
"""Channels of the network's input and of the maps z in memory."""
Matrices = Callable[[DiffusionTensorModule], dict[str, Tensor]]


class PackedParameters:
    """The tensors that `matrices` builds from a module's parameters; each entry is one of these or zero."""

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
        """Copy the module's parameters into the same memory again; parameters: their `flat`, if known."""
        self._memory.copy_((flat(self._dtm) if parameters is None else parameters)[self._index])


@torch.no_grad()
def flat(dtm: DiffusionTensorModule) -> Tensor:
    """A zero followed by all parameters, as one vector."""
    parameters = [parameter.detach().flatten() for parameter in dtm.parameters()]
    return torch.cat([parameters[0].new_zeros(1), *parameters])


def places(dtm: DiffusionTensorModule, matrices: Matrices) -> dict[str, Tensor]:
    """Index of the parameter at each entry of the matrices: its place in `flat`, or zero."""
    # Found by applying `matrices` to a module whose parameters are these indices.
    with torch.device("meta"):  # draws no random numbers, which would change a training run
        numbered = DiffusionTensorModule(*dtm.shape)
    numbered = numbered.to_empty(device="cpu").double()
    count = 1
    for parameter in numbered.parameters():
        parameter.data = torch.arange(count, count + parameter.numel(), dtype=torch.float64).view_as(parameter)
        count += parameter.numel()
    return {name: tensor.long() for name, tensor in matrices(numbered).items()}


def convolutions(dtm: DiffusionTensorModule) -> dict[str, tuple[nn.Conv2d, int]]:
    """The 3×3 layers of many channels (all but cnv0 and the heads) by name, each with the seam of its input, or 0."""
    seams = {f"mrg{k}": dtm.joined[k][0] for k in dtm.joined}
    layers = {name: layer for name, layer in dtm.named_children() if name.startswith(("cnv", "mrg")) and name != "cnv0"}
    return {name: (layer, seams.get(name, 0)) for name, layer in layers.items() if isinstance(layer, nn.Conv2d)}


def decoders(dtm: DiffusionTensorModule) -> dict[str, tuple[nn.ConvTranspose2d, nn.Conv2d | None, int]]:
    """The transposed layers by name, each with the head that reads the same input, if any, and the input's seam."""
    heads = {3: dtm.dt4, 2: dtm.dt3, 1: dtm.dt2}
    found = dict[str, tuple[nn.ConvTranspose2d, nn.Conv2d | None, int]]()
    for k in dtm.joined:
        layer = dtm.get_submodule(f"dcnv{k}")
        assert isinstance(layer, nn.ConvTranspose2d)
        found[f"dcnv{k}"] = layer, heads.get(k), dtm.seam(k + 1) if k < dtm.depth else 0
    return found


def forward_matrices(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """Matrices for the forward kernels; a decoder's has the columns of the head with the same input appended."""
    packed = {"cnv0": first_matrix(dtm.cnv0)}
    packed |= {name: convolution_matrix(layer, seam) for name, (layer, seam) in convolutions(dtm).items()}
    for name, (layer, head, seam) in decoders(dtm).items():
        parts = [upsampling_matrix(layer, seam)] + ([taps_matrix(head, seam)] if head else [])
        packed[name] = torch.cat(parts, 1)
    packed["dt1"] = taps_matrix(dtm.dt1, dtm.seam(1))
    return packed


def backward_matrices(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """Matrices for the gradient kernels: one row per output channel of a layer, one column per input channel."""
    packed = {name: transposed_matrix(layer, seam) for name, (layer, seam) in convolutions(dtm).items()}
    for name, (layer, head, seam) in decoders(dtm).items():
        parts = [upsampling_matrix(layer, seam).T] + ([reverse_taps_matrix(head, seam)] if head else [])
        packed[name] = torch.cat(parts)
    packed["dt1"] = reverse_taps_matrix(dtm.dt1, dtm.seam(1))
    return packed


def gradient_matrices(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """The layout in which the kernels return the gradients of the weights."""
    packed = {"cnv0": first_matrix(dtm.cnv0)}
    packed |= {name: convolution_matrix(layer, seam) for name, (layer, seam) in convolutions(dtm).items()}
    for name, (layer, head, seam) in decoders(dtm).items():
        packed[name] = upsampling_matrix(layer, seam).T
        if head:
            packed[f"dt{int(name[-1]) + 1}"] = reverse_taps_matrix(head, seam)
    packed["dt1"] = reverse_taps_matrix(dtm.dt1, dtm.seam(1))
    return packed


def forward_biases(dtm: DiffusionTensorModule) -> dict[str, Tensor]:
    """The biases; those of decoders repeated for each of the four pixels, those of all heads in one, coarse to fine."""
    packed = {name: _bias(layer) for name, (layer, _) in {"cnv0": (dtm.cnv0, 0), **convolutions(dtm)}.items()}
    packed |= {name: _bias(layer).repeat(4) for name, (layer, _, _) in decoders(dtm).items()}
    heads = (dtm.dt4, dtm.dt3, dtm.dt2, dtm.dt1)
    packed["dt"] = torch.cat([head.bias.detach() for head in heads if head.bias is not None])
    return packed


def padded(channels: int) -> int:
    """The number of channels in memory: 16·2^k or 48·2^k."""
    power = 1 << (max(channels, 16) - 1).bit_length()
    return power * 3 // 4 if power > 32 and channels <= power * 3 // 4 else power


def halves_of(dtm: DiffusionTensorModule) -> dict[int, list[int]]:
    """Padded channels of the two halves that each level joins."""
    return {level: [padded(channels) for channels in sizes] for level, sizes in dtm.joined.items()}


def tap_columns(out_channels: int) -> int:
    """Padded number of columns of nine taps for `out_channels` channels."""
    return -(-9 * out_channels // 16) * 16


def first_matrix(layer: nn.Conv2d) -> Tensor:
    """The 3×3 layer of the input, padded to CHANNELS channels, as (9 · CHANNELS, columns)."""
    weight = layer.weight.detach().permute(2, 3, 1, 0).flatten(0, 1)
    return _pad_end(_pad_end(weight, 1, CHANNELS), 2, padded(layer.out_channels)).flatten(0, 1)


def convolution_matrix(layer: nn.Conv2d, seam: int) -> Tensor:
    """A 3×3 layer as (9 · channels, columns)."""
    weight = _pad_end(layer.weight.detach().permute(1, 2, 3, 0), 3, padded(layer.out_channels))
    return _pad_halves(weight, seam).flatten(1, 2).transpose(0, 1).flatten(0, 1)


def upsampling_matrix(layer: nn.ConvTranspose2d, seam: int) -> Tensor:
    """A transposed layer as (channels, 4 · columns), for the four pixels under a pixel; for kernel 1 three are zero."""
    weight = layer.weight.detach()
    if weight.shape[-1] == 1:
        weight = F.pad(weight, (0, 1, 0, 1))
    weight = weight.permute(0, 2, 3, 1).flatten(1, 2)
    return _pad_halves(_pad_end(weight, 2, padded(weight.shape[2])).flatten(1), seam)


def taps_matrix(layer: nn.Conv2d, seam: int) -> Tensor:
    """A head as (channels, taps), for the product of each tap with a pixel; the columns of one tap are adjacent."""
    columns = layer.weight.detach().permute(1, 2, 3, 0).flatten(1)
    return _pad_end(_pad_halves(columns, seam), 1, tap_columns(layer.out_channels))


def transposed_matrix(layer: nn.Conv2d, seam: int) -> Tensor:
    """A 3×3 layer as (9 · output channels, input channels), with the taps in reverse order for stride 1."""
    weight = _pad_halves(layer.weight.detach().permute(1, 2, 3, 0).flatten(1, 2), seam)
    if layer.stride == (1, 1):
        weight = weight.flip(1)
    return _pad_end(weight, 2, padded(layer.out_channels)).flatten(1).T


def reverse_taps_matrix(layer: nn.Conv2d, seam: int) -> Tensor:
    """A head as (9 · 8, input channels), with the taps in reverse order."""
    weight = layer.weight.detach().permute(1, 2, 3, 0).flatten(1, 2).flip(1)
    return _pad_halves(_pad_end(weight, 2, CHANNELS).flatten(1), seam).T


def _pad_halves(rows: Tensor, seam: int) -> Tensor:
    """Pad the rows before and after the seam separately."""
    halves = rows.tensor_split([seam]) if seam else (rows,)
    return torch.cat([_pad_end(half, 0, padded(half.shape[0])) for half in halves])


def _bias(layer: nn.Conv2d | nn.ConvTranspose2d) -> Tensor:
    assert layer.bias is not None
    return _pad_end(layer.bias.detach(), 0, padded(layer.bias.numel()))


def _pad_end(x: Tensor, dimension: int, size: int) -> Tensor:
    """Append zeros along a dimension up to a size."""
    return F.pad(x, (0, 0) * (x.ndim - 1 - dimension) + (0, size - x.shape[dimension]))
