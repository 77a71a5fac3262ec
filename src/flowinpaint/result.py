"""`Progress`, `Solution` and `Result`: what solvers and `inpaint` report and return.

A network returns a `Filled` (networks/output.py): field and logarithm of the expected error, differentiable and in the
network's own units. `methods.neural` converts it to a `Solution`, the return type of every method: tensors, the error
in the field's unit, and how the computation ended. `inpaint` converts that to a `Result`: numpy arrays, with the known
vectors restored bit by bit unless `robust.fill` judged them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from flowinpaint.errors import warn_user

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

Status = Literal["converged", "max_iterations", "stagnated", "complete"]
"""converged: an iteration reached its tolerance; max_iterations: it reached the maximum number of steps first;
stagnated: further steps gained nothing; complete: the method does not iterate to a tolerance."""


@dataclass(frozen=True)
class Progress:
    """State of a long computation: its level, counted from the coarsest, 1 to `levels`, and its iterations so far.

    residual: a solver's relative residual; None for a computation that does not converge.
    share: the finished fraction of the computation, from 0 to 1; None if unknown.
    """

    level: int
    levels: int
    iterations: int
    residual: float | None = None
    share: float | None = None


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Solution:
    """A filled field u (B, C, H, W), the iterations it took, its relative residual or None, and how it ended.

    history: the relative residual at the start and at each of the solver's checks.
    expected_error: (B, 1, H, W), the endpoint error that the method predicts for its result; None if it cannot.
    """

    u: Tensor
    iterations: int = 0
    residual: float | None = None
    status: Status = "complete"
    history: tuple[float, ...] = ()
    expected_error: Tensor | None = None

    def warn_unless_converged(self, name: str) -> None:
        """Warn, in the name of method `name`, if an iteration ended before its tolerance."""
        if how := {"max_iterations": "stopped", "stagnated": "got no further"}.get(self.status):
            warn_user(
                f"{name} {how} after {self.iterations} iterations at a residual of {self.residual:.1e}, "
                "before its tolerance."
            )


class Info(TypedDict):
    """Method, device, time and convergence of a `Result`."""

    method: str
    device: str
    seconds: float
    iterations: int
    residual: float | None
    status: Status
    noise: float | None


@dataclass(frozen=True)
class Arrays:
    """Numpy arrays behind a `Result`, whatever the types of the caller's arrays.

    image: (H, W, 3) or (H, W, 1), uint8, uint16 or float32 in [0, 1]; None without an image. given: (H, W, C) float32,
    NaN where unknown. flow: (H, W, C) float32, NaN where not filled. expected_error, inliers: (H, W) float32 or None.
    """

    image: npt.NDArray[Any] | None
    given: npt.NDArray[np.float32]
    flow: npt.NDArray[np.float32]
    expected_error: npt.NDArray[np.float32] | None = None
    inliers: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Result:
    """The dense field that `inpaint` returns, with its expected error.

    Fields are of the type of the caller's flow: numpy arrays, torch tensors or xarray DataArrays.

    flow: (H, W, C) float32, dense; the known vectors are unchanged unless `inpaint` judges them.
    expected_error: (H, W) float32, the predicted endpoint error in the field's unit: 0 where a vector is known exactly,
    and infinite elsewhere if all known vectors are equal. None for a method that predicts no errors.
    confidence: (H, W) float32 in [0, 1], the estimated probability that the error is below 1 (a pixel, for flow).
    info: method, device, seconds, iterations, residual, status, noise; the seconds of a first call may include
    compilation. noise: the estimated standard deviation of the known vectors in the field's unit.
    inliers: (H, W) float32 in [0, 1], the estimated probability that each known vector is correct, NaN where none is
    known. It and the noise are None unless `inpaint` gets `robust`, `noise`, `confidence` or `second`.
    arrays: the same as numpy arrays, with the image and the given vectors.
    """

    flow: Any
    confidence: Any
    expected_error: Any
    info: Info
    inliers: Any = None
    arrays: Arrays | None = field(default=None, repr=False)
