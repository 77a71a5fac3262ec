"""What a probabilistic diffusion model is made of: two U-Nets, and the numbers that train and sample them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from flowinpaint.errors import InputError

WIDEST = 2048
MOST_LEVELS = 6
MOST_BLOCKS = 8
MOST_STEPS = 1000
MOST_REDUCTION = 16
MOST_GROUPS = 32
LARGEST_SIGMA = 1e4


@dataclass(frozen=True)
class UNetConfig:
    """A U-Net: its widths from fine to coarse, each level at half the size of the one before.

    blocks: ResNet blocks of a level on the way down; on the way up there is one more.
    attention: 1 for each level with self-attention, and 0 for the others; with the coarsest level's goes the middle's.
    head: channels of one head of it.
    """

    widths: tuple[int, ...]
    blocks: int
    attention: tuple[int, ...]
    head: int = 32

    def __post_init__(self) -> None:
        _tuples(self, "widths", "attention")
        if not (1 <= len(self.widths) <= MOST_LEVELS and all(_is_count(w, WIDEST) and w % 8 == 0 for w in self.widths)):
            raise InputError(
                f"widths: {self.widths} was given; 1 to {MOST_LEVELS} multiples of 8 up to {WIDEST} are taken."
            )
        if not _is_count(self.blocks, MOST_BLOCKS):
            raise InputError(f"blocks: {self.blocks} was given; a count from 1 to {MOST_BLOCKS} is taken.")
        if len(self.attention) != len(self.widths) or any(a not in (0, 1) for a in self.attention):
            raise InputError(f"attention: {self.attention} was given; 0 or 1 for each of the widths is taken.")
        attending = [w for w, a in zip(self.widths, self.attention, strict=True) if a]
        if not _is_count(self.head, WIDEST) or any(w % self.head for w in attending):
            raise InputError(
                f"head: {self.head} was given; a count that divides the widths with attention, {attending}, is taken."
            )

    @property
    def stride(self) -> int:
        """Sides of the input are multiples of this."""
        return 1 << (len(self.widths) - 1)

    @property
    def groups(self) -> int:
        """Groups of channels that are normalised together, of four or more: the same count at every level."""
        most = min(MOST_GROUPS, self.widths[0] // 4)
        return max(d for d in range(1, most + 1) if math.gcd(*self.widths) % d == 0)


@dataclass(frozen=True)
class PDConfig:
    """The cascade: `base` makes the field at 1 / `reduction` of the size, `fine` makes the field of that.

    The defaults are a small cascade with the paper's numbers of training and sampling: its supplement, Table
    "Added hyperparameters", whose symbols are those of Karras et al. (2022). sigma_max has one for each U-Net.
    sampling_steps, resampling_steps: N and the times that RePaint (Lugmayr et al., 2022) takes each step; the jump
    length is 1. low_noise: standard deviation of the noise on the coarse field that `fine` sees, in training and
    sampling alike, so that it mends what `base` gets wrong.
    """

    base: UNetConfig = field(default_factory=lambda: UNetConfig((64, 128, 160, 256), 2, (0, 0, 0, 1)))
    fine: UNetConfig = field(default_factory=lambda: UNetConfig((32, 64, 96, 160), 1, (0, 0, 0, 0)))
    reduction: int = 4
    sigma_min: float = 0.002
    sigma_max: tuple[float, float] = (120.0, 480.0)
    sigma_data: float = 1.0
    rho: float = 7.0
    p_mean: float = -1.2
    p_std: float = 1.2
    s_churn: float = 80.0
    s_tmin: float = 0.05
    s_tmax: float = 50.0
    s_noise: float = 1.003
    sampling_steps: int = 48
    resampling_steps: int = 45
    low_noise: float = 0.1
    kind: Literal["pd"] = "pd"

    def __post_init__(self) -> None:
        _tuples(self, "sigma_max")
        for name in ("base", "fine"):
            _unet(self, name)
        if self.kind != "pd":
            raise InputError(f"kind: {self.kind!r} was given; 'pd' is taken.")
        if not _is_count(self.reduction, MOST_REDUCTION) or self.reduction < 2:
            raise InputError(f"reduction: {self.reduction} was given; a count from 2 to {MOST_REDUCTION} is taken.")
        if len(self.sigma_max) != 2:
            raise InputError(f"sigma_max: {self.sigma_max} was given; two numbers, for base and fine, are taken.")
        for name, value, least, most in (
            ("sigma_min", self.sigma_min, 1e-4, 1.0),
            *(("sigma_max", value, 2.0, LARGEST_SIGMA) for value in self.sigma_max),
            ("sigma_data", self.sigma_data, 0.01, 100.0),
            ("rho", self.rho, 1.0, 100.0),
            ("p_mean", self.p_mean, -10.0, 10.0),
            ("p_std", self.p_std, 0.0, 10.0),
            ("s_churn", self.s_churn, 0.0, LARGEST_SIGMA),
            ("s_tmin", self.s_tmin, 0.0, LARGEST_SIGMA),
            ("s_tmax", self.s_tmax, 0.0, LARGEST_SIGMA),
            ("s_noise", self.s_noise, 0.5, 2.0),
            ("low_noise", self.low_noise, 0.0, 10.0),
        ):
            if not (isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most):
                raise InputError(f"{name}: {value} was given; a number from {least:g} to {most:g} is taken.")
        check_steps(self.sampling_steps, self.resampling_steps)

    @property
    def parameters(self) -> dict[str, int]:
        """What a user may set when filling a field, and what is taken otherwise."""
        return {"sampling_steps": self.sampling_steps, "resampling_steps": self.resampling_steps, "seed": 0}

    @property
    def multiple(self) -> int:
        """Sides of the fields that both U-Nets work on are multiples of this."""
        return math.lcm(self.reduction * self.base.stride, self.fine.stride)


def paper_pd_config() -> PDConfig:
    """The paper's size: 977 million parameters, its figure of model sizes having 976,748,807.

    The base U-Net is Imagen's (Saharia et al., 2022) at width 128: multipliers 1, 2, 4, 8, three ResNet blocks a level,
    attention on all levels but the finest. The paper does not print the fine one, and Imagen's Efficient U-Net for 256
    pixels has 2, 4, 8 and 8 blocks and downsamples before them, where the library's U-Net has the same count on every
    level. Here it has 6, a little above their mean, attention on the coarsest level, and the widths of the two coarsest
    levels, 512 and 1024 in Imagen, are 480 and 1120, which makes the sum the paper's.
    """
    return PDConfig(
        base=UNetConfig((128, 256, 512, 1024), 3, (0, 1, 1, 1)),
        fine=UNetConfig((128, 256, 480, 1120), 6, (0, 0, 0, 1)),
    )


def check_steps(sampling_steps: int, resampling_steps: int) -> None:
    """Raise InputError unless these are counts that a sampler takes."""
    for name, value, least in (("sampling_steps", sampling_steps, 2), ("resampling_steps", resampling_steps, 1)):
        if not (_is_count(value, MOST_STEPS) and value >= least):
            raise InputError(f"{name}: {value} was given; a count from {least} to {MOST_STEPS} is taken.")


def _tuples(config: object, *names: str) -> None:
    """Make tuples of what came from a file as lists."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, Iterable) or isinstance(value, (str, dict)):
            raise InputError(f"{name}: {value!r} was given; a tuple of numbers is taken.")
        object.__setattr__(config, name, tuple(value))


def _unet(config: PDConfig, name: str) -> None:
    """Make a UNetConfig of what came from a file as a dict."""
    value: Any = getattr(config, name)
    if isinstance(value, dict):
        object.__setattr__(config, name, UNetConfig(**value))
    elif not isinstance(value, UNetConfig):
        raise InputError(f"{name}: {value!r} was given; a UNetConfig is taken.")


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
