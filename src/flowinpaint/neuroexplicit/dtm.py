"""The Diffusion Tensor Module: the paper's small U-Net (Table 4), with the table's layer names, and a richer one.

Also the normalisation of the first guess, an input of flow-aware networks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import relu

from flowinpaint.diffusion.data_term import RELATIVE_FLOOR, statistics

GUESS_CHANNELS = 2
CLIP = 6.0
"""Deviations are clipped at this many mean deviations; the network sees them halved."""
SHALLOWEST, DEEPEST = 4, 6
"""Depth range of the encoder: it halves at least four times, as in the paper, which the four maps require."""
HEADS_AT_FIRST = 0.2
"""Scale of the initial weights of the heads, relative to PyTorch's default."""
TENSOR_CORE_CHANNELS = 8
"""Tensor cores process channels in groups of eight; for other counts cuDNN is about half as fast."""


class DiffusionTensorModule(nn.Module):
    """Image (B, in_channels, H, W) to four maps z (B, out_channels, H/8 … H, W/8 … W), coarse to fine.

    With width 44, three input and five output channels it has 1,308,404 parameters. The paper's decoder has
    transposed convolutions of kernel 1 and stride 2, which leave three of four upsampled pixels to the bias;
    decoder_kernel = 2 fills them all.

    In the paper a level's decoder output and skip connection are concatenated, and the level's map is linear in both.
    merge: one more convolution with ReLU, mrg, combines them first, so that the map can depend on coarse and fine
    features jointly; full resolution gets a second layer, cnv0_1. fine_width: channels there, 0 for `width`.

    depth: how often the encoder halves. The paper's four times give a receptive field of some 40 px around a pixel;
    each further one doubles it and adds a level without a map. The coarsest level is then narrower than 8 · width.
    """

    cnv0: nn.Conv2d
    cnv1: nn.Conv2d
    cnv1_1: nn.Conv2d
    cnv2: nn.Conv2d
    dcnv4: nn.ConvTranspose2d
    dcnv1: nn.ConvTranspose2d
    dt4: nn.Conv2d
    dt3: nn.Conv2d
    dt2: nn.Conv2d
    dt1: nn.Conv2d

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int = 5,
        width: int = 44,
        decoder_kernel: int = 1,
        merge: bool = False,
        fine_width: int = 0,
        depth: int = SHALLOWEST,
    ) -> None:
        super().__init__()
        self.out_channels, self.merge, self.depth = out_channels, merge, depth
        self.shape = in_channels, out_channels, width, decoder_kernel, merge, fine_width, depth
        """The arguments."""
        w, w0 = width, fine_width or width
        made = [w0, w, 2 * w, 4 * w, 8 * w] if depth == SHALLOWEST else [w0, w, 2 * w, 4 * w, 4 * w, 2 * w, 2 * w]
        risen = [w0, 2 * w, 4 * w, 4 * w, 2 * w, 2 * w]
        self.joined = {k: (risen[k - 1], made[k - 1]) for k in range(depth, 0, -1)}
        """Channels joined at each level, 1 being the finest: from the level below, and from the skip connection."""

        def conv(n_in: int, n_out: int, stride: int = 1) -> nn.Conv2d:
            return nn.Conv2d(n_in, n_out, 3, stride, padding=1)

        def up(n_in: int, n_out: int) -> nn.ConvTranspose2d:
            return nn.ConvTranspose2d(n_in, n_out, decoder_kernel, stride=2, output_padding=2 - decoder_kernel)

        read = {k: self.joined[k][1] if merge else sum(self.joined[k]) for k in self.joined}
        layers: dict[str, nn.Module] = {"cnv0": conv(in_channels, w0)}
        if merge:
            layers["cnv0_1"] = conv(w0, w0)
        for k in range(1, depth + 1):
            layers[f"cnv{k}"] = conv(made[k - 1], made[k], 2)
            if k < depth:
                layers[f"cnv{k}_1"] = conv(made[k], made[k])
        for k in self.joined:
            layers[f"dcnv{k}"] = up(read.get(k + 1, made[depth]), self.joined[k][0])
        if merge:
            layers |= {f"mrg{k}": conv(sum(self.joined[k]), read[k]) for k in self.joined}
        layers |= {f"dt{k}": conv(read[k], out_channels) for k in (4, 3, 2, 1)}
        for name, layer in layers.items():
            self.add_module(name, layer)
            _begin(layer, is_head=name.startswith("dt"))
        self.watch: Callable[[str, Tensor], None] | None = None
        """Called with each hidden layer's name and output before the ReLU, only the pixels that its kernel reaches."""

    @property
    def stride(self) -> int:
        """Height and width of the input must be multiples of this."""
        return int(2**self.depth)

    def seam(self, level: int) -> int:
        """Channel where the two halves of a level's join meet, the input of dt and the next dcnv; 0 if merged."""
        return 0 if self.merge else self.joined[level][0]

    def readers(self) -> dict[str, list[tuple[str, int]]]:
        """For each hidden layer, first to last: the layers that read it, and at which of their input channels."""
        skips = {1: "cnv0_1" if self.merge else "cnv0"} | {k: f"cnv{k - 1}_1" for k in range(2, self.depth + 1)}
        found = defaultdict[str, list[tuple[str, int]]](list)
        if self.merge:
            found["cnv0"].append(("cnv0_1", 0))
        for k, source in skips.items():
            found[source].append((f"cnv{k}", 0))
            if k < self.depth:
                found[f"cnv{k}"].append((f"cnv{k}_1", 0))
        found[f"cnv{self.depth}"].append((f"dcnv{self.depth}", 0))
        for k, (risen, _) in self.joined.items():
            behind = [f"dt{k}"] * (k <= SHALLOWEST) + [f"dcnv{k - 1}"] * (k > 1)
            for reader in [f"mrg{k}"] if self.merge else behind:
                found[f"dcnv{k}"].append((reader, 0))
                found[skips[k]].append((reader, risen))
            if self.merge:
                found[f"mrg{k}"] += [(reader, 0) for reader in behind]
        return dict(found)

    def forward(self, x: Tensor, pad_channels: bool | None = None) -> list[Tensor]:
        """The four maps z, coarse to fine; H and W are multiples of `stride`.

        pad_channels: pad channels with zeros to multiples of TENSOR_CORE_CHANNELS, which does not change the result;
        by default in half precision on CUDA.
        """
        pad = _runs_on_tensor_cores(x) if pad_channels is None else pad_channels
        multiple = TENSOR_CORE_CHANNELS if pad else 1

        def conv(name: str, y: Tensor, seam: int = 0) -> Tensor:
            rises = name.startswith("dcnv")
            out = (_upsample if rises else _convolve)(self.get_submodule(name), y, multiple, seam)
            if self.watch is not None and not name.startswith("dt"):
                self.watch(name, out[..., ::2, ::2] if rises and self.shape[3] == 1 else out)
            return out

        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        y = relu(conv("cnv0", _pad_dimension(x, 1, multiple)))
        if self.merge:
            y = relu(conv("cnv0_1", y))
        skipped = {1: y}
        for k in range(1, self.depth):
            skipped[k + 1] = y = relu(conv(f"cnv{k}_1", relu(conv(f"cnv{k}", y))))
        y = relu(conv(f"cnv{self.depth}", y))

        maps, seam = list[Tensor](), 0
        for k in self.joined:
            # Each half is padded separately; the next layers need to know where the seam is.
            y = torch.cat([relu(conv(f"dcnv{k}", y, seam)), skipped[k]], 1)
            if self.merge:
                y = relu(conv(f"mrg{k}", y, self.joined[k][0]))
            seam = self.seam(k)
            if k <= SHALLOWEST:
                maps.append(conv(f"dt{k}", y, seam)[:, : self.out_channels])
        return maps


