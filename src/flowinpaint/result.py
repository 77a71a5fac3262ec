"""What a computation says of itself: while it runs, when a solver returns, and to the caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor

Status = Literal["converged", "max_iterations", "complete"]
"""converged / max_iterations: an iteration that did or did not reach its tolerance; complete: nothing to converge."""


@dataclass(frozen=True)
class Progress:
    """Where a long computation stands: levels counted from the coarsest, 1 to `levels`."""

    level: int
    levels: int
    iterations: int
    residual: float


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Solution:
    """A filled field u (1, C, H, W), the steps it took, its relative residual if it has one, and how it ended."""

    u: Tensor
    iterations: int = 0
    residual: float | None = None
    status: Status = "complete"


class Info(TypedDict):
    """How a result came about."""

    method: str
    device: str
    seconds: float
    iterations: int
    residual: float | None
    status: Status


@dataclass(frozen=True)
class Result:
    """What `inpaint` returns.

    flow: (H, W, C) float32, dense, the known vectors unchanged.
    confidence: (H, W) float32 in [0, 1], or None for a method that has none.
    info: method, device, seconds, iterations, residual, status.
    """

    flow: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32] | None
    info: Info
