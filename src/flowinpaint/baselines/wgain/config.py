"""Configuration of WGAIN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowinpaint.config_parsing import check_ranges

WIDEST = 512


@dataclass(frozen=True)
class WGAINConfig:
    """width: channels of a dilated part of the first layer; 32 gives the paper's 11,505,882 parameters.

    scale: fields are divided by it, so that most of a flow lies in [-1, 1]. noise: standard deviation, after this
    division, of the input at unknown pixels; the authors' code has 1, ten times most of a flow.
    """

    kind: Literal["wgain"] = "wgain"
    width: int = 32
    scale: float = 100.0
    noise: float = 0.1

    def __post_init__(self) -> None:
        check_ranges(self, width=(1, WIDEST), scale=(1e-6, 1e6), noise=(0, 100))

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of `complete`: the seed of the noise at unknown pixels."""
        return {"seed": 0}
