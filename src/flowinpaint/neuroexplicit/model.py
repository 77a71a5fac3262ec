"""The neuroexplicit model: a network predicts the diffusion process, the process fills the field (Section 3)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from flowinpaint.diffusion.fsi import fsi_cycle_of
from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.pyramid import (
    Level,
    build_pyramid,
    image_pyramid,
    refine,
    upsample,
)
from flowinpaint.errors import InputError
from flowinpaint.networks.colours import IMAGENET_MEAN, IMAGENET_STD
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import Filled
from flowinpaint.networks.registry import register_model
from flowinpaint.neuroexplicit.backends.select import Engines
from flowinpaint.neuroexplicit.config import LEVELS, NeuroexplicitConfig
from flowinpaint.neuroexplicit.diffusion_block import BLOCK_TIME_STEP, DiffusionBlocks, metric_of
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from flowinpaint.neuroexplicit.edge_weights import Process, edge_weights_of, process_of
from flowinpaint.neuroexplicit.first_guess import GUESS_CHANNELS, first_guess, normalised, pull_start
from flowinpaint.neuroexplicit.levels import extend, extended_size, levels_of, per_level

Backend = Literal["auto", "reference"]

ACROSS_AT_FIRST = 2.0
"""About what a new network predicts as z of μ1, so that μ1 = 1/5, beside μ2 = 1."""


@register_model("neuroexplicit", config=NeuroexplicitConfig, objective="flowinpaint.neuroexplicit.objective:Supervised")
class Neuroexplicit(Network):
    """Image, mask and sparse field to the dense field, at any size; differentiable; known vectors are kept exactly.

    For a given process the result is linear in the field. The network runs in the type of its weights (or under
    autocast), the diffusion in the type of the field. For float32 fields a device's fast way is taken where there is
    one (`neuroexplicit.backends`): without gradient on CUDA and CPU, with it on CUDA under autocast to bfloat16.
    After weights were changed behind PyTorch's back, through `weight.data` or by a CUDA graph, call `refresh()`.
    """

    mean: Tensor
    std: Tensor
    segment: int | None = None
    """Steps between the iterates that a diffusion keeps for its gradient (`fsi_cycle`); None for all of them."""

    def __init__(self, config: NeuroexplicitConfig | None = None) -> None:
        super().__init__()
        self.config = config or NeuroexplicitConfig()
        inputs = 3 + (GUESS_CHANNELS + 1 if self.config.flow_aware else 0)
        self.dtm = DiffusionTensorModule(
            inputs,
            self.config.predicted + self.config.confidence,
            self.config.width,
            self.config.decoder_kernel,
            self.config.merge,
            self.config.fine_width,
            self.config.depth,
        )
        self.lam = nn.Parameter(torch.ones(LEVELS))
        if self.config.learn_eigenvalues:
            self._begin_anisotropic()
        if self.config.learn_kernels:
            self.blocks = nn.ModuleList(DiffusionBlocks(n, self.config.channels) for n in self.config.steps)
        self._backend: Backend = "auto"
        self._engines = Engines()
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)

    @property
    def backend(self) -> Backend:
        """The way of `forward`: "auto" is the device's fast one if there is one, "reference" the one written here."""
        return self._backend

    @backend.setter
    def backend(self, value: Backend) -> None:
        if value not in get_args(Backend):
            raise InputError(f"backend: {value!r} was given; 'auto' or 'reference' is taken.")
        self._backend = value

    def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """The field of `forward`, and how far off it is expected to be, if the model predicts that."""
        self.check(image, flow, mask)
        if self.backend == "auto" and (engine := self._engines.engine_for(self, image, flow)) is not None:
            return engine(image, flow, mask)
        H, W = flow.shape[-2:]
        count = levels_of(H, W, self.config)
        c = (mask > 0).to(flow.dtype)
        image, flow, c = (extend(x, *extended_size(H, W, count)) for x in (image, flow, c))
        with torch.autocast(flow.device.type, enabled=False):
            levels = build_pyramid(image.to(flow.dtype), flow, c, count)[::-1]
            u = pull_start(levels[0]) if self.config.start == "pull" else levels[0].f
            hints = self._hints(u, levels) if self.config.flow_aware else None
        z, log_error = self._split(self.predict(image, hints, count))
        with torch.autocast(flow.device.type, enabled=False):
            for k, (level, map_of_level) in enumerate(zip(levels, z, strict=True)):
                u = self._diffuse(self._start(u, level) if k else u, level, map_of_level, max(k + LEVELS - count, 0))
        return Filled(u[..., :H, :W], None if log_error is None else log_error[..., :H, :W])

    def iterations(self, H: int, W: int, **parameters: Any) -> int:
        """Steps of diffusion for a field of this size, over all levels."""
        return sum(per_level(self.config.steps, levels_of(H, W, self.config)))

    def predict(self, image: Tensor, hints: Tensor | None = None, levels: int = LEVELS) -> list[Tensor]:
        """The maps z of the Diffusion Tensor Module, coarse to fine, for an image (B, 3, H, W) of any size.

        hints (B, 3, H, W): the normalised guess and the mask, which a flow-aware network sees beside the image. Map k
        has the size of its pyramid level. Levels coarser than the network's get its coarsest map, averaged.
        """
        H, W = image.shape[-2:]
        features = (image.to(self.mean.dtype) - self.mean) / self.std
        if hints is not None:
            features = torch.cat([features, hints.to(features.dtype)], 1)
        padded = extend(features, *(-(-side // self.dtm.stride) * self.dtm.stride for side in (H, W)))
        factors = [2 ** (LEVELS - 1 - k) for k in range(LEVELS)]
        maps = [z[..., : -(-H // s), : -(-W // s)] for z, s in zip(self.dtm(padded), factors, strict=True)]
        return [*image_pyramid(maps[0], 1 + levels - LEVELS), *maps[1:]]

    def process(self, z: Tensor, image: Tensor, level: int) -> Process:
        """The diffusion process of a level, 0 being the coarsest, from its z and image (B, 3, h, w): `process_of`."""
        return process_of(z, image, self.lam[level], self.config)

    def compile_parts(self) -> None:
        """Compile, in place, network and blocks, for training on CUDA where no engine does: with learned kernels (+W).

        Each size compiles anew when it is first met, and after one or two sizes PyTorch stops: meant for crops of one
        size. Parameters, and files of them, stay as they are.
        """
        self.dtm.compile(dynamic=False)
        for blocks in self._all_blocks():
            blocks.compile_parts()

    def refresh(self) -> None:
        """Forget what fast ways have made of the weights.

        They notice new and moved weights, and changes that PyTorch counts; not those made through `weight.data`, or by
        a CUDA graph.
        """
        self._engines = Engines()

    def constrain_(self) -> None:
        """Enforce the norm constraint of learned kernels (+W) after an optimiser step; nothing to do without them."""
        for blocks in self._all_blocks():
            blocks.constrain_()

    def _all_blocks(self) -> list[DiffusionBlocks]:
        """The diffusion blocks of all levels, none without learned kernels."""
        return list(self.blocks) if self.config.learn_kernels else []  # type: ignore[arg-type]

    def _begin_anisotropic(self) -> None:
        """Let a new network diffuse along its directions more than across.

        From a start that is known everywhere, isotropic diffusion, with which it would begin otherwise, is worse than
        none. The network then learns to switch it off, μ₁ = μ₂ = 0, where μ = 1/(1 + z²/λ²) has no gradient, and stays.
        """
        first = 1 if self.config.learn_alpha else 0
        with torch.no_grad():
            for head in (self.dtm.dt4, self.dtm.dt3, self.dtm.dt2, self.dtm.dt1):
                assert head.bias is not None
                head.bias[first], head.bias[first + 1] = ACROSS_AT_FIRST, 0.0

    def _split(self, maps: list[Tensor]) -> tuple[list[Tensor], Tensor | None]:
        """The part of the maps that is for the process, and the logarithm of the error, which the finest has."""
        if not self.config.confidence:
            return maps, None
        predicted = self.config.predicted
        return [z[:, :predicted] for z in maps], maps[-1][:, predicted:].float()

    def _hints(self, start: Tensor, levels: list[Level]) -> Tensor:
        """What a flow-aware network sees beside the image, (B, 3, H, W): the normalised guess, and the mask."""
        guess = first_guess(start, levels, per_level(self.config.guess_steps, len(levels)))
        _, f, c = levels[-1]
        return torch.cat([normalised(guess, f, c), c], 1)

    def _start(self, u: Tensor, level: Level) -> Tensor:
        """Where a level's diffusion starts from the result u of the coarser one."""
        if self.config.start == "pull":
            return refine(u, level.f, level.c)
        # In the paper the given vectors enter only after the first step.
        return upsample(u, (level.f.shape[-2], level.f.shape[-1]))

    def _diffuse(self, u: Tensor, level: Level, z: Tensor, index: int) -> Tensor:
        """One FSI cycle at one level."""
        steps = self.config.steps[index]
        if not self.config.learn_kernels:
            weights = edge_weights_of(z, level.image, self.lam[index], self.config)
            return inpainting_cycle(u, level.f, level.c, weights, steps, self.segment)
        blocks = self.blocks[index]
        metric = metric_of(*self.process(z, level.image, index))
        operators = [partial(blocks, step, metric) for step in range(steps)]
        return fsi_cycle_of(operators, u, level.f, level.c, BLOCK_TIME_STEP)

    def check(self, image: Tensor, flow: Tensor, mask: Tensor) -> None:
        """Raise InputError unless shapes and types are those that `fill` takes."""
        super().check(image, flow, mask)
        if self.config.learn_kernels and self.config.channels != flow.shape[1]:
            raise InputError(
                f"flow: {flow.shape[1]} channels were given; this model has learned kernels (+W) for "
                f"{self.config.channels}."
            )
