"""The neuroexplicit method on one page (Fischer, Peter, Weickert and Ilg, ICML 2024, Section 3).

A network sees the image, and in flow-aware models a first guess of the field and the mask. Per pixel and level it
predicts a diffusion tensor D and a discretisation parameter α. The diffusion process ∂_t u = div(D ∇u), bound to the
given vectors f, fills the field u from coarse to fine:

    f, c ── push ──> levels ── pull, smooth ──> u₀ ──(isotropic FSI cycles)──> guess
    image, guess, c ── network ──> z ── edge weights ──> τA   for every level
    u₀ ── FSI cycle, refine, FSI cycle, …  ──> u

`fill` is the only implementation of this; a `Backend` supplies its six steps. `Reference` has them as pure PyTorch
functions: the oracle that every fast backend is tested against, and a form that can be traced and exported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.coarse_to_fine import coarse_to_fine
from flowinpaint.diffusion.data_term import DataTerm, bind, centre
from flowinpaint.diffusion.fsi import fsi_cycle_of
from flowinpaint.diffusion.pyramid import extend, image_pyramid, upsample
from flowinpaint.diffusion.stencil import isotropic_weights, pure_divergence
from flowinpaint.networks.network import extended, normalised_colours
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.config import START_STEPS, NeuroexplicitConfig, extended_size, per_level
from flowinpaint.neuroexplicit.dtm import normalised
from flowinpaint.neuroexplicit.edge_weights import QUARTER, levels_of_maps, operator_of
from flowinpaint.progress import Tell


class Operator(NamedTuple):
    """The process of one level: τA as edge weights (B, 4, h, w), or None for 1/4 on every edge, and τ."""

    weights: Any
    tau: Tensor | float


ISOTROPIC = Operator(None, QUARTER)


class Backend(Protocol):
    """The six steps of the method on one kind of device."""

    def push(self, data: DataTerm, levels: int) -> list[DataTerm]:
        """The data term of every level, fine to coarse (Section 3.1)."""

    def pull(self, data: DataTerm) -> Tensor:
        """A dense field (B, C, h, w) from the given vectors of the coarsest level."""

    def refine(self, u: Tensor, data: DataTerm) -> Tensor:
        """The initial field of a level from the next coarser field u."""

    def network(self, image: Tensor, guess: Tensor | None, data: DataTerm, tell: Tell | None = None) -> list[Tensor]:
        """The maps of the network, coarse to fine, for image (B, 3, H, W) and guess (B, C, H, W), or None."""

    def edge_weights(self, maps: list[Tensor], image: Tensor, levels: int) -> Iterable[Operator]:
        """The process of every level, coarse to fine; levels coarser than the maps use the coarsest one, averaged."""

    def diffuse(self, u: Tensor, data: DataTerm, operator: Operator, steps: int) -> Tensor:
        """One FSI cycle from u, which is not modified (Section 2.4)."""


def fill(
    image: Tensor, data: DataTerm, levels: int, config: NeuroexplicitConfig, backend: Backend, start: Tensor | None
) -> Filled:
    """Fill the field of an image (B, 3, H, W) from given vectors f (B, C, H, W) on `levels` levels.

    start (B, C, H, W): the initial field of the coarsest level, averaged to its size, instead of the pull start.
    """
    H, W = data.f.shape[-2:]
    given_field, mean = data, centre(data)  # the result is linear in the field and commutes with adding a constant
    data = data._replace(f=torch.where(data.known, data.f - mean, 0))
    size = extended_size(H, W, levels)
    image = extend(image, *size)
    data = DataTerm(*(None if x is None else extend(x, *size) for x in data))  # type: ignore[arg-type]
    given = backend.push(data, levels)[::-1]  # the data term of every level, coarse to fine

    if start is not None:
        u0 = bind(image_pyramid(extend(start - mean, *size), levels)[0], given[0])
    elif config.start == "pull":
        u0 = backend.diffuse(backend.pull(given[0]), given[0], ISOTROPIC, START_STEPS)
    else:  # the paper: unknown pixels start at zero, and vectors enter a finer level after its first step
        u0 = torch.where(given[0].known, given[0].f, -mean)

    guess = None
    if config.flow_aware:
        with torch.no_grad():
            guess = cycles(backend, given, u0, repeat(ISOTROPIC), config.guess_steps, backend.refine)

    z = backend.network(image, guess, given[-1])
    log_error = None
    if config.confidence:  # the channel of the finest map after those of the process
        log_error = z[-1][:, config.predicted : config.predicted + 1, :H, :W].float().contiguous()
    operators = backend.edge_weights(z, image, levels)
    del z
    u = cycles(backend, given, u0, operators, config.steps, backend.refine if config.start == "pull" else upsample)
    u = torch.where(given_field.exact, given_field.f, u[..., :H, :W] + mean)
    return Filled(u, log_error)


def cycles(
    backend: Backend, given: list[DataTerm], u: Tensor, operators: Iterable[Operator], steps: Sequence[int], refine: Any
) -> Tensor:
    """One FSI cycle per level, coarse to fine."""
    process, counts = iter(operators), per_level(steps, len(given))
    return coarse_to_fine(given, u, refine, lambda k, data, v: backend.diffuse(v, data, next(process), counts[k]))


class Reference:
    """The steps as pure functions. dtm: the Diffusion Tensor Module, which predicts z; lam: λ of each of its maps."""

    def __init__(self, dtm: nn.Module, lam: Tensor, config: NeuroexplicitConfig) -> None:
        self.dtm, self.lam, self.config = dtm, lam, config

    push, pull, refine = staticmethod(pyramid.push), staticmethod(pyramid.pull), staticmethod(pyramid.refine)

    def network(self, image: Tensor, guess: Tensor | None, data: DataTerm, tell: Tell | None = None) -> list[Tensor]:
        """The maps z = DTM(image) or DTM(image, guess, c), (B, ·, ceil(H/s), ceil(W/s)) with s = 8, 4, 2, 1."""
        dtype = self.lam.dtype
        x = normalised_colours(image.to(dtype))
        if guess is not None:
            c = data.binding()
            x = torch.cat([x, normalised(guess, data.f, c).to(dtype), c.to(dtype)], 1)
        H, W = image.shape[-2:]
        maps = self.dtm(extended(x, 2**self.config.depth))
        return [z[..., : -(-H // s), : -(-W // s)] for z, s in zip(maps, (8, 4, 2, 1), strict=True)]

    def edge_weights(self, maps: list[Tensor], image: Tensor, levels: int) -> Iterable[Operator]:
        """τA from z, λ and, for parts that are not learned, the image (Section 3.3)."""
        for z, level, lam in levels_of_maps(maps, image, self.lam, levels, self.config):
            yield Operator(*operator_of(z, level, lam, self.config))

    def diffuse(self, u: Tensor, data: DataTerm, operator: Operator, steps: int) -> Tensor:
        """u_{l+1} = γ_l (u_l + τA u_l) + (1 - γ_l) u_{l-1}, bound to f."""
        A = partial(pure_divergence, isotropic_weights(u) if operator.weights is None else operator.weights)
        return fsi_cycle_of([A] * steps, u, data, operator.tau)
