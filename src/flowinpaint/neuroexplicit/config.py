"""Configuration of a neuroexplicit model (the paper's, its ablations, the flow-aware one), and its number of levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from flowinpaint.errors import InputError
from flowinpaint.neuroexplicit.dtm import DEEPEST, SHALLOWEST

LEVELS = 4
"""Maps that the Diffusion Tensor Module predicts, each half the size of the next."""
COARSEST_SIDE = 32
"""The pull start adds levels, beyond four, until the longer side of the coarsest is at most this."""
START_STEPS = 40
"""Steps of isotropic diffusion that smooth the pull start; they reach halfway across the coarsest level."""
MOST_STEPS = 10_000

T = TypeVar("T")

Start = Literal["zero", "pull"]
TimeStep = Literal["bound", "quarter"]


@dataclass(frozen=True)
class NeuroexplicitConfig:
    """Learned parts and start of the diffusion; the defaults are the paper's model.

    Each row of the paper's Table 2 is one change. -μ: learn_eigenvalues=False, -v: learn_eigenvectors=False (both then
    come from the structure tensor); -α: learn_alpha=False (then `alpha` everywhere); +β: learn_beta=True (not
    restricted by α, hence without the stability guarantee); +W: learn_kernels=True (diffusion blocks, for fields of
    exactly `channels` channels).

    merge, fine_width, depth: a richer network, see `DiffusionTensorModule`.
    confidence: the network also predicts the error of the result.
    flow_aware: the network also sees the mask and a first guess of the field, made by isotropic diffusion.
    start: "zero", unknown pixels of the coarsest of four levels start at zero, as in the paper; "pull", they start
    from still coarser levels, down to one pixel, smoothed by isotropic diffusion, and larger images have more levels.
    time_step: "bound" is the paper's τ = 1 / (4 (1 - min α)), the minimum being over the image; "quarter" is τ = 1/4,
    stable for every α, and a pixel's weights then depend only on its neighbourhood.
    direction_floor: added to ‖v‖² where directions are normalised. It is negligible in the paper's code, so where v
    passes through zero, rounding determines the direction and most of the gradient's error; with 0.01 the anisotropy
    vanishes there instead.
    """

    kind: Literal["neuroexplicit"] = "neuroexplicit"
    width: int = 44
    decoder_kernel: int = 1
    merge: bool = False
    fine_width: int = 0
    depth: int = SHALLOWEST
    confidence: bool = False
    steps: tuple[int, ...] = (5, 15, 30, 45)
    learn_eigenvalues: bool = True
    learn_eigenvectors: bool = True
    learn_alpha: bool = True
    learn_beta: bool = False
    learn_kernels: bool = False
    alpha: float = 0.3
    rho: float = 0.5
    channels: int = 2
    flow_aware: bool = False
    guess_steps: tuple[int, ...] = (3, 4, 5, 6)
    start: Start = "zero"
    time_step: TimeStep = "bound"
    direction_floor: float = 1e-12

    def __post_init__(self) -> None:
        starts, time_steps = get_args(Start), get_args(TimeStep)
        for name, fits, allowed in (
            ("steps", _are_steps(self.steps), f"{LEVELS} integers from 1 to {MOST_STEPS}"),
            ("guess_steps", _are_steps(self.guess_steps), f"{LEVELS} integers from 1 to {MOST_STEPS}"),
            ("decoder_kernel", self.decoder_kernel in (1, 2), "1 or 2"),
            ("width", _is_count(self.width), "an integer of at least 1"),
            ("channels", _is_count(self.channels), "an integer of at least 1"),
            ("fine_width", self.fine_width == 0 or _is_count(self.fine_width), "an integer of at least 0 (0: width)"),
            ("depth", _is_count(self.depth, SHALLOWEST, DEEPEST), f"an integer from {SHALLOWEST} to {DEEPEST}"),
            ("alpha", 0 <= self.alpha <= 0.5, "a number from 0 to 0.5"),
            ("rho", 0 <= self.rho <= 100, "a standard deviation from 0 to 100 pixels"),
            ("direction_floor", 1e-12 <= self.direction_floor <= 1, "a number from 1e-12 to 1"),
            ("start", self.start in starts, " or ".join(map(repr, starts))),
            ("time_step", self.time_step in time_steps, " or ".join(map(repr, time_steps))),
        ):
            if not fits:
                raise InputError(f"{name} must be {allowed}, got {getattr(self, name)!r}")
        if self.learn_kernels and self.start == "pull":
            raise InputError("start must be 'zero' with learned kernels (+W), which have four levels only, got 'pull'")
        if self.predicted == 0:
            raise InputError(
                "one of learn_eigenvalues, learn_eigenvectors, learn_alpha and learn_beta must be True, got none"
            )

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of a fill that a user may set: none."""
        return {}

    @property
    def predicted(self) -> int:
        """Channels of z: α, μ₁, μ₂, v (two), β, in this order, without those that are not learned."""
        return self.learn_alpha + 2 * self.learn_eigenvalues + 2 * self.learn_eigenvectors + self.learn_beta


def _is_count(value: object, least: int = 1, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _are_steps(values: Sequence[object]) -> bool:
    return len(values) == LEVELS and all(_is_count(n, most=MOST_STEPS) for n in values)


def levels_of(H: int, W: int, config: NeuroexplicitConfig) -> int:
    """The number of levels for an image of H×W pixels, such that the coarsest has a cell."""
    if config.start == "zero":
        return LEVELS
    wanted = 1 + math.ceil(math.log2(max(H, W) / COARSEST_SIDE))
    return max(LEVELS, min(wanted, (int(min(H, W)) - 1).bit_length()))


def extended_size(H: int, W: int, levels: int) -> tuple[int, int]:
    """The size to which a very small or thin image is extended, so that the coarsest level has a cell."""
    smallest = 2 ** (levels - 1) + 1
    return max(H, smallest), max(W, smallest)


def per_level(values: Sequence[T], levels: int) -> list[T]:
    """Values of each level, coarse to fine; levels coarser than the network's use those of its coarsest."""
    return [values[0]] * (levels - LEVELS) + list(values)


FLAGSHIP = NeuroexplicitConfig(
    width=48,
    fine_width=48,
    depth=6,
    decoder_kernel=2,
    merge=True,
    confidence=True,
    steps=(40, 40, 320, 100),
    flow_aware=True,
    start="pull",
    time_step="quarter",
    direction_floor=0.01,
)
PAPER_STEPS = (60, 60, 120, 120)
"""Diffusion steps of the paper's network as shipped; the paper itself has 5, 15, 30, 45."""
PAPER_NETWORK = NeuroexplicitConfig(steps=PAPER_STEPS)