@torch.no_grad()
def normalised(guess: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """The guess (B, C, H, W) as two channels that are invariant to shifting and scaling the field.

    The mean of the given vectors f, weighted by c (B, 1, H, W), is subtracted, the result is divided by their mean
    deviation, clipped at CLIP and halved. A single channel is followed by zeros; of more than two channels, the two
    with the largest deviation of the given values are used.
    """
    m, deviation = statistics(f, c)
    scale = deviation.mean(1, keepdim=True)
    scale = torch.maximum(scale, RELATIVE_FLOOR * m.abs().amax(1, keepdim=True))
    g = ((guess - m) / scale.clamp(min=torch.finfo(f.dtype).tiny)).clamp(-CLIP, CLIP) / 2
    C = g.shape[1]
    if C == 1:
        return torch.cat([g, torch.zeros_like(g)], 1)
    if C > GUESS_CHANNELS:
        most = deviation.topk(GUESS_CHANNELS, dim=1).indices.sort(1).values
        g = g.gather(1, most.expand(-1, -1, *g.shape[-2:]))
    return g


def new_kernel(layer: nn.Module, generator: torch.Generator | None = None) -> Tensor:
    """A kernel for a hidden layer, drawn on the CPU by He et al. (2015).

    The variance of activations then stays the same from layer to layer, through ReLUs, at any depth.
    """
    assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    # An output pixel of an upsampling layer reads a single input pixel.
    read = layer.in_channels if isinstance(layer, nn.ConvTranspose2d) else layer.weight[0].numel()
    return torch.randn(layer.weight.shape, generator=generator) * math.sqrt(2 / read)


@torch.no_grad()
def _begin(layer: nn.Module, is_head: bool) -> None:
    """Initialise a layer so that a new network predicts nearly constant maps, the biases of its heads.

    With PyTorch's defaults the variance shrinks from layer to layer but biases do not, so deep layers see constants.
    """
    assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and layer.bias is not None
    if is_head:
        layer.weight.mul_(HEADS_AT_FIRST)
    else:
        layer.weight.copy_(new_kernel(layer))
        layer.bias.zero_()


def _runs_on_tensor_cores(x: Tensor) -> bool:
    half = (torch.float16, torch.bfloat16)
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") in half
    return x.is_cuda and (autocast or x.dtype in half)


def _convolve(layer: nn.Module, x: Tensor, multiple: int, seam: int = 0) -> Tensor:
    """Apply the layer with padded channels; x is padded the same way, at the seam and at the end."""
    assert isinstance(layer, nn.Conv2d)
    weight = _pad_dimension(_pad_dimension(layer.weight, 1, multiple, seam), 0, multiple)
    return F.conv2d(x, weight, _pad_bias(layer, multiple), layer.stride, layer.padding)


def _upsample(layer: nn.Module, x: Tensor, multiple: int, seam: int = 0) -> Tensor:
    """Apply the transposed layer of kernel 1 or 2 and stride 2, with channels padded as in `_convolve`."""
    assert isinstance(layer, nn.ConvTranspose2d)
    weight = _pad_dimension(_pad_dimension(layer.weight, 0, multiple, seam), 1, multiple)
    bias = _pad_bias(layer, multiple)
    if layer.kernel_size == (2, 2):
        return F.conv_transpose2d(x, weight, bias, layer.stride)
    # Kernel 1 is a 1×1 convolution whose result goes to the even pixels; the others get only the bias.
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
    """Append zeros to each of the two parts of a dimension, split at the seam, up to a multiple."""
    size = x.shape[dimension]
    before, behind = -seam % multiple, (seam - size) % multiple
    if behind:
        x = F.pad(x, (0, 0) * (x.ndim - 1 - dimension) + (0, behind))
    if before:
        first, second = x.tensor_split([seam], dimension)
        x = torch.cat([F.pad(first, (0, 0) * (x.ndim - 1 - dimension) + (0, before)), second], dimension)
    return x
