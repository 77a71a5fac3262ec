"""The neuroexplicit model as a module: network, λ, and the backend that runs `method.fill` (Section 3)."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.errors import InputError
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import Filled
from flowinpaint.networks.registry import register_model
from flowinpaint.neuroexplicit.backends.pytorch import TorchBackend
from flowinpaint.neuroexplicit.backends.select import Backends
from flowinpaint.neuroexplicit.config import LEVELS, NeuroexplicitConfig, levels_of, per_level
from flowinpaint.neuroexplicit.diffusion_block import DiffusionBlocks
from flowinpaint.neuroexplicit.dtm import GUESS_CHANNELS, DiffusionTensorModule
from flowinpaint.neuroexplicit.edge_weights import Process, process_of
from flowinpaint.result import ProgressCallback

BackendChoice = Literal["auto", "torch"]

ACROSS_AT_FIRST = 2.0
"""Approximate z of μ1 in a new network, which gives μ1 = 1/5, with μ2 = 1."""


@register_model("neuroexplicit", config=NeuroexplicitConfig, objective="flowinpaint.neuroexplicit.objective:Supervised")
class Neuroexplicit(Network):
    """Map image, sparse field and mask to the dense field, at any size; differentiable.

    Exact vectors are kept exactly. For a given process the result is linear in the field. The network runs in the type
    of its weights (or under autocast), the diffusion in the type of the field. Float32 fields use a fast backend of the
    device, if available: without gradient on CUDA and CPU, with gradient on CUDA under autocast to bfloat16. After a
    weight change that PyTorch does not track, through `weight.data` or a CUDA graph, call `refresh()`.
    """

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
        self._backend: BackendChoice = "auto"
        self._backends = Backends()

    @property
    def backend(self) -> BackendChoice:
        """The backend of `forward`: "auto" is the fastest for the inputs, "torch" plain PyTorch."""
        return self._backend

    @backend.setter
    def backend(self, value: BackendChoice) -> None:
        if value not in get_args(BackendChoice):
            raise InputError(f"backend must be 'auto' or 'torch', got {value!r}")
        self._backend = value

    def forward(
        self, image: Tensor, flow: Tensor, mask: Tensor, weight: Tensor | None = None, start: Tensor | None = None
    ) -> Tensor:
        """The field of `fill`, (B, C, H, W)."""
        return self.fill(image, flow, mask, weight, start).field

    def fill(
        self,
        image: Tensor,
        flow: Tensor,
        mask: Tensor,
        weight: Tensor | None = None,
        start: Tensor | None = None,
        progress: ProgressCallback | None = None,
    ) -> Filled:
        """The dense field and, if the model predicts it, the expected error.

        image (B, 3, H, W) in [0, 1]; flow (B, C, H, W); mask (B, 1, H, W) > 0 where a vector is given. weight
        (B, 1, H, W): weight of each vector, 1/σ² in units of the smoothness term; inf, the default, means exact.
        start (B, C, H, W): the initial field of the coarsest level, instead of the pull start; finer levels refine it.
        progress: called after each part of the network and each level.
        """
        self.check(image, flow, mask)
        if start is not None and start.shape != flow.shape:
            raise InputError(f"start must have the shape of flow, {tuple(flow.shape)}, got {tuple(start.shape)}")
        if start is not None and not bool(torch.isfinite(start).all()):
            raise InputError("start must be finite, got NaN or infinite values")
        data = data_term(flow, mask, weight)
        engine = TorchBackend(self) if self.backend == "torch" else self._backends.select(self, image, data)
        return engine(image, data, start, progress)

    def complete(
        self, image: Tensor, flow: Tensor, mask: Tensor, progress: ProgressCallback | None = None, **parameters: Any
    ) -> Filled:
        """`fill`, with `weight` and `start` as keywords."""
        return self.fill(image, flow, mask, progress=progress, **parameters)

    def iterations(self, H: int, W: int, **parameters: Any) -> int:
        """Total number of diffusion steps, over all levels, for a field of this size."""
        return sum(per_level(self.config.steps, levels_of(H, W, self.config)))

    def process(self, z: Tensor, image: Tensor, level: int) -> Process:
        """The diffusion process of a level, 0 being the coarsest, from its z and image (B, 3, h, w): `process_of`."""
        return process_of(z, image, self.lam[level], self.config)

    def compile_parts(self) -> None:
        """Compile network and blocks, in place, for training with learned kernels (+W), which no CUDA backend supports.

        Every new size is compiled again, and after one or two sizes PyTorch stops compiling: use crops of one size.
        Parameters and weight files are unchanged.
        """
        self.dtm.compile(dynamic=False)
        for blocks in self.all_blocks():
            blocks.compile_parts()

    def refresh(self) -> None:
        """Drop cached backends after a weight change that PyTorch does not track.

        Replaced or moved weights, and changes that PyTorch tracks, are detected without it.
        """
        self._backends = Backends()

    def constrain_(self) -> None:
        """Enforce the norm constraint of learned kernels (+W) after an optimiser step; nothing to do without them."""
        for blocks in self.all_blocks():
            blocks.constrain_()

    def all_blocks(self) -> list[DiffusionBlocks]:
        """The diffusion blocks of all levels, none without learned kernels."""
        return list(self.blocks) if self.config.learn_kernels else []  # type: ignore[arg-type]

    def _begin_anisotropic(self) -> None:
        """Make a new network diffuse more along its directions than across.

        It would otherwise begin with isotropic diffusion, which makes the dense pull start worse. The network then
        learns to switch diffusion off, μ₁ = μ₂ = 0, where μ = 1/(1 + z²/λ²) has no gradient, and never recovers.
        """
        first = 1 if self.config.learn_alpha else 0
        with torch.no_grad():
            for head in (self.dtm.dt4, self.dtm.dt3, self.dtm.dt2, self.dtm.dt1):
                assert head.bias is not None
                head.bias[first], head.bias[first + 1] = ACROSS_AT_FIRST, 0.0

    def check(self, image: Tensor, flow: Tensor, mask: Tensor) -> None:
        """Raise InputError unless `fill` accepts these shapes and types."""
        super().check(image, flow, mask)
        if self.config.learn_kernels and self.config.channels != flow.shape[1]:
            raise InputError(
                f"flow must have {self.config.channels} channels for this model with learned kernels (+W), "
                f"got {flow.shape[1]}"
            )
