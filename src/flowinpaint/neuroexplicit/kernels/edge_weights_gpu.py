"""Edge weights of every level from the network's maps, for CUDA, in Triton: one launch for all levels.

Implements `edge_weights.process_of` and `stencil.edge_weights` for a model that predicts α, the eigenvalues and the
eigenvectors, with the stable β; and their gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.errors import InputError
from flowinpaint.integers import ceil_div
from flowinpaint.neuroexplicit.dtm import TENSOR_CORE_CHANNELS
from flowinpaint.neuroexplicit.edge_weights import LAMBDA_FLOOR, QUARTER
from flowinpaint.neuroexplicit.kernels import edge_weights_triton

_ROWS, _PAIRS = 4, 32
"""Rows of a tile, and pairs of pixels per row, one pair per lane."""
_BLOCK = 128
"""Cells per program of the backward kernel."""
_MAPS = 4
_PREDICTED = 5
_ALIGNMENT = int(edge_weights_triton.ALIGNMENT)


def edge_weights(
    maps: Sequence[Tensor],
    lam: Tensor,
    size: tuple[int, int],
    levels: int,
    direction_floor: float,
    dtype: torch.dtype = torch.float16,
    tau: Tensor | None = None,
) -> list[Tensor]:
    """τ times the edge weights (B, 4, h, w) of each level, from coarse to fine, computed in float32.

    maps: coarse to fine, (B, hp, wp, n) of one floating type, the first five of the n channels being α, μ₁, μ₂ and v;
    each has half the size of the next, and the last at least `size`, that of the finest level. Either four with n = 8,
    where levels coarser than the first average it, or one with any n for one level. lam: (len(maps),) float32, λ of
    each map. direction_floor: added to ‖v‖². tau: (levels, B) float32, from coarse to fine; by default 1/4.
    """
    _check(maps, lam, size, levels, tau)
    maps = [_with_whole_pixels(z) for z in maps]
    (H, W), (B, Hp, Wp, _) = size, maps[-1].shape
    sizes = [((H - 1 >> k) + 1, (W - 1 >> k) + 1) for k in reversed(range(levels))]
    starts = [0]
    for h, w in sizes:
        starts.append(starts[-1] + -(-B * 4 * h * w // _ALIGNMENT) * _ALIGNMENT)
    out = torch.empty(starts[-1], dtype=dtype, device=lam.device)
    averaged = levels - len(maps)
    tiles = sum(h * ceil_div(w, _PAIRS) for h, w in sizes[:averaged])
    tiles += sum(ceil_div(h, _ROWS) * ceil_div(w, 2 * _PAIRS) for h, w in sizes[averaged:])
    fine, *coarser = maps[::-1]
    with torch.cuda.device_of(lam):
        launch(
            edge_weights_triton.all_levels,
            (tiles, B),
            fine,
            *(coarser or (None, None, None)),
            lam,
            tau,
            out,
            B,
            H,
            W,
            Hp,
            Wp,
            levels,
            LAMBDA_FLOOR,
            direction_floor,
            QUARTER,
            len(maps),
            fine.stride(2),
            tau is not None,
            _ROWS,
            _PAIRS,
            num_warps=_PAIRS // 32,
        )
    return [out[at : at + B * 4 * h * w].view(B, 4, h, w) for at, (h, w) in zip(starts[:-1], sizes, strict=True)]


def gradients(z: Tensor, lam: Tensor, gradient: Tensor, direction_floor: float) -> tuple[Tensor, Tensor]:
    """Gradients for z (B, h, w, n) and lam from that of one level's weights (B, 4, h, w): (B, h, w, 5) and ()."""
    z, gradient = _with_whole_pixels(z), gradient.contiguous()
    B, h, w, _ = z.shape
    blocks = ceil_div(h * w, _BLOCK)
    grad_z = torch.empty(B, h, w, _PREDICTED, dtype=z.dtype, device=z.device)
    parts = torch.empty(B * blocks, device=z.device)
    with torch.cuda.device_of(z):
        launch(
            edge_weights_triton.backward,
            (blocks, B),
            z,
            lam,
            gradient,
            grad_z,
            parts,
            h,
            w,
            LAMBDA_FLOOR,
            direction_floor,
            QUARTER,
            z.stride(2),
            _BLOCK,
        )
    return grad_z, parts.sum()


def quarter_edge_weights(z: Tensor, lam: Tensor, direction_floor: float) -> Tensor:
    """1/4 of the edge weights (B, 4, h, w) float32 of z (B, 5, h, w), best in channels-last, and its λ, a scalar.

    z may have any floating type except float64; all computations are in float32.
    """
    weights: Tensor = _EdgeWeights.apply(z, lam, direction_floor)
    return weights


class _EdgeWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, lam: Tensor, direction_floor: float) -> Tensor:
        ctx.save_for_backward(z, lam)
        ctx.direction_floor = direction_floor
        size = (z.shape[-2], z.shape[-1])
        (weights,) = edge_weights([z.permute(0, 2, 3, 1)], lam.view(1), size, 1, direction_floor, torch.float32)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        z, lam = ctx.saved_tensors
        grad_z, grad_lam = gradients(z.permute(0, 2, 3, 1), lam, gradient, ctx.direction_floor)
        return grad_z.permute(0, 3, 1, 2), grad_lam, None


def _with_whole_pixels(z: Tensor) -> Tensor:
    """The map z (B, h, w, n) with equally spaced pixels in memory, the channels of each contiguous."""
    _, h, w, n = z.shape
    pitch = z.stride(2)
    even = z.stride() == (h * w * pitch, w * pitch, pitch, 1) and pitch >= n
    return z if even and z.storage_offset() % pitch == 0 else z.contiguous()


def _check(maps: Sequence[Tensor], lam: Tensor, size: tuple[int, int], levels: int, tau: Tensor | None) -> None:
    if len(maps) not in (1, _MAPS):
        raise InputError(f"maps must be one or {_MAPS}, got {len(maps)}")
    B, Hp, Wp, n = maps[-1].shape
    if n < _PREDICTED or (len(maps) == _MAPS and n != TENSOR_CORE_CHANNELS):
        raise InputError(
            f"maps must have {TENSOR_CORE_CHANNELS} channels if there are {_MAPS}, and at least {_PREDICTED} if there "
            f"is one, got {n}"
        )
    for k, z in enumerate(reversed(maps)):
        expected = (B, Hp >> k, Wp >> k, n)
        if z.shape != expected or z.dtype != maps[-1].dtype:
            raise InputError(
                f"maps[{len(maps) - 1 - k}] must be {maps[-1].dtype} of shape {expected}, as the finest map has shape "
                f"{tuple(maps[-1].shape)}, got {z.dtype} {tuple(z.shape)}"
            )
    if not (0 < size[0] <= Hp and 0 < size[1] <= Wp):
        raise InputError(f"size must be from (1, 1) to that of the finest map, {(Hp, Wp)}, got {size}")
    if levels < len(maps) or levels > len(maps) == 1:
        raise InputError(f"levels must be 1 for one map and at least {_MAPS} for {_MAPS}, got {levels}")
    for name, x, shape in (("lam", lam, (len(maps),)), ("tau", tau, (levels, B))):
        if x is not None and (x.shape != shape or x.dtype != torch.float32):
            raise InputError(f"{name} must be float32 of shape {shape}, got {x.dtype} {tuple(x.shape)}")
