"""The Diffusion Tensor Module with its gradient on CUDA, in half precision, by our own kernels.

The gradients of activations are products of pixels with matrices as the activations are (`dtm_gpu`); those of weights
are sums over all pixels, each of which several programs share, in parts that are then added in a fixed order.

Activations and gradients may be of two types: the rounding of activations decides how exact a gradient is, its own
hardly matters, but gradients need the range of bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.integers import ceil_div, power_of_two
from flowinpaint.neural.dtm import DiffusionTensorModule
from flowinpaint.neural.kernels import dtm_training_loops
from flowinpaint.neural.kernels.dtm_gpu import PackedDtm, pieces
from flowinpaint.neural.kernels.dtm_gpu_packing import (
    CHANNELS,
    PackedParameters,
    backward_matrices,
    flat,
)
from flowinpaint.neural.kernels.dtm_training_sums import GradientSums, block

_ACTIVATIONS = ("x0", "c1", "x1", "c2", "x2", "c3", "x3", "x4", "up4", "up3", "up2", "up1")
_COLUMNS = 64
_TILES = {
    "head": (128, 8, 3),
    "convolution": (128, 8, 3),
    "strided": (128, 8, 3),
    "upsampling": (128, 8, 3),
    "weight": (64, 4, 3),
    "large weight": (64, 8, 3),
    "taps weight": (64, 8, 3),
}
"""Pixels of a tile, or those that a weight's gradient takes at a time; warps and stages of its program."""


