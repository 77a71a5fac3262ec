"""The neuroexplicit model: a network predicts the diffusion process, the process fills the field (Section 3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from flowinpaint.diffusion.fsi import fsi_cycle_of
from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.pyramid import Level, build_pyramid, upsample
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
from flowinpaint.errors import InputError
from flowinpaint.neural.diffusion_block import BLOCK_TIME_STEP, DiffusionBlocks
from flowinpaint.neural.dtm import STRIDE, DiffusionTensorModule

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LAMBDA_FLOOR = 1e-8
"""Beside λ² in the divisor, as in the authors' code: λ is learned and may pass through zero."""
LEVELS = 4
MOST_STEPS = 10_000
SMALLEST_SIDE = 2 ** (LEVELS - 1) + 1
"""Smaller images are extended to this, so that the coarsest level still has a cell."""


@dataclass(frozen=True)
class NeuroexplicitConfig:
    """Which parts are learned; the defaults are the paper's model, and one change each gives its Table 2.

    -μ: learn_eigenvalues=False, -v: learn_eigenvectors=False (both then come from the structure tensor);
    -α: learn_alpha=False (then `alpha` everywhere); +β: learn_beta=True (not restricted by α, hence without the
    stability guarantee); +W: learn_kernels=True (diffusion blocks, for fields of `channels` channels only).
    """

    width: int = 44
    decoder_kernel: int = 1
    steps: tuple[int, ...] = (5, 15, 30, 45)
    learn_eigenvalues: bool = True
    learn_eigenvectors: bool = True
    learn_alpha: bool = True
    learn_beta: bool = False
    learn_kernels: bool = False
    alpha: float = 0.3
    rho: float = 0.5
    channels: int = 2

    def __post_init__(self) -> None:
        if len(self.steps) != LEVELS or not all(_is_count(n) and n <= MOST_STEPS for n in self.steps):
            raise InputError(f"steps: {self.steps} was given; {LEVELS} counts from 1 to {MOST_STEPS} are taken.")
        if self.decoder_kernel not in (1, 2):
            raise InputError(f"decoder_kernel: {self.decoder_kernel} was given; 1 or 2 is taken.")
        if not (_is_count(self.width) and _is_count(self.channels)):
            raise InputError(f"width {self.width}, channels {self.channels} were given; counts from 1 are taken.")
        if not 0 <= self.alpha <= 0.5:
            raise InputError(f"alpha: {self.alpha} was given; a value in [0, 0.5] is taken.")
        if not 0 <= self.rho <= 100:
            raise InputError(f"rho: {self.rho} was given; a standard deviation from 0 to 100 pixels is taken.")
        if self.predicted == 0:
            raise InputError(
                "Nothing is left to learn: switch on one of learn_eigenvalues, _eigenvectors, _alpha, _beta."
            )

    @property
    def predicted(self) -> int:
        """Channels of z: α, μ₁, μ₂, v (two), β, in this order, without those that are not learned."""
        return self.learn_alpha + 2 * self.learn_eigenvalues + 2 * self.learn_eigenvectors + self.learn_beta


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class Process(NamedTuple):
    """The diffusion of one level: tensor, α and β, each in cells (B, 1, h-1, w-1)."""

    tensor: SymmetricTensor
    alpha: Tensor
    beta: Tensor


