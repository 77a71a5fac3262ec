"""What a neuroexplicit model is made of: the paper's, one of its ablations, or the flow-aware one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from flowinpaint.errors import InputError
from flowinpaint.neuroexplicit.dtm import DEEPEST, SHALLOWEST

LEVELS = 4
"""Maps that the Diffusion Tensor Module predicts, each half the size of the next."""
MOST_STEPS = 10_000

Start = Literal["zero", "pull"]
TimeStep = Literal["bound", "quarter"]


@dataclass(frozen=True)
class NeuroexplicitConfig:
    """Which parts are learned and where the diffusion starts; the defaults are the paper's model.

    One change each gives the paper's Table 2. -μ: learn_eigenvalues=False, -v: learn_eigenvectors=False (both then
    come from the structure tensor); -α: learn_alpha=False (then `alpha` everywhere); +β: learn_beta=True (not
    restricted by α, hence without the stability guarantee); +W: learn_kernels=True (diffusion blocks, for fields of
    `channels` channels only).

    merge, fine_width, depth: a richer network, see `DiffusionTensorModule`.
    confidence: the network also predicts how far off the result is.
    flow_aware: the network also sees the mask and a first guess of the field, made by isotropic diffusion.
    start: "zero", unknown pixels of the coarsest of four levels start at zero, as in the paper; "pull", they start
    from still coarser levels, down to one pixel, smoothed by isotropic diffusion, and larger images have more levels.
    time_step: "bound" is the paper's τ = 1 / (4 (1 - min α)), the minimum being over the image; "quarter" is τ = 1/4,
    stable for every α, and a pixel's weights then depend on its surroundings alone.
    direction_floor: beside ‖v‖² where directions are normalised. In the paper's code it is next to nothing, and where v
    passes through zero rounding decides the direction, and most of the gradient's error; with 0.01 the anisotropy
    fades there instead.
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
        for name, steps in (("steps", self.steps), ("guess_steps", self.guess_steps)):
            if len(steps) != LEVELS or not all(_is_count(n) and n <= MOST_STEPS for n in steps):
                raise InputError(f"{name}: {steps} was given; {LEVELS} counts from 1 to {MOST_STEPS} are taken.")
        if self.decoder_kernel not in (1, 2):
            raise InputError(f"decoder_kernel: {self.decoder_kernel} was given; 1 or 2 is taken.")
        if not (_is_count(self.width) and _is_count(self.channels)):
            raise InputError(f"width {self.width}, channels {self.channels} were given; counts from 1 are taken.")
        if self.fine_width != 0 and not _is_count(self.fine_width):
            raise InputError(f"fine_width: {self.fine_width} was given; a count from 1, or 0 for the width, is taken.")
        if not (_is_count(self.depth) and SHALLOWEST <= self.depth <= DEEPEST):
            raise InputError(f"depth: {self.depth} was given; a count from {SHALLOWEST} to {DEEPEST} is taken.")
        if not 0 <= self.alpha <= 0.5:
            raise InputError(f"alpha: {self.alpha} was given; a value in [0, 0.5] is taken.")
        if not 0 <= self.rho <= 100:
            raise InputError(f"rho: {self.rho} was given; a standard deviation from 0 to 100 pixels is taken.")
        if not 1e-12 <= self.direction_floor <= 1:
            raise InputError(f"direction_floor: {self.direction_floor} was given; a value from 1e-12 to 1 is taken.")
        for name, value, choices in (
            ("start", self.start, get_args(Start)),
            ("time_step", self.time_step, get_args(TimeStep)),
        ):
            if value not in choices:
                raise InputError(f"{name}: {value!r} was given; {' or '.join(map(repr, choices))} is taken.")
        if self.learn_kernels and self.start == "pull":
            raise InputError("start: 'pull' was given; learned kernels (+W) take 'zero', having no more levels.")
        if self.predicted == 0:
            raise InputError(
                "Nothing is left to learn: switch on one of learn_eigenvalues, _eigenvectors, _alpha, _beta."
            )

    @property
    def parameters(self) -> dict[str, int]:
        """What a user may set when a field is filled: nothing."""
        return {}

    @property
    def predicted(self) -> int:
        """Channels of z: α, μ₁, μ₂, v (two), β, in this order, without those that are not learned."""
        return self.learn_alpha + 2 * self.learn_eigenvalues + 2 * self.learn_eigenvectors + self.learn_beta


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


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
