"""The Diffusion Tensor Module for inference on the CPU, by oneDNN: channels last, in bfloat16 if the CPU supports it.

The layers of full resolution use most of the memory. They run in strips of rows, so that one layer's output is still in
the cache when the next layer reads it. Their joint buffers are allocated by numpy, which requests huge pages from
Linux; this makes memory that is newly allocated in every call three times cheaper.

oneDNN computes sixteen channels at a time, but a map has only five. So a map's layer computes three rows at once: a
kernel of five rows and stride three, whose fifteen channels are three rows of five channels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.neuroexplicit.dtm import SHALLOWEST, DiffusionTensorModule
from flowinpaint.progress import Tell, part_of

_EXACT = ("cnv0", "cnv0_1", "cnv1", "cnv1_1")
"""Layers that stay in float32: they see small differences of large values; in bfloat16 they dominate the error."""
_TOGETHER = 3
"""Rows that a map's layer computes at once."""
_ABOVE, _BELOW = 1, _TOGETHER
"""Rows of zeros that this needs around an image, whose height may not be a multiple of it."""
_FIRST_STRIP, _LAST_STRIP = 1 << 15, 36 << 10
"""Pixels of a strip, in the first layer and in the last ones."""
_FIRST_DONE, _COARSE_DONE = 0.25, 0.6
"""Share of the time after the first layers, and before the last ones."""


