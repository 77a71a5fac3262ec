"""The Diffusion Tensor Module with its gradient on CUDA, in half precision, by our own kernels.

The gradients of activations are products of pixels with matrices, as the activations are (`dtm_gpu`); those of weights
are sums over all pixels, which several programs compute in parts that are then added in a fixed order.

Activations and gradients may have different types: the rounding of activations determines the accuracy of a gradient,
its own rounding hardly matters, but gradients need the range of bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.integers import ceil_div, power_of_two
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from flowinpaint.neuroexplicit.kernels import dtm_training_triton
from flowinpaint.neuroexplicit.kernels.dtm_gpu import PackedDtm, pieces
from flowinpaint.neuroexplicit.kernels.dtm_gpu_packing import PackedParameters, backward_matrices, flat, halves_of
from flowinpaint.neuroexplicit.kernels.dtm_training_sums import GradientSums, block

_COLUMNS = 64
_PIXELS = 128
"""Pixels of a tile of an activation's gradient, computed by eight warps in three stages."""
_TAKEN = 64
"""Pixels that the kernel of a weight's gradient adds at a time, in three stages."""


class TrainableDtm:
    """A `DiffusionTensorModule` whose maps and parameter gradients are computed by our kernels."""

    def __init__(self, dtm: DiffusionTensorModule, dtype: torch.dtype, gradients: torch.dtype) -> None:
        """dtype: of input and activations, float16 or bfloat16; gradients: of maps and gradients, at least as wide."""
        self.dtm, self.gradients = dtm, gradients
        self.network = PackedDtm(dtm, dtype, gradients)
        self.transposed = PackedParameters(dtm, backward_matrices, gradients)
        self.sums = GradientSums(dtm)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """The four maps of x (B, H, W, 8), as in `PackedDtm`; differentiable for the parameters, not for x."""
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
        ctx.save_for_backward(x, *kept.values())
        ctx.trainable, ctx.names = trainable, list(kept)
        return tuple(maps)

    @staticmethod
    def backward(ctx: Any, *dz: Tensor) -> tuple[Tensor | None, ...]:
        x, *kept = ctx.saved_tensors
        activations = dict(zip(ctx.names, kept, strict=True))
        with torch.cuda.device_of(x):
            gradients = _Backward(ctx.trainable).run(x, activations, [z.contiguous() for z in dz])
        return None, None, *gradients


