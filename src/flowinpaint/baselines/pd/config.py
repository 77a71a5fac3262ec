"""Configuration of probabilistic diffusion: two U-Nets, and the constants of training and sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from flowinpaint.config_parsing import check_ranges, check_types
from flowinpaint.errors import InputError

WIDEST = 2048
MOST_LEVELS = 6
MOST_BLOCKS = 8
MOST_STEPS = 1000
MOST_REDUCTION = 16
MOST_GROUPS = 32
LARGEST_SIGMA = 10_000


@dataclass(frozen=True)
class UNetConfig:
    """A U-Net: its widths from fine to coarse, each level at half the size of the one before.

    blocks: ResNet blocks of a level in the encoder; the decoder has one more.
    attention: 1 for each level with self-attention, 0 for the others; the coarsest level's also holds for the middle.
    head: channels of an attention head.
    """

    widths: tuple[int, ...]
    blocks: int
    attention: tuple[int, ...]
    head: int = 32

    def __post_init__(self) -> None:
        check_types(self)
        check_ranges(self, blocks=(1, MOST_BLOCKS), head=(1, WIDEST))
        widths, attention = self.widths, self.attention
        if not 1 <= len(widths) <= MOST_LEVELS or not all(1 <= w <= WIDEST and w % 8 == 0 for w in widths):
            raise InputError(f"widths must be 1 to {MOST_LEVELS} multiples of 8 up to {WIDEST}, got {widths}")
        if len(attention) != len(widths) or not set(attention) <= {0, 1}:
            raise InputError(f"attention must be 0 or 1 for each of the widths, got {attention}")
        attending = [w for w, a in zip(widths, attention, strict=True) if a]
        if any(w % self.head for w in attending):
            raise InputError(f"head must divide the widths with attention, {attending}, got {self.head}")

    @property
    def stride(self) -> int:
        """The sides of the input must be multiples of this."""
        return 1 << (len(self.widths) - 1)

    @property
    def groups(self) -> int:
        """Number of normalisation groups, of four or more channels: the same at every level."""
        most = min(MOST_GROUPS, self.widths[0] // 4)
        return max(d for d in range(1, most + 1) if math.gcd(*self.widths) % d == 0)


@dataclass(frozen=True)
class PDConfig:
    """The cascade: `base` samples the field at 1 / `reduction` of the size, `fine` at full size from that.

    The defaults are a small cascade with the paper's constants of training and sampling (its supplement, Table
    "Added hyperparameters", in the symbols of Karras et al., 2022). sigma_max has one value for each U-Net.
    sampling_steps, resampling_steps: N and the number of times RePaint (Lugmayr et al., 2022) repeats each step; the
    jump length is 1. low_noise: standard deviation of the noise on the coarse field that `fine` sees, in training and
    sampling, so that it corrects errors of `base`.
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
        check_types(self)
        check_ranges(
            self,
            reduction=(2, MOST_REDUCTION),
            sigma_min=(1e-4, 1),
            sigma_max=(2, LARGEST_SIGMA),
            sigma_data=(0.01, 100),
            rho=(1, 100),
            p_mean=(-10, 10),
            p_std=(0, 10),
            s_churn=(0, LARGEST_SIGMA),
            s_tmin=(0, LARGEST_SIGMA),
            s_tmax=(0, LARGEST_SIGMA),
            s_noise=(0.5, 2),
            sampling_steps=(2, MOST_STEPS),
            resampling_steps=(1, MOST_STEPS),
            low_noise=(0, 10),
        )

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of `complete` with their defaults."""
        return {"sampling_steps": self.sampling_steps, "resampling_steps": self.resampling_steps, "seed": 0}

    @property
    def iterations(self) -> int:
        """Steps of one U-Net's sampling: R times each, except the last, which ends without noise and is done once."""
        return (self.sampling_steps - 1) * self.resampling_steps + 1

    @property
    def multiple(self) -> int:
        """Both U-Nets work at sides that are multiples of this."""
        return math.lcm(self.reduction * self.base.stride, self.fine.stride)


def paper_pd_config() -> PDConfig:
    """The paper's size: 977 million parameters, where its figure of model sizes has 976,748,807.

    The base U-Net is Imagen's (Saharia et al., 2022) at width 128: multipliers 1, 2, 4, 8, three ResNet blocks per
    level, attention on all levels except the finest. The paper does not describe the fine one. Imagen's Efficient U-Net
    for 256 pixels has 2, 4, 8 and 8 blocks and downsamples before them, while the library's U-Net has the same number
    on every level. Here it has 6, a little above their mean, and attention on the coarsest level. The two coarsest
    widths, 512 and 1024 in Imagen, are 480 and 1120, so that the total is the paper's.
    """
    return PDConfig(
        base=UNetConfig((128, 256, 512, 1024), 3, (0, 1, 1, 1)),
        fine=UNetConfig((128, 256, 480, 1120), 6, (0, 0, 0, 1)),
    )
