"""The Diffusion Tensor Module on CUDA in half precision: thirteen launches of our own kernels.

A 3×3 convolution to the few channels of z, and a transposed convolution of stride 2, are both products of a pixel's
channels with a matrix, the first followed by a sum over the nine neighbours. So each level of the decoder is one
product, which also makes the nine summands of its z, and no concatenation is ever written; the finest upsampled field,
the largest of them, is not written either.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.errors import InputError
from flowinpaint.integers import ceil_div, power_of_two
from flowinpaint.neural.dtm import STRIDE, DiffusionTensorModule
from flowinpaint.neural.kernels import dtm_gpu_loops, dtm_gpu_sum_loops
from flowinpaint.neural.kernels.dtm_gpu_packing import (
    CHANNELS,
    PackedParameters,
    forward_biases,
    forward_matrices,
    tap_columns,
)

MOST_PREDICTED = 7
"""Nine taps to so many channels fill a tile of 64 columns."""
HALVES = (torch.float16, torch.bfloat16)


class PackedDtm:
    """A `DiffusionTensorModule` with its weights laid out for the kernels, in float16 or bfloat16.

    The maps are of another type where one is given.
    """

    def __init__(self, dtm: DiffusionTensorModule, dtype: torch.dtype, maps_dtype: torch.dtype | None = None) -> None:
        if dtype not in HALVES:
            raise InputError(f"dtype: {dtype} was given; torch.float16 or torch.bfloat16 is taken.")
        inputs = dtm.cnv0.in_channels
        if inputs > CHANNELS or dtm.out_channels > MOST_PREDICTED:
            raise InputError(
                f"dtm: {inputs} channels to {dtm.out_channels} were given; at most {CHANNELS} to at most "
                f"{MOST_PREDICTED} are taken."
            )
        self.dtype, self.maps_dtype, self.channels = dtype, maps_dtype or dtype, dtm.out_channels
        self._weights = PackedParameters(dtm, forward_matrices, dtype)
        self._biases = PackedParameters(dtm, forward_biases, torch.float32)

    def repack(self, parameters: Tensor | None = None) -> None:
        """Copy the module's weights, of which `parameters` is `dtm_gpu_packing.flat`, into the same memory again."""
        self._weights.repack(parameters)
        self._biases.repack(parameters)

    def __call__(self, x: Tensor) -> list[Tensor]:
        """(B, H, W, 8), the channels beyond the module's zero, to four maps z (B, h, w, 8), coarse to fine."""
        H, W, channels = x.shape[1:]
        if channels != CHANNELS or H % STRIDE or W % STRIDE or x.dtype != self.dtype or not x.is_contiguous():
            raise InputError(
                f"x: shape {tuple(x.shape)} of {x.dtype} was given; contiguous (B, H, W, {CHANNELS}) of {self.dtype} "
                f"with H and W multiples of {STRIDE} is taken."
            )
        with torch.cuda.device_of(x):
            return self.maps(x)

    def maps(self, x: Tensor, kept: dict[str, Tensor] | None = None) -> list[Tensor]:
        """The four maps z; the activations, by the names they have in the module's `forward`, go to `kept`."""
        B, H, W, _ = x.shape
        x0 = self._first(x)
        c1 = self._convolve("cnv1", x0, 2)
        x1 = self._convolve("cnv1_1", c1)
        c2 = self._convolve("cnv2", x1, 2)
        x2 = self._convolve("cnv2_1", c2)
        c3 = self._convolve("cnv3", x2, 2)
        x3 = self._convolve("cnv3_1", c3)
        x4 = self._convolve("cnv4", x3, 2)
        up4, _ = self._upsample("dcnv4", x4)
        up3, taps4 = self._upsample("dcnv3", up4, x3)
        if kept is not None:
            kept.update(c1=c1, c2=c2, c3=c3, x3=x3, x4=x4, up4=up4)
        del c1, c2, c3, x3, x4, up4
        up2, taps3 = self._upsample("dcnv2", up3, x2)
        taps2: Tensor | None
        if kept is None:
            taps2, taps1 = self._finish(up2, x1, x0)
        else:
            up1, taps2 = self._upsample("dcnv1", up2, x1)
            taps1 = self._tap_products(up1, x0)
            kept.update(x0=x0, x1=x1, x2=x2, up3=up3, up2=up2, up1=up1)
        del x0, x1, x2, up3, up2
        maps = [x.new_empty(B, H // s, W // s, CHANNELS, dtype=self.maps_dtype) for s in (8, 4, 2, 1)]
        # Of the finest level, one in four of the pixels of a square to a tile.
        tiles = sum(ceil_div(B * H * W // s**2, _SUMMED) for s in (8, 4, 2, 2, 2, 2, 2))
        launch(
            dtm_gpu_sum_loops.sum_of_taps,
            (tiles,),
            taps4,
            taps3,
            taps2,
            taps1,
            self._biases["dt"],
            *maps,
            B,
            H // 2,
            W // 2,
            2 if kept is None else 1,
            self.channels,
            _SUMMED,
        )
        return maps

    def _first(self, x: Tensor) -> Tensor:
        B, H, W, _ = x.shape
        weight, bias = self._weights["cnv0"], self._biases["cnv0"]
        out = x.new_empty(B, H, W, weight.shape[1])
        columns = min(64, power_of_two(weight.shape[1]))
        tile, warps = _first_tile(B * H * W)
        grid = (ceil_div(B * H * W, tile), ceil_div(weight.shape[1], columns))
        launch(
            dtm_gpu_loops.first_convolution,
            grid,
            x,
            weight,
            bias,
            out,
            B * H * W,
            H,
            W,
            weight.shape[1],
            tile,
            columns,
            num_warps=warps,
        )
        return out

    def _convolve(self, name: str, x: Tensor, stride: int = 1) -> Tensor:
        B, H, W, C = x.shape
        weight, bias = self._weights[name], self._biases[name]
        N = weight.shape[1]
        out = x.new_empty(B, H // stride, W // stride, N)
        pixels = out.numel() // N
        tile, columns, warps, stages = _convolution_tile(pixels, C, N)
        grid = (ceil_div(pixels, tile), ceil_div(N, columns))
        launch(
            dtm_gpu_loops.convolution,
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
            N,
            *pieces(C),
            tile,
            columns,
            num_warps=warps,
            num_stages=stages,
        )
        return out

    def _upsample(self, name: str, upper: Tensor, skipped: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The field of twice the size and, below a concatenation, the summands of its z (B, h, w, taps)."""
        B, h, w, A = upper.shape
        weight, bias = self._weights[name], self._biases[name]
        C = bias.numel() // 4
        out = upper.new_empty(B, 2 * h, 2 * w, C)
        pixels = B * h * w
        plane = ceil_div(pixels, 16)
        taps = None if skipped is None else self._planes(upper, plane)
        tile, columns, warps, stages = _upsampling_tile(pixels, C)
        skips = 0 if skipped is None else skipped.shape[3]
        grid = (ceil_div(pixels, tile), ceil_div(weight.shape[1], columns))
        launch(
            dtm_gpu_loops.upsampling,
            grid,
            upper,
            skipped,
            weight,
            bias,
            out,
            taps,
            pixels,
            plane,
            w,
            self.channels,
            A,
            _step(A),
            skips,
            _step(skips),
            C,
            weight.shape[1] - 4 * C,
            tile,
            columns,
            num_warps=warps,
            num_stages=stages,
        )
        return out, taps

    def _tap_products(self, upper: Tensor, skipped: Tensor) -> Tensor:
        """The summands of the finest z."""
        A, B = upper.shape[3], skipped.shape[3]
        pixels = upper.numel() // A
        plane = ceil_div(pixels, 16)
        taps = self._planes(upper, plane)
        launch(
            dtm_gpu_loops.tap_products,
            (ceil_div(pixels, 128),),
            upper,
            skipped,
            self._weights["dt1"],
            taps,
            pixels,
            plane,
            self.channels,
            A,
            _step(A),
            B,
            _step(B),
            tap_columns(self.channels),
            128,
            64,
            num_warps=8,
        )
        return taps

    def _finish(self, upper: Tensor, skipped: Tensor, finest: Tensor) -> tuple[Tensor, Tensor]:
        """The summands of the two finest z, without the finest upsampled field."""
        B, h, w, A = upper.shape
        C = finest.shape[3]
        pixels = B * h * w
        plane = ceil_div(pixels, 16)
        taps2, taps1 = self._planes(upper, plane), self._planes(upper, 4 * plane)
        tile, warps, stages = _last_tile(pixels)
        launch(
            dtm_gpu_loops.last_upsampling,
            (ceil_div(pixels, tile),),
            upper,
            skipped,
            finest,
            self._weights["dcnv1"],
            self._biases["dcnv1"],
            self._weights["dt1"],
            taps2,
            taps1,
            pixels,
            plane,
            w,
            self.channels,
            *_whole(A),
            *_whole(skipped.shape[3]),
            C,
            *_whole(C),
            tap_columns(self.channels),
            tile,
            power_of_two(C),
            64,
            num_warps=warps,
            num_stages=stages,
        )
        return taps2, taps1

    def _planes(self, like: Tensor, plane: int) -> Tensor:
        """Memory for what the taps make of plane · 16 pixels, a plane for each tap and channel."""
        return torch.empty(9 * self.channels, plane * 16, dtype=torch.float16, device=like.device)


_SUMMED = 512
"""Pixels of a tile of `sum_of_taps`."""
_FEW = 16384
"""Pixels that do not fill the device with large tiles."""


# Four warps to 64 pixels, never to more: of several products outside a loop Triton 3.6 then makes wrong code on Hopper,
# false values or accesses out of bounds. Seen with (128, 4) for `last_upsampling` and (256, 4) for `first_convolution`.


def _first_tile(pixels: int) -> tuple[int, int]:
    return 128, 8


def _last_tile(pixels: int) -> tuple[int, int, int]:
    return 64, 4, 1


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
    """HEAD and TAIL, of at most 96 channels together, by which the kernels go through a pixel's channels."""
    if channels & (channels - 1) and channels <= 96:
        return channels * 2 // 3, channels // 3
    return min(channels, 64), 0


def _step(channels: int) -> int:
    """The largest power of two, up to 64, that divides the channels."""
    return min(channels & -channels, 64)


def _whole(channels: int) -> tuple[int, int]:
    """HEAD and TAIL that are all the channels."""
    return (channels * 2 // 3, channels // 3) if channels & (channels - 1) else (channels, 0)
