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
"""About what a new network predicts as z of μ1, so that μ1 = 1/5, next to μ2 = 1."""


@register_model("neuroexplicit", config=NeuroexplicitConfig, objective="flowinpaint.neuroexplicit.objective:Supervised")
class Neuroexplicit(Network):
    """Image, sparse field and mask to the dense field, at any size; differentiable.

    Exact vectors are kept exactly. For a given process the result is linear in the field. The network runs in the type
    of its weights (or under autocast), the diffusion in the type of the field. For float32 fields a fast backend of the
    device is used if there is one: without gradient on CUDA and CPU, with it on CUDA under autocast to bfloat16. After
    a weight change that PyTorch does not track, through `weight.data` or a CUDA graph, call `refresh()`.
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
        self, image: Tensor, flow: Tensor, mask: Tensor, weight: Tensor | None = None, start: Tensor | None = None
    ) -> Filled:
        """The dense field and its expected error, if the model predicts that.

        image (B, 3, H, W) in [0, 1]; flow (B, C, H, W); mask (B, 1, H, W) > 0 where a vector is given. weight
        (B, 1, H, W): how strongly each vector binds, 1/σ² in units of the smoothness term; inf is exact, the default.
        start (B, C, H, W): the initial field of the coarsest level, instead of the pull start; finer levels refine it.
        """
        self.check(image, flow, mask)
        if start is not None and start.shape != flow.shape:
            raise InputError(f"start must have the shape of flow, {tuple(flow.shape)}, got {tuple(start.shape)}")
        if start is not None and not bool(torch.isfinite(start).all()):
            raise InputError("start must be finite, got NaN or infinite values")
        data = data_term(flow, mask, weight)
        engine = TorchBackend(self) if self.backend == "torch" else self._backends.select(self, image, data)
        return engine(image, data, start)

    def complete(
        self, image: Tensor, flow: Tensor, mask: Tensor, progress: ProgressCallback | None = None, **parameters: Any
    ) -> Filled:
        """`fill`, with its `weight` and `start` as keywords."""
        return self.fill(image, flow, mask, **parameters)

    def iterations(self, H: int, W: int, **parameters: Any) -> int:
        """Steps of diffusion for a field of this size, over all levels."""
        return sum(per_level(self.config.steps, levels_of(H, W, self.config)))

    def process(self, z: Tensor, image: Tensor, level: int) -> Process:
        """The diffusion process of a level, 0 being the coarsest, from its z and image (B, 3, h, w): `process_of`."""
        return process_of(z, image, self.lam[level], self.config)

    def compile_parts(self) -> None:
        """Compile, in place, network and blocks, for training on CUDA where no engine does: with learned kernels (+W).

        Each size compiles anew when it is first met, and after one or two sizes PyTorch stops: meant for crops of one
        size. Parameters, and files of them, stay as they are.
        """
        self.dtm.compile(dynamic=False)
        for blocks in self.all_blocks():
            blocks.compile_parts()

    def refresh(self) -> None:
        """Drop cached backends after a weight change that PyTorch does not track.

        New and moved weights, and changes that PyTorch counts, are noticed without it.
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
        """Let a new network diffuse along its directions more than across.

        From a start that is known everywhere, isotropic diffusion, with which it would begin otherwise, is worse than
        none. The network then learns to switch it off, μ₁ = μ₂ = 0, where μ = 1/(1 + z²/λ²) has no gradient, and stays.
        """
        first = 1 if self.config.learn_alpha else 0
        with torch.no_grad():
            for head in (self.dtm.dt4, self.dtm.dt3, self.dtm.dt2, self.dtm.dt1):
                assert head.bias is not None
                head.bias[first], head.bias[first + 1] = ACROSS_AT_FIRST, 0.0

    def check(self, image: Tensor, flow: Tensor, mask: Tensor) -> None:
        """Raise InputError unless shapes and types are those that `fill` takes."""
        super().check(image, flow, mask)
        if self.config.learn_kernels and self.config.channels != flow.shape[1]:
            raise InputError(
                f"flow must have {self.config.channels} channels for this model with learned kernels (+W), "
                f"got {flow.shape[1]}"
            )
