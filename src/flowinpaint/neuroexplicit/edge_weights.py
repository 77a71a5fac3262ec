"""Edge weights of the diffusion process from the network's maps (Section 3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.diffusion.pyramid import image_pyramid
from flowinpaint.diffusion.stencil import cell_delta, edge_weights, paper_time_step, stable_beta
from flowinpaint.diffusion.tensor import (
    SymmetricTensor,
    eigenvalues,
    orientation_from_vector,
    orientation_of,
    perona_malik,
    structure_tensor,
    tensor_from_eigen,
)
from flowinpaint.neuroexplicit.config import LEVELS, NeuroexplicitConfig, per_level

LAMBDA_FLOOR = 1e-8
"""Added to λ² in the divisor, as in the authors' code: λ is learned and may pass through zero."""
QUARTER = 0.25
"""The time step that is stable for eigenvalues in [0, 1] and every α."""


class Process(NamedTuple):
    """The diffusion of one level: tensor, α and β, each in cells (B, 1, h-1, w-1)."""

    tensor: SymmetricTensor
    alpha: Tensor
    beta: Tensor


def process_of(z: Tensor, image: Tensor, lam: Tensor, config: NeuroexplicitConfig) -> Process:
    """Turn z (B, predicted, h, w), of any type, into a diffusion process in the type of the image.

    image (B, 3, h, w) is used for the parts that are not learned; lam is the λ of the level. The tensor of the cell
    between the pixels (i, j) and (i+1, j+1) is read from z at (i, j).
    """
    cells, lam = z[..., :-1, :-1].to(image.dtype), lam.to(image.dtype)
    channels = list(torch.chunk(cells, cells.shape[1], 1))
    alpha = torch.sigmoid(channels.pop(0)) / 2 if config.learn_alpha else torch.full_like(cells[:, :1], config.alpha)
    if config.learn_eigenvalues:
        mu1 = perona_malik(channels.pop(0), lam, LAMBDA_FLOOR)
        mu2 = perona_malik(channels.pop(0), lam, LAMBDA_FLOOR)
    else:
        mu1 = perona_malik(eigenvalues(structure_tensor(image, config.rho))[0], lam, LAMBDA_FLOOR)
        mu2 = torch.ones_like(mu1)
    if config.learn_eigenvectors:
        v1 = orientation_from_vector(channels.pop(0), channels.pop(0), config.direction_floor)
    else:
        v1 = orientation_of(structure_tensor(image, config.rho))
    D = tensor_from_eigen(mu1, mu2, v1)
    beta = torch.tanh(channels.pop(0)) if config.learn_beta else stable_beta(D, alpha)
    return Process(D, alpha, beta)


def predicts_all(config: NeuroexplicitConfig) -> bool:
    """Whether a network predicts α, eigenvalues and eigenvectors, as the paper's does; fused kernels require this."""
    return config.learn_alpha and config.learn_eigenvalues and config.learn_eigenvectors and not config.learn_beta


def operator_of(z: Tensor, image: Tensor, lam: Tensor, config: NeuroexplicitConfig) -> tuple[Tensor, Tensor | float]:
    """τ times the edge weights (B, 4, h, w) of `process_of`, and τ: the stage between the network and the diffusion."""
    D, alpha, beta = process_of(z, image, lam, config)
    tau = time_step_of(alpha, config)
    return tau * edge_weights(D, cell_delta(D, alpha, beta)), tau


def levels_of_maps(
    maps: list[Tensor], image: Tensor, lam: Tensor, levels: int, config: NeuroexplicitConfig
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """z, image and λ of every level, coarse to fine, from the maps of the network and the image (B, 3, H, W).

    Levels coarser than the first map use it, averaged. The image is scaled down only if a part is not learned.
    """
    z = [*image_pyramid(maps[0], 1 + levels - LEVELS), *maps[1:]]
    images = [image] * levels if predicts_all(config) else image_pyramid(image, levels)
    for z_k, image_k, lam_k in zip(z, images, per_level(list(lam), levels), strict=True):
        yield z_k[:, : config.predicted], image_k, lam_k


def time_step_of(alpha: Tensor, config: NeuroexplicitConfig) -> Tensor | float:
    """τ for α (B, 1, h-1, w-1): 1/4, or the paper's bound for each image."""
    return QUARTER if config.time_step == "quarter" else paper_time_step(alpha)


def fused_operator_of(
    z: Tensor, image: Tensor, lam: Tensor, config: NeuroexplicitConfig
) -> tuple[Tensor, Tensor | float]:
    """`operator_of`, by one Triton kernel each way for float32 on CUDA."""
    in_single = image.dtype == torch.float32 and z.dtype != torch.float64
    if not (z.is_cuda and in_single and predicts_all(config) and _has_triton()):
        return operator_of(z, image, lam, config)
    from flowinpaint.neuroexplicit.kernels.edge_weights_gpu import quarter_edge_weights  # it needs Triton

    weights = quarter_edge_weights(z, lam.float(), config.direction_floor)
    if config.time_step == "quarter":
        return weights, QUARTER
    tau = paper_time_step(torch.sigmoid(z[:, :1, :-1, :-1].float()) / 2)
    return weights * (tau / QUARTER), tau


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
