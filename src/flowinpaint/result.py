"""What a computation says of itself: while it runs, when a solver returns, and to the caller."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor

Status = Literal["converged", "max_iterations", "stagnated", "complete"]
"""converged: an iteration reached its tolerance; max_iterations, stagnated: it did not, for want of steps or because
further ones gained nothing; complete: there was nothing to converge."""


@dataclass(frozen=True)
class Progress:
    """Where a long computation stands: levels counted from the coarsest, 1 to `levels`.

    residual: of a solver, relative, None where nothing converges. share: how much of the whole is done, from 0 to 1,
    where that is known beforehand.
    """

    level: int
    levels: int
    iterations: int
    residual: float | None = None
    share: float | None = None


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Solution:
    """A filled field u (B, C, H, W), the steps it took, its relative residual if it has one, and how it ended.

    history: the relative residual at the start and whenever the solver looked at it.
    expected_error: (B, 1, H, W), the endpoint error that a method expects of its result, if it can tell.
    """

    u: Tensor
    iterations: int = 0
    residual: float | None = None
    status: Status = "complete"
    history: tuple[float, ...] = ()
    expected_error: Tensor | None = None

    def warn_unless_converged(self, name: str, stacklevel: int) -> None:
        """Warn, on behalf of `name`, if an iteration ended before its tolerance."""
        if self.status in ("max_iterations", "stagnated"):
            how = "stopped" if self.status == "max_iterations" else "got no further"
            warnings.warn(
                f"{name} {how} after {self.iterations} iterations at a residual of {self.residual:.1e}, "
                "before its tolerance.",
                stacklevel=stacklevel + 1,
            )


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
    confidence: (H, W) float32 in [0, 1], about the chance that a vector is off by less than 1 (a pixel, for flow);
    None for a method that has none.
    expected_error: (H, W) float32, how far off each vector is expected to be, in the field's unit: 0 where known, and
    infinite where only one vector is; None for a method that cannot tell.
    info: method, device, seconds, iterations, residual, status; a first call also compiles, within its seconds.
    """

    flow: npt.NDArray[np.float32]
    confidence: npt.NDArray[np.float32] | None
    expected_error: npt.NDArray[np.float32] | None
    info: Info