def fastest_dtype() -> torch.dtype:
    """The type in which convolutions are fastest on this CPU: bfloat16 if it has instructions for it."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.bfloat16 if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else torch.float32


class PackedDtm:
    """The layers of a DTM, their weights converted once."""

    def __init__(self, dtm: DiffusionTensorModule, dtype: torch.dtype) -> None:
        self._dtm, self._dtype = dtm, dtype
        self.repack()

    def repack(self) -> None:
        """Read the weights again."""
        self._layers = {name: self._pack(name, layer) for name, layer in self._dtm.named_children()}

    def _pack(self, name: str, layer: nn.Module) -> tuple[Tensor, Tensor]:
        assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        assert layer.bias is not None
        weight, bias = layer.weight.detach(), layer.bias.detach()
        if name.startswith("dt"):
            weight = torch.cat([F.pad(weight, (0, 0, k, _TOGETHER - 1 - k)) for k in range(_TOGETHER)])
            bias = bias.repeat(_TOGETHER)
        if isinstance(layer, nn.ConvTranspose2d) and layer.kernel_size == (1, 1):
            weight = F.pad(weight, (0, 1, 0, 1))  # with stride 2 the same as a kernel of 2×2 with three zeros
        dtype = torch.float32 if name in _EXACT else self._dtype
        return weight.to(dtype).contiguous(memory_format=torch.channels_last), bias.to(dtype)

    def __call__(self, x: Tensor, tell: Tell | None = None) -> list[Tensor]:
        """The maps, coarse to fine, float32, of x (B, n, H, W) float32; H and W are multiples of the stride.

        tell: called with the finished share after each strip.
        """
        tell = tell or (lambda share: None)
        x = x.contiguous(memory_format=torch.channels_last)
        x0, c1 = self._first(x, part_of(tell, 0, _FIRST_DONE))
        x1 = self._conv("cnv1_1", c1).to(self._dtype)
        skipped, y, depth = {2: x1}, x1, self._dtm.depth
        for k in range(2, depth):
            skipped[k + 1] = y = self._conv(f"cnv{k}_1", self._conv(f"cnv{k}", y, 2))
        y = self._conv(f"cnv{depth}", y, 2)
        maps = []
        for k in range(depth, 2, -1):
            joined = self._join(k, y, skipped.pop(k))
            y = _inside(joined)
            if k <= SHALLOWEST:
                maps.append(self._map(f"dt{k}", joined, 0, y.shape[-2]))
        return [*maps, *self._finest(y, x1, x0, part_of(tell, _COARSE_DONE, 1))]

    def _first(self, x: Tensor, tell: Tell) -> tuple[Tensor, Tensor]:
        """The output x0 of the layers of full resolution, and c1 at half the size, computed from the unrounded x0."""
        (B, _, H, W), layers = x.shape, ("cnv0", "cnv0_1") if self._dtm.merge else ("cnv0",)
        x0 = _channels_last(B, self._dtm.cnv0.out_channels, H, W, self._dtype)
        c1 = _channels_last(B, self._dtm.cnv1.out_channels, H // 2, W // 2)
        for top, bottom in _strips(H, _FIRST_STRIP // W, multiple=2):
            # Includes the row above, which the layer of half the size also sees; rows beyond the image are zero.
            above, below = len(layers) + 1, len(layers)
            y = _rows(x, top - above, bottom + below)
            for name in layers:
                above, below = above - 1, below - 1
                y = F.relu_(F.conv2d(y, *self._layers[name], padding=(0, 1)))
                if not top:
                    y[:, :, :above] = 0
                if bottom == H and below:
                    y[:, :, -below:] = 0
            x0[:, :, top:bottom] = y[:, :, 1:]
            c1[:, :, top // 2 : bottom // 2] = F.relu_(F.conv2d(y, *self._layers["cnv1"], stride=2, padding=(0, 1)))
            tell(bottom / H)
        return x0, c1

    def _finest(self, y3: Tensor, x1: Tensor, x0: Tensor, tell: Tell) -> list[Tensor]:
        """The maps of half and of full resolution."""
        B, _, H, W = x1.shape
        half, full = (torch.empty(B, self._dtm.out_channels, s * H, s * W) for s in (1, 2))
        for top, bottom in _strips(H, _LAST_STRIP // (4 * W), multiple=2 * _TOGETHER):
            # Beyond its strip a map needs one more row of its input, y1 or y2; that row of y1 is computed from y2's.
            # The first and last rows of a merged y1 or y2 would need further rows: they are wrong, and not used.
            first, last = max(0, top - 2), min(H, bottom + 2)
            y2 = self._join(2, y3[:, :, first // 2 : last // 2], x1[:, :, first:last])
            half[:, :, top:bottom] = self._map("dt2", y2, top - first, bottom - first)
            start, stop = max(0, top - 1), min(H, bottom + 1)
            y1 = self._join(1, _inside(y2)[:, :, start - first : stop - first], x0[:, :, 2 * start : 2 * stop])
            full[:, :, 2 * top : 2 * bottom] = self._map("dt1", y1, 2 * (top - start), 2 * (bottom - start))
            tell(bottom / H)
        return [half, full]

    def _conv(self, name: str, x: Tensor, stride: int = 1) -> Tensor:
        return F.relu_(F.conv2d(x, *self._layers[name], stride, padding=1))

    def _join(self, level: int, x: Tensor, skipped: Tensor) -> Tensor:
        """The input of a level's map, with rows of zeros above and below for its layer.

        This is the decoder's output concatenated with the skip connection, or both merged.
        """
        B, C, H, W = skipped.shape
        up = F.conv_transpose2d(x, *self._layers[f"dcnv{level}"], stride=2)
        y = _between_zeros(B, up.shape[1] + C, H, W, x.dtype)
        torch.clamp(up, min=0, out=_inside(y)[:, :-C])
        _inside(y)[:, -C:] = skipped
        if not self._dtm.merge:
            return y
        merged = F.conv2d(y[:, :, : _ABOVE + H + 1], *self._layers[f"mrg{level}"], padding=(0, 1))
        y = _between_zeros(B, merged.shape[1], H, W, x.dtype)
        torch.clamp(merged, min=0, out=_inside(y))
        return y

    def _map(self, name: str, y: Tensor, top: int, bottom: int) -> Tensor:
        """The map of rows top to bottom - 1 of the interior of y, float32."""
        count = -(-(bottom - top) // _TOGETHER)
        rows = y[:, :, top : top + count * _TOGETHER + 2]
        z = F.conv2d(rows, *self._layers[name], stride=(_TOGETHER, 1), padding=(0, 1))
        z = z.view(len(z), _TOGETHER, -1, *z.shape[2:]).permute(0, 2, 3, 1, 4).flatten(2, 3)
        return z[:, :, : bottom - top].float()


def _channels_last(B: int, C: int, H: int, W: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Memory for (B, C, H, W), allocated by numpy."""
    memory = torch.from_numpy(np.empty(B * C * H * W * dtype.itemsize, np.uint8)).view(dtype)
    return memory.view(B, H, W, C).permute(0, 3, 1, 2)


def _between_zeros(B: int, C: int, H: int, W: int, dtype: torch.dtype) -> Tensor:
    """Memory for (B, C, H, W), channels last, between rows of zeros."""
    y = torch.empty(B, C, _ABOVE + H + _BELOW, W, dtype=dtype, memory_format=torch.channels_last)
    y[:, :, :_ABOVE], y[:, :, _ABOVE + H :] = 0, 0
    return y


def _inside(y: Tensor) -> Tensor:
    return y[:, :, _ABOVE:-_BELOW]


def _strips(height: int, rows: int, multiple: int) -> list[tuple[int, int]]:
    """Bounds of strips of about `rows` rows, a multiple of `multiple`."""
    rows = max(1, rows // multiple) * multiple
    return [(top, min(top + rows, height)) for top in range(0, height, rows)]


def _rows(x: Tensor, top: int, bottom: int) -> Tensor:
    """Rows of (B, C, H, W), with zeros outside the image."""
    H = x.shape[-2]
    part = x[:, :, max(0, top) : min(H, bottom)]
    return F.pad(part, (0, 0, max(0, -top), max(0, bottom - H))) if top < 0 or bottom > H else part
