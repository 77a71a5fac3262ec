"""Configuration of FlowNetS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowinpaint.errors import InputError

WIDEST = 512


@dataclass(frozen=True)
class FlowNetSConfig:
    """width: channels of the first layer; 48 gives the paper's 8,835,728 parameters."""

    kind: Literal["flownets"] = "flownets"
    width: int = 48

    def __post_init__(self) -> None:
        if not 2 <= self.width <= WIDEST or self.width % 2:
            raise InputError(f"width must be an even number from 2 to {WIDEST}, got {self.width}")

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of `complete`: none."""
        return {}
