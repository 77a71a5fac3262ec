"""Input of the Diffusion Tensor Module on CUDA, written in Triton: channels last, padded, in half precision.

Includes `dtm.normalised`. Each program writes a partial sum over an image, and the programs of the next kernel add
these up: this saves a launch each, and the order of summation is fixed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import RELATIVE_FLOOR
from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.integers import ceil_div, power_of_two
from flowinpaint.neuroexplicit.dtm import CLIP, SHALLOWEST, TENSOR_CORE_CHANNELS
from flowinpaint.neuroexplicit.kernels import dtm_input_triton

_SUMS = 1024
"""Partial sums per image, over all programs."""
_SUM_BLOCK = 4096
"""Values that a program sums at once."""
_BLOCK = 512


def known_sums(f: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Statistics of the known vectors of f (B, C, H, W) for `dtm_input`; known: (B, 1, H, W) bool.

    Partial sums of each channel and, in row C, the number of known vectors, (B, rows, parts); and the same for |f - m|,
    where m is the mean.
    """
    f, mask = f.contiguous(), known.contiguous().view(torch.uint8)
    B, C, H, W = f.shape
    rows = power_of_two(C + 1)
    parts, block = max(_SUMS // rows, 8), max(_SUM_BLOCK // rows, 8)
    sums, deviations = (torch.empty(B, rows, parts, device=f.device) for _ in range(2))
    with torch.cuda.device_of(f):
        launch(dtm_input_triton.sum_known, (parts, B), f, mask, sums, H * W, C, rows, block)
        launch(dtm_input_triton.sum_deviations, (parts, B), f, mask, sums, deviations, H * W, C, rows, parts, block)
    return sums, deviations


def dtm_input(
    image: Tensor,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    hints: tuple[Tensor, Tensor, tuple[Tensor, Tensor]] | None = None,
    dtype: torch.dtype = torch.float16,
    stride: int = 2**SHALLOWEST,
) -> Tensor:
    """The network's input (B, Hp, Wp, 8): image, normalised guess, mask, zeros; Hp, Wp are multiples of `stride`.

    image (B, 3, H, W) is normalised as (image - mean) / std. hints, for a flow-aware network: the guess (B, C, H, W),
    known (B, 1, H, W) bool, and `known_sums` of the field. Padding repeats the last row and column.
    """
    image = image.contiguous()
    B, _, H, W = image.shape
    Hp, Wp = -(-H // stride) * stride, -(-W // stride) * stride
    out = torch.empty(B, Hp, Wp, TENSOR_CORE_CHANNELS, dtype=dtype, device=image.device)
    guess = known = sums = deviations = None
    C = rows = parts = 0
    if hints is not None:
        guess, known, (sums, deviations) = hints
        guess, known = guess.contiguous(), known.contiguous().view(torch.uint8)
        C, (_, rows, parts) = guess.shape[1], sums.shape
    with torch.cuda.device_of(image):
        launch(
            dtm_input_triton.write_input,
            (ceil_div(Hp * Wp, _BLOCK), B),
            image,
            guess,
            known,
            sums,
            deviations,
            out,
            H,
            W,
            Hp,
            Wp,
            *mean,
            *std,
            CLIP,
            RELATIVE_FLOOR,
            torch.finfo(torch.float32).tiny,
            C,
            rows,
            parts,
            _BLOCK,
        )
    return out