def process_of(z: Tensor, image: Tensor, lam: Tensor, config: NeuroexplicitConfig) -> Process:
    """Turn z (B, predicted, h, w), of any type, into a diffusion process in the type of the image (Section 3.3).

    image (B, 3, h, w) serves the parts that are not learned; lam is the λ of the level. The tensor of the cell between
    the pixels (i, j) and (i+1, j+1) is read from z at (i, j).
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
        v1 = orientation_from_vector(channels.pop(0), channels.pop(0))
    else:
        v1 = orientation_of(structure_tensor(image, config.rho))
    D = tensor_from_eigen(mu1, mu2, v1)
    beta = torch.tanh(channels.pop(0)) if config.learn_beta else stable_beta(D, alpha)
    return Process(D, alpha, beta)


def edge_weights_of(z: Tensor, image: Tensor, lam: Tensor, config: NeuroexplicitConfig) -> Tensor:
    """τ times the edge weights (B, 4, h, w) of `process_of`: all that lies between the network and the diffusion."""
    D, alpha, beta = process_of(z, image, lam, config)
    return paper_time_step(alpha) * edge_weights(D, cell_delta(D, alpha, beta))


class Neuroexplicit(nn.Module):
    """Image, mask and sparse field to the dense field, at any size; differentiable; known vectors are kept exactly.

    For a given image and mask the result is linear in the field. The network runs in the type of its weights (or
    under autocast), the diffusion in the type of the field.
    """

    mean: Tensor
    std: Tensor
    segment: int | None = None
    """Steps between the iterates that a diffusion keeps for its gradient (`fsi_cycle`); None for all of them."""

    def __init__(self, config: NeuroexplicitConfig | None = None) -> None:
        super().__init__()
        self.config = config or NeuroexplicitConfig()
        self.dtm = DiffusionTensorModule(3, self.config.predicted, self.config.width, self.config.decoder_kernel)
        self.lam = nn.Parameter(torch.ones(LEVELS))
        if self.config.learn_kernels:
            self.blocks = nn.ModuleList(DiffusionBlocks(n, self.config.channels) for n in self.config.steps)
        self._edge_weights_of: Callable[[Tensor, Tensor, Tensor, NeuroexplicitConfig], Tensor] = edge_weights_of
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, image: Tensor, mask: Tensor, flow: Tensor) -> Tensor:
        """Image (B, 3, H, W) in [0, 1], mask (B, 1, H, W) above 0 where known, flow (B, C, H, W) → (B, C, H, W)."""
        self._check(image, mask, flow)
        H, W = flow.shape[-2:]
        c = (mask > 0).to(flow.dtype)
        image, flow, c = (extend(x, max(H, SMALLEST_SIDE), max(W, SMALLEST_SIDE)) for x in (image, flow, c))
        z = self.predict(image)
        u: Tensor | None = None
        with torch.autocast(flow.device.type, enabled=False):
            for index, level in enumerate(reversed(build_pyramid(image.to(flow.dtype), flow, c, LEVELS))):
                size = (level.f.shape[-2], level.f.shape[-1])
                u = level.f if u is None else upsample(u, size)
                u = self._diffuse(u, level, z[index], index)
        assert u is not None
        return u[..., :H, :W]

    def predict(self, image: Tensor) -> list[Tensor]:
        """The maps z of the Diffusion Tensor Module, coarse to fine, for an image (B, 3, H, W) of any size.

        Map k has the size of its pyramid level, ceil(H / 2^(3-k)) by ceil(W / 2^(3-k)).
        """
        H, W = image.shape[-2:]
        normalised = (image.to(self.mean.dtype) - self.mean) / self.std
        padded = extend(normalised, -(-H // STRIDE) * STRIDE, -(-W // STRIDE) * STRIDE)
        maps = self.dtm(padded)
        factors = [2 ** (LEVELS - 1 - k) for k in range(LEVELS)]
        return [z[..., : -(-H // s), : -(-W // s)] for z, s in zip(maps, factors, strict=True)]

    def process(self, z: Tensor, image: Tensor, level: int) -> Process:
        """The diffusion process of a level, 0 being the coarsest, from its z and image (B, 3, h, w): `process_of`."""
        return process_of(z, image, self.lam[level], self.config)

    def compile_parts(self) -> None:
        """Compile, in place, the network and what turns its maps into edge weights; for training on CUDA.

        Each size compiles anew when it is first met, and after two sizes PyTorch stops: meant for crops of one size.
        Parameters, and files of them, stay as they are.
        """
        self.dtm.compile(dynamic=False)
        # Once for the sizes of all levels; about which PyTorch 2.11 warns by the dozen, to no purpose.
        logging.getLogger("torch.utils._sympy.interp").setLevel(logging.ERROR)
        self._edge_weights_of = torch.compile(edge_weights_of, dynamic=True)

    def constrain_(self) -> None:
        """Enforce the norm constraint of learned kernels (+W) after an optimiser step; nothing to do without them."""
        if self.config.learn_kernels:
            for blocks in self.blocks:
                assert isinstance(blocks, DiffusionBlocks)
                blocks.constrain_()

    def _diffuse(self, u: Tensor, level: Level, z: Tensor, index: int) -> Tensor:
        """One FSI cycle at one level."""
        steps = self.config.steps[index]
        if not self.config.learn_kernels:
            weights = self._edge_weights_of(z, level.image, self.lam[index], self.config)
            return inpainting_cycle(u, level.f, level.c, weights, steps, self.segment)
        blocks = self.blocks[index]
        process = self.process(z, level.image, index)
        operators = [partial(blocks, step, *process) for step in range(steps)]
        return fsi_cycle_of(operators, u, level.f, level.c, BLOCK_TIME_STEP)

    def _check(self, image: Tensor, mask: Tensor, flow: Tensor) -> None:
        if flow.ndim != 4 or min(flow.shape) < 1:
            raise InputError(f"flow: shape {tuple(flow.shape)} was given; (B, C, H, W), none of them 0, is taken.")
        if flow.dtype not in (torch.float32, torch.float64):
            raise InputError(f"flow: {flow.dtype} was given; torch.float32 or torch.float64 is taken.")
        B, C, H, W = flow.shape
        for name, x, channels in (("image", image, 3), ("mask", mask, 1)):
            if x.shape != (B, channels, H, W):
                raise InputError(
                    f"{name}: shape {tuple(x.shape)} was given; {(B, channels, H, W)} is taken beside a flow of shape "
                    f"{tuple(flow.shape)}."
                )
        if not image.is_floating_point():
            raise InputError(f"image: {image.dtype} was given; a floating type with values in [0, 1] is taken.")
        if self.config.learn_kernels and self.config.channels != C:
            raise InputError(
                f"flow: {C} channels were given; this model has learned kernels (+W) for {self.config.channels}."
            )


def extend(x: Tensor, height: int, width: int) -> Tensor:
    """Repeat the last row and column of (B, C, H, W) until the size is (height, width)."""
    H, W = x.shape[-2:]
    if height > H:
        x = torch.cat([x, x[..., -1:, :].expand(-1, -1, height - H, -1)], -2)
    if width > W:
        x = torch.cat([x, x[..., :, -1:].expand(-1, -1, -1, width - W)], -1)
    return x