class TrainableDtm:
    """A `DiffusionTensorModule` whose maps, and their gradient for its parameters, our kernels compute."""

    def __init__(self, dtm: DiffusionTensorModule, dtype: torch.dtype, gradients: torch.dtype) -> None:
        """dtype: of input and activations, float16 or bfloat16; gradients: of maps and gradients, not less wide."""
        self.dtm, self.gradients = dtm, gradients
        self.network = PackedDtm(dtm, dtype, gradients)
        self.transposed = PackedParameters(dtm, backward_matrices, gradients)
        self.sums = GradientSums(dtm)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, H, W, 8) as `PackedDtm` takes it to its four maps, differentiable for the parameters, not for x."""
        maps: tuple[Tensor, ...] = _Dtm.apply(x, self, *self.dtm.parameters())
        return maps


class _Dtm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, trainable: TrainableDtm, *_: Tensor) -> tuple[Tensor, ...]:
        parameters = flat(trainable.dtm)
        trainable.network.repack(parameters)
        trainable.transposed.repack(parameters)
        kept: dict[str, Tensor] = {}
        with torch.cuda.device_of(x):
            maps = trainable.network.maps(x, kept)
        ctx.save_for_backward(x, *(kept[name] for name in _ACTIVATIONS))
        ctx.trainable = trainable
        return tuple(maps)

    @staticmethod
    def backward(ctx: Any, *dz: Tensor) -> tuple[Tensor | None, ...]:
        x, *kept = ctx.saved_tensors
        activations = dict(zip(_ACTIVATIONS, kept, strict=True))
        with torch.cuda.device_of(x):
            gradients = _Backward(ctx.trainable).run(x, activations, [z.contiguous() for z in dz])
        return None, None, *gradients


class _Backward:
    """One pass from the maps' gradients to the parameters'."""

    def __init__(self, trainable: TrainableDtm) -> None:
        self.weights, self.sums, self.dtype = trainable.transposed, trainable.sums, trainable.gradients
        self.channels = trainable.dtm.out_channels

    def run(self, x: Tensor, a: dict[str, Tensor], dz: list[Tensor]) -> list[Tensor]:
        """x, activations a and dz, the gradients of the maps from coarse to fine, to those of the parameters."""
        for k, z in enumerate(dz):
            biases = self.sums["dt.bias"][k * self.channels : (k + 1) * self.channels]
            torch.sum(z[..., : self.channels], (0, 1, 2), dtype=torch.float32, out=biases)
        g = self._through_head("dcnv1", dz[3], a["up1"])
        self._taps_weight("dt1", dz[3], a["up1"], a["x0"])
        skipped = {}
        for k, name, head in ((1, "dcnv1", "dt2"), (2, "dcnv2", "dt3"), (3, "dcnv3", "dt4")):
            z, upper, x_k = dz[3 - k], a[f"up{k + 1}"], a[f"x{k}"]
            self._upsampling_weights(name, g, upper, x_k)
            self._taps_weight(head, z, upper, x_k)
            g, skipped[k] = self._through_decoder(name, f"dcnv{k + 1}", g, upper, z, x_k)
        self._upsampling_weights("dcnv4", g, a["x4"])
        g, _ = self._through_decoder("dcnv4", "cnv4", g, a["x4"])
        self._weight("cnv4", a["x3"], g, 2, 3)
        g = self._through_stride("cnv4", "cnv3_1", g, a["x3"], skipped[3])
        for k in (3, 2, 1):
            self._weight(f"cnv{k}_1", a[f"c{k}"], g, 1, 3)
            g = self._through_convolution(f"cnv{k}_1", f"cnv{k}", g, a[f"c{k}"])
            self._weight(f"cnv{k}", a[f"x{k - 1}"], g, 2, 3)
            skip = skipped[k - 1] if k > 1 else dz[3]
            g = self._through_stride(f"cnv{k}", f"cnv{k - 1}_1" if k > 1 else "cnv0", g, a[f"x{k - 1}"], skip)
        self._taps_weight("cnv0", x, g)
        return self.sums.gradients()

    def _through_head(self, maker: str, dz: Tensor, active: Tensor) -> Tensor:
        B, H, W, C = active.shape
        out, weight = torch.empty_like(active, dtype=self.dtype), self.weights["dt1"]
        columns = min(_COLUMNS, power_of_two(C))
        tile, warps, stages = _TILES["head"]
        grid = (ceil_div(B * H * W, tile), ceil_div(C, columns))
        sums = torch.empty(grid[0], C, device=dz.device)
        launch(
            dtm_training_loops.head_gradient,
            grid,
            dz,
            weight,
            active,
            out,
            sums,
            B * H * W,
            H,
            W,
            C,
            weight.shape[1],
            tile,
            columns,
            num_warps=warps,
            num_stages=stages,
        )
        self._bias(maker, sums)
        return out

    def _through_convolution(self, name: str, maker: str, g: Tensor, active: Tensor) -> Tensor:
        B, H, W, C = g.shape
        out = torch.empty_like(active, dtype=self.dtype)
        N = out.shape[3]
        tile, warps, stages = _TILES["convolution"]
        grid = (ceil_div(B * H * W, tile), ceil_div(N, _COLUMNS))
        sums = torch.empty(grid[0], N, device=g.device)
        launch(
            dtm_training_loops.convolution_gradient,
            grid,
            g,
            self.weights[name],
            active,
            out,
            sums,
            B * H * W,
            H,
            W,
            C,
            N,
            *pieces(C),
            tile,
            _COLUMNS,
            num_warps=warps,
            num_stages=stages,
        )
        self._bias(maker, sums)
        return out

    def _through_stride(self, name: str, maker: str, g: Tensor, active: Tensor, skipped: Tensor) -> Tensor:
        """skipped: what comes through the skip connection, or the finest dz, from which it is made."""
        B, h, w, C = g.shape
        out = torch.empty_like(active, dtype=self.dtype)
        N = out.shape[3]
        tile, warps, stages = _TILES["strided"]
        grid = (ceil_div(B * h * w, tile), ceil_div(N, _COLUMNS), 4)
        sums = torch.empty(4 * grid[0], N, device=g.device)
        made = skipped.shape[3] == CHANNELS
        launch(
            dtm_training_loops.strided_gradient,
            grid,
            g,
            self.weights[name],
            None if made else skipped,
            skipped if made else None,
            self.weights["dt1"] if made else None,
            active,
            out,
            sums,
            B * h * w,
            h,
            w,
            C,
            N,
            *pieces(C),
            self.weights["dt1"].shape[1] if made else 0,
            tile,
            _COLUMNS,
            num_warps=warps,
            num_stages=stages,
        )
        self._bias(maker, sums)
        return out

    def _through_decoder(
        self,
        name: str,
        maker: str,
        g: Tensor,
        upper: Tensor,
        dz: Tensor | None = None,
        skip: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        B, h, w, A = upper.shape
        out, skipped = (torch.empty_like(x, dtype=self.dtype) for x in (upper, upper if skip is None else skip))
        C, skips = g.shape[3], 0 if skip is None else skip.shape[3]
        tile, warps, stages = _TILES["upsampling"]
        grid = (ceil_div(B * h * w, tile), ceil_div(A + skips, _COLUMNS))
        sums = torch.empty(grid[0], A, device=g.device)
        launch(
            dtm_training_loops.upsampling_gradient,
            grid,
            g,
            dz,
            self.weights[name],
            upper,
            out,
            sums,
            skipped,
            B * h * w,
            h,
            w,
            C,
            *pieces(C),
            A,
            skips,
            tile,
            _COLUMNS,
            num_warps=warps,
            num_stages=stages,
        )
        self._bias(maker, sums)
        return out, skipped

    def _upsampling_weights(self, name: str, g: Tensor, upper: Tensor, skip: Tensor | None = None) -> None:
        self._weight(name, g, upper, 2, 2)
        if skip is not None:
            self._weight(f"{name}.skipped", g, skip, 2, 2)

    def _weight(self, name: str, source: Tensor, other: Tensor, stride: int, side: int) -> None:
        out, parts = self.sums[name], self.sums.parts[name]
        H, W, C = source.shape[1:]
        pixels, N = other.numel() // other.shape[3], other.shape[3]
        rows, columns = block(C), block(N)
        taken, warps, stages = _TILES["weight" if rows * columns <= 64 * 64 else "large weight"]
        chunks = ceil_div(ceil_div(pixels, taken), parts)
        grid = (side**2 * ceil_div(C, rows), ceil_div(N, columns), parts)
        launch(
            dtm_training_loops.weight_gradient,
            grid,
            source,
            other,
            out,
            pixels,
            H,
            W,
            stride,
            chunks,
            C,
            N,
            side,
            rows,
            columns,
            taken,
            num_warps=warps,
            num_stages=stages,
        )

    def _taps_weight(self, name: str, source: Tensor, upper: Tensor, skip: Tensor | None = None) -> None:
        out, parts = self.sums[name], self.sums.parts[name]
        B, H, W, A = upper.shape
        skips = 0 if skip is None else skip.shape[3]
        columns = block(A + skips)
        taken, warps, stages = _TILES["taps weight"]
        chunks = ceil_div(ceil_div(B * H * W, taken), parts)
        grid = (ceil_div(A + skips, columns), parts)
        launch(
            dtm_training_loops.taps_weight_gradient,
            grid,
            source,
            upper,
            skip,
            out,
            B * H * W,
            H,
            W,
            chunks,
            A,
            skips,
            columns,
            taken,
            num_warps=warps,
            num_stages=stages,
        )

    def _bias(self, name: str, sums: Tensor) -> None:
        """The gradient of the layer that made an activation, from the sums (programs, channels) over its pixels."""
        torch.sum(sums, 0, out=self.sums[f"{name}.bias"])