class _Backward:
    """One backward pass from the gradients of the maps to those of the parameters."""

    def __init__(self, trainable: TrainableDtm) -> None:
        self.weights, self.sums, self.dtype = trainable.transposed, trainable.sums, trainable.gradients
        self.channels, self.merge, self.depth = trainable.dtm.out_channels, trainable.dtm.merge, trainable.dtm.depth
        self.halves = halves_of(trainable.dtm)

    def run(self, x: Tensor, a: dict[str, Tensor], dz: list[Tensor]) -> list[Tensor]:
        """Gradients of the parameters from x, the activations a and dz, the gradients of the maps, coarse to fine."""
        for k, z in enumerate(dz):
            biases = self.sums["dt.bias"][k * self.channels : (k + 1) * self.channels]
            torch.sum(z[..., : self.channels], (0, 1, 2), dtype=torch.float32, out=biases)
        skipped = {}
        self._taps_weight("dt1", dz[3], a["y1"])
        g = self._through_head(dz[3], a["y1"])
        for k in range(1, self.depth + 1):
            if self.merge:
                self._weight(f"mrg{k}", a[f"join{k}"], g, 1, 3)
                g = self._through_convolution(f"mrg{k}", f"dcnv{k}", g, a[f"join{k}"])
            below, skipped[k] = g.split(self.halves[k], 3)
            read = a[f"y{k + 1}"] if k < self.depth else a["bottom"]
            self._weight(f"dcnv{k}", below, read, 2, 2)
            if k < len(dz):
                self._taps_weight(f"dt{k + 1}", dz[3 - k], read)
            g = self._through_decoder(k, below, read, dz[3 - k] if k < len(dz) else None)
        self._weight(f"cnv{self.depth}", self._skips(a, self.depth), g, 2, 3)
        g = self._through_stride(
            f"cnv{self.depth}", f"cnv{self.depth - 1}_1", g, self._skips(a, self.depth), skipped[self.depth]
        )
        for k in range(self.depth - 1, 0, -1):
            self._weight(f"cnv{k}_1", a[f"c{k}"], g, 1, 3)
            g = self._through_convolution(f"cnv{k}_1", f"cnv{k}", g, a[f"c{k}"])
            self._weight(f"cnv{k}", self._skips(a, k), g, 2, 3)
            maker = f"cnv{k - 1}_1" if k > 1 or self.merge else "cnv0"
            g = self._through_stride(f"cnv{k}", maker, g, self._skips(a, k), skipped[k])
        if self.merge:
            self._weight("cnv0_1", a["c0"], g, 1, 3)
            g = self._through_convolution("cnv0_1", "cnv0", g, a["c0"])
        self._taps_weight("cnv0", x, g)
        return self.sums.gradients()

    def _skips(self, a: dict[str, Tensor], level: int) -> Tensor:
        """The half of a level's join that comes from the skip connection."""
        half: Tensor = a[f"join{level}"].split(self.halves[level], 3)[1]
        return half

    def _maker(self, level: int) -> str:
        """The layer that computed a level's input of dt and the next dcnv, or its first half if it is a join."""
        return f"mrg{level}" if self.merge else f"dcnv{level}"

    def _through_head(self, dz: Tensor, active: Tensor) -> Tensor:
        N = active.shape[3]
        columns = min(_COLUMNS, power_of_two(N))
        inputs, kernel = (dz, self.weights["dt1"]), dtm_training_triton.head_gradient
        return self._through(kernel, self._maker(1), inputs, active, active.shape, (N,), columns)

    def _through_convolution(self, name: str, maker: str, g: Tensor, active: Tensor) -> Tensor:
        C = g.shape[3]
        constants, kernel = (C, active.shape[3], *pieces(C)), dtm_training_triton.convolution_gradient
        return self._through(kernel, maker, (g, self.weights[name]), active, g.shape, constants)

    def _through_stride(self, name: str, maker: str, g: Tensor, active: Tensor, skipped: Tensor) -> Tensor:
        """Back through a 3×3 of stride 2; skipped: the gradient from the skip connection, like active half a join."""
        C = g.shape[3]
        inputs, constants = (g, self.weights[name], skipped), (C, active.shape[3], *pieces(C), active.stride(2))
        return self._through(dtm_training_triton.strided_gradient, maker, inputs, active, g.shape, constants, phases=4)

    def _through_decoder(self, level: int, g: Tensor, active: Tensor, dz: Tensor | None) -> Tensor:
        """From the gradients of a level's decoder and of the z that reads the same input to that input's gradient."""
        C = g.shape[3]
        inputs, kernel = (g, dz, self.weights[f"dcnv{level}"]), dtm_training_triton.upsampling_gradient
        constants = (C, g.stride(2), *pieces(C), active.shape[3], dz is not None)
        maker = f"cnv{level}" if level == self.depth else self._maker(level + 1)
        return self._through(kernel, maker, inputs, active, active.shape, constants)

    def _through(
        self,
        kernel: Any,
        maker: str,
        inputs: tuple[Tensor | None, ...],
        active: Tensor,
        shape: torch.Size,
        constants: tuple[int, ...],
        columns: int = _COLUMNS,
        phases: int = 1,
    ) -> Tensor:
        """The gradient of an activation; also adds up that of the bias of the layer `maker` that computed it.

        shape: (B, H, W, ·) of the pixels that the programs process; phases: output pixels per such pixel.
        """
        (B, H, W, _), N = shape, active.shape[3]
        out = torch.empty(active.shape, dtype=self.dtype, device=active.device)
        grid = (ceil_div(B * H * W, _PIXELS), ceil_div(N, columns), phases)
        sums = torch.empty(phases * grid[0], N, device=active.device)
        options = {"num_warps": 8, "num_stages": 3}
        launch(kernel, grid, *inputs, active, out, sums, B * H * W, H, W, *constants, _PIXELS, columns, **options)
        # For a join only the first channels are complete: the other half receives more gradient later.
        bias = self.sums[f"{maker}.bias"]
        torch.sum(sums[:, : bias.numel()], 0, out=bias)
        return out

    def _weight(self, name: str, source: Tensor, other: Tensor, stride: int, side: int) -> None:
        out, parts = self.sums[name], self.sums.parts[name]
        H, W, C = source.shape[1:]
        pixels, N = other.numel() // other.shape[3], other.shape[3]
        rows, columns = block(C), block(N)
        chunks = ceil_div(ceil_div(pixels, _TAKEN), parts)
        grid = (side**2 * ceil_div(C, rows), ceil_div(N, columns), parts)
        launch(
            dtm_training_triton.weight_gradient,
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
            source.stride(2),
            N,
            side,
            rows,
            columns,
            _TAKEN,
            num_warps=4 if rows * columns <= 64 * 64 else 8,
            num_stages=3,
        )

    def _taps_weight(self, name: str, source: Tensor, other: Tensor) -> None:
        out, parts = self.sums[name], self.sums.parts[name]
        B, H, W, N = other.shape
        columns = block(N)
        chunks = ceil_div(ceil_div(B * H * W, _TAKEN), parts)
        grid = (ceil_div(N, columns), parts)
        launch(
            dtm_training_triton.taps_weight_gradient,
            grid,
            source,
            other,
            out,
            B * H * W,
            H,
            W,
            chunks,
            N,
            columns,
            _TAKEN,
            num_warps=8,
            num_stages=3,
        )
