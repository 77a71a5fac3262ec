"""The Diffusion Tensor Module on CUDA in half precision: fourteen launches of our own kernels for the paper's network.

A 3×3 convolution to the few channels of z and a transposed convolution of stride 2 are both products of a pixel's
channels with a matrix, the first followed by a sum over the nine neighbours. So each level of the decoder is one
product, which also computes the nine summands of its z. The two layers that a level concatenates write their outputs
directly into the joint buffer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.errors import InputError
from flowinpaint.integers import ceil_div, power_of_two
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from flowinpaint.neuroexplicit.kernels import dtm_triton, dtm_triton_sums
from flowinpaint.neuroexplicit.kernels.dtm_gpu_packing import (
    CHANNELS,
    PackedParameters,
    forward_biases,
    forward_matrices,
    halves_of,
    tap_columns,
)

MOST_PREDICTED = 7
"""Most output channels: nine taps for each of seven channels fill a tile of 64 columns."""
HALVES = (torch.float16, torch.bfloat16)


class PackedDtm:
    """A `DiffusionTensorModule` with its weights in the layout of the kernels, in float16 or bfloat16.

    maps_dtype: type of the maps, by default `dtype`.
    """

    def __init__(self, dtm: DiffusionTensorModule, dtype: torch.dtype, maps_dtype: torch.dtype | None = None) -> None:
        if dtype not in HALVES:
            raise InputError(f"dtype must be torch.float16 or torch.bfloat16, got {dtype}")
        inputs = dtm.cnv0.in_channels
        if inputs > CHANNELS or dtm.out_channels > MOST_PREDICTED:
            raise InputError(
                f"dtm must have at most {CHANNELS} input and {MOST_PREDICTED} output channels, "
                f"got {inputs} and {dtm.out_channels}"
            )
        self.dtype, self.maps_dtype, self.channels = dtype, maps_dtype or dtype, dtm.out_channels
        self._halves, self._merge, self._depth, self.stride = halves_of(dtm), dtm.merge, dtm.depth, dtm.stride
        self._weights = PackedParameters(dtm, forward_matrices, dtype)
        self._biases = PackedParameters(dtm, forward_biases, torch.float32)

    def repack(self, parameters: Tensor | None = None) -> None:
        """Copy the module's weights into the same memory again; parameters: their `dtm_gpu_packing.flat`, if known."""
        self._weights.repack(parameters)
        self._biases.repack(parameters)

    def __call__(self, x: Tensor) -> list[Tensor]:
        """The four maps z (B, h, w, 8), coarse to fine, of x (B, H, W, 8), padded with zero channels."""
        H, W, channels = x.shape[1:]
        fits = channels == CHANNELS and H % self.stride == W % self.stride == 0
        if not fits or x.dtype != self.dtype or not x.is_contiguous():
            raise InputError(
                f"x must be contiguous {self.dtype} of shape (B, H, W, {CHANNELS}) with H and W multiples of "
                f"{self.stride}, got {x.dtype} {tuple(x.shape)}"
            )
        with torch.cuda.device_of(x):
            return self.maps(x)

    def maps(self, x: Tensor, kept: dict[str, Tensor] | None = None) -> list[Tensor]:
        """The four maps z; kept: gets the activations for the gradient: c0, c1, …, bottom, join_k and y_k per level."""
        B, H, W, _ = x.shape

        def keep(name: str, activation: Tensor) -> Tensor:
            if kept is not None:
                kept[name] = activation
            return activation

        halves = self._halves
        joined = {k: x.new_empty(B, H >> k - 1, W >> k - 1, sum(sizes)) for k, sizes in halves.items()}
        up = {k: joined[k][..., : halves[k][0]] for k in joined}
        skipped = {k: joined[k][..., halves[k][0] :] for k in joined}
        if self._merge:
            c0 = keep("c0", self._first(x, x.new_empty(B, H, W, halves[1][1])))
            self._convolve("cnv0_1", c0, skipped[1])
            del c0
        else:
            self._first(x, skipped[1])
        for k in range(1, self._depth):
            c = keep(f"c{k}", self._convolve(f"cnv{k}", skipped[k], stride=2))
            self._convolve(f"cnv{k}_1", c, skipped[k + 1])
            del c
        y = keep("bottom", self._convolve(f"cnv{self._depth}", skipped[self._depth], stride=2))
        taps = list[Tensor]()
        for k in halves:
            taps += self._upsample(f"dcnv{k}", y, up.pop(k))
            join = keep(f"join{k}", joined.pop(k))
            skipped.pop(k)
            y = keep(f"y{k}", self._convolve(f"mrg{k}", join) if self._merge else join)
            del join
        taps.append(self._tap_products(y))
        maps = [x.new_empty(B, H // s, W // s, CHANNELS, dtype=self.maps_dtype) for s in (8, 4, 2, 1)]
        tiles = sum(ceil_div(B * H * W // s**2, _SUMMED) for s in (8, 4, 2, 1))
        launch(
            dtm_triton_sums.sum_of_taps,
            (tiles,),
            *taps,
            self._biases["dt"],
            *maps,
            B,
            H,
            W,
            self.channels,
            _SUMMED,
        )
        return maps

    def _first(self, x: Tensor, out: Tensor) -> Tensor:
        B, H, W, _ = x.shape
        weight, bias = self._weights["cnv0"], self._biases["cnv0"]
        columns = min(64, power_of_two(weight.shape[1]))
        tile, warps = _first_tile(B * H * W)
        grid = (ceil_div(B * H * W, tile), ceil_div(weight.shape[1], columns))
        launch(
            dtm_triton.first_convolution,
            grid,
            x,
            weight,
            bias,
            out,
            B * H * W,
            H,
            W,
            weight.shape[1],
            out.stride(2),
            tile,
            columns,
            num_warps=warps,
        )
        return out

    def _convolve(self, name: str, x: Tensor, out: Tensor | None = None, stride: int = 1) -> Tensor:
        B, H, W, C = x.shape
        weight, bias = self._weights[name], self._biases[name]
        N = weight.shape[1]
        if out is None:
            out = x.new_empty(B, H // stride, W // stride, N)
        pixels = out.numel() // N
        tile, columns, warps, stages = _convolution_tile(pixels, C, N)
        grid = (ceil_div(pixels, tile), ceil_div(N, columns))
        launch(
            dtm_triton.convolution,
            grid,
            x,
            weight,
            bias,
            out,
            pixels,
            H,
            W,
            stride,
            C,
            x.stride(2),
            N,
            out.stride(2),
            *pieces(C),
            tile,
            columns,
            num_warps=warps,
            num_stages=stages,
        )
        return out

    def _upsample(self, name: str, x: Tensor, out: Tensor) -> list[Tensor]:
        """Write the features of twice the size, and return the summands of the z computed from x, if any."""
        B, h, w, A = x.shape
        weight, bias = self._weights[name], self._biases[name]
        C = bias.numel() // 4
        pixels = B * h * w
        plane = ceil_div(pixels, 16)
        columns_of_taps = weight.shape[1] - 4 * C
        taps = [self._planes(x, plane)] if columns_of_taps else []
        tile, columns, warps, stages = _upsampling_tile(pixels, C)
        grid = (ceil_div(pixels, tile), ceil_div(weight.shape[1], columns))
        launch(
            dtm_triton.upsampling,
            grid,
            x,
            weight,
            bias,
            out,
            taps[0] if taps else None,
            pixels,
            plane,
            w,
            self.channels,
            A,
            *pieces(A),
            C,
            out.stride(2),
            columns_of_taps,
            tile,
            columns,
            num_warps=warps,
            num_stages=stages,
        )
        return taps

    def _tap_products(self, x: Tensor) -> Tensor:
        """The summands of the finest z."""
        A = x.shape[3]
        pixels = x.numel() // A
        plane = ceil_div(pixels, 16)
        taps = self._planes(x, plane)
        launch(
            dtm_triton.tap_products,
            (ceil_div(pixels, 128),),
            x,
            self._weights["dt1"],
            taps,
            pixels,
            plane,
            self.channels,
            A,
            *pieces(A),
            tap_columns(self.channels),
            128,
            64,
            num_warps=8,
        )
        return taps

    def _planes(self, like: Tensor, plane: int) -> Tensor:
        """Memory for the products of the taps with plane · 16 pixels, one plane per tap and channel."""
        return torch.empty(9 * self.channels, plane * 16, dtype=torch.float16, device=like.device)


_SUMMED = 512
"""Pixels of a tile of `sum_of_taps`."""
_FEW = 16384
"""Below this number of pixels, large tiles do not fill the device."""


# Use four warps with at most 64 pixels: beyond that Triton 3.6 generates wrong code on Hopper for several products
# outside a loop (wrong values or out-of-bounds accesses). Seen with (256, 4) for `first_convolution`.


def _first_tile(pixels: int) -> tuple[int, int]:
    return 128, 8


def _convolution_tile(pixels: int, C: int, N: int) -> tuple[int, int, int, int]:
    """Pixels and columns of a tile, warps and stages of its program."""
    if N <= 64:
        return 128, power_of_two(N), 8, 3
    if pixels >= _FEW:
        return (128, 256, 8, 3) if N == 192 and C > 128 else (128, 128, 8, 2 if 64 < C <= 96 else 3)
    if N <= 128:
        return 128, 128, 8, 3
    return (64, 64, 4, 5 if C > 96 else 3) if N <= 256 else (64, 32, 4, 5)


def _upsampling_tile(pixels: int, C: int) -> tuple[int, int, int, int]:
    if C % 32:
        return 128, 64, 8, 3
    return (64, 64, 4, 4) if pixels < 1024 else (128, 128, 8, 3)


def pieces(channels: int) -> tuple[int, int]:
    """HEAD and TAIL, together at most 96: the kernels process a pixel's channels in such pieces."""
    return next((head, tail) for head, tail in _PIECES if channels % (head + tail) == 0)


_PIECES = ((64, 0), (64, 32), (32, 0), (32, 16), (16, 0))
