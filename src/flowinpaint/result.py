"""`Progress`, `Solution` and `Result`: what solvers and `inpaint` report and return.

A network returns a `Filled` (networks/output.py): field and logarithm of the expected error, differentiable and in the
network's own units. `methods.neural` converts it to a `Solution`, the return type of every method: tensors, the error
in the field's unit, and how the computation ended. `inpaint` converts that to a `Result`: arrays of the caller's type,
with the known vectors restored bit by bit unless `robust.fill` judged them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from flowinpaint.errors import InputError, warn_user

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from torch import Tensor

    from flowinpaint.points.fill import PointResults

Status = Literal["converged", "max_iterations", "stagnated", "complete"]
"""converged: an iteration reached its tolerance; max_iterations: it reached the maximum number of steps first;
stagnated: further steps gained nothing; complete: the method does not iterate to a tolerance."""


@dataclass(frozen=True)
class Progress:
    """State of a long computation: its level, counted from the coarsest, 1 to `levels`, and its iterations so far.

    residual: a solver's relative residual; None for a computation that does not converge.
    share: the finished fraction of the computation. It starts at 0, never decreases, and is 1 in the last call; for
    solvers it is an estimate. None while a method of a plug-in does not report it.
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


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


@dataclass(frozen=True, eq=False)
class Arrays:
    """Numpy arrays behind a `Result`, whatever the types of the caller's arrays.

    image: (H, W, 3) or (H, W, 1), uint8, uint16 or float32 in [0, 1]; None without an image. sparse: (H, W, C) float32,
    the caller's vectors, of any value where known (H, W) is False. flow: (H, W, C) float32, NaN where not filled.
    expected_error, inliers: (H, W) float32 or None. The caller's arrays are not copied.
    """

    image: npt.NDArray[Any] | None
    sparse: npt.NDArray[np.float32]
    known: npt.NDArray[np.bool_]
    flow: npt.NDArray[np.float32]
    expected_error: npt.NDArray[np.float32] | None = None
    inliers: npt.NDArray[np.float32] | None = None

    @cached_property
    def given(self) -> npt.NDArray[np.float32]:
        """The given vectors (H, W, C), NaN where unknown."""
        import numpy as np

        return np.where(self.known[..., None], self.sparse, np.float32(np.nan))

    def about(self, time: str) -> str:
        """Size, given share, time and quality, in words."""
        import numpy as np

        H, W, C = self.flow.shape
        given, filled = (np.isfinite(x).all(axis=2) for x in (self.given, self.flow))
        parts = [f"{W} x {H}, {C} channel{'s' * (C > 1)}, {_percent(given.mean())} given, {time}"]
        if not filled.all():
            parts[0] += f", {_percent(1 - filled.mean())} not filled"
        if self.expected_error is not None:
            errors = self.expected_error[filled & ~given if (filled & ~given).any() else filled]
            if (errors := errors[~np.isnan(errors)]).size:
                unit = " px" if C == 2 else ""
                parts.append(f"expected error {np.median(errors):.3g}{unit} (median of the filled pixels)")
        if self.inliers is not None and given.any():
            wrong = np.count_nonzero(self.inliers[given] < 0.5) / np.count_nonzero(given)
            parts.append(f"{_percent(wrong)} of the given vectors probably wrong")
        return ",\n  ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """The dense field that `inpaint` returns, with its expected error.

    Fields are of the type of the caller's flow: numpy arrays, torch tensors or xarray DataArrays.

    flow: (H, W, C) float32, dense; the known vectors are unchanged unless `inpaint` judges them.
    expected_error: (H, W) float32, the predicted endpoint error in the field's unit: finite, 0 where a vector is known
    exactly. If all n known vectors are equal, at least their length over n, or 1/n if they are zero. None if the
    method has no network and no vectors were judged, or fewer than 8.
    confidence: (H, W) float32 in [0, 1], the estimated probability that the error is below 1 (a pixel, for flow).
    info: method, device, seconds, iterations, residual, status, noise; the seconds of a first call may include
    compilation. noise: the estimated standard deviation of the known vectors in the field's unit.
    inliers: (H, W) float32 in [0, 1], the estimated probability that each known vector is correct, NaN where none is
    known. It and the noise are None unless `inpaint` gets `robust`, `noise`, `confidence` or `second`.
    arrays: the same as numpy arrays, with the image and the given vectors.
    points: what `inpaint_points` made of each point; None from `inpaint`.
    restore: converts a numpy array (H, W, C) or (H, W) to the type of the caller's flow; None for numpy itself. A
    result can be pickled if this can, such as a `functools.partial` of a function of a module.
    """

    flow: Any
    confidence: Any
    expected_error: Any
    info: Info
    inliers: Any = None
    arrays: Arrays | None = None
    restore: Callable[[npt.NDArray[Any]], Any] | None = None
    points: PointResults | None = None

    def preview(self) -> npt.NDArray[np.uint8]:
        """Draw a sheet (h, w, 3) of the image, the given vectors, the result and its expected errors."""
        from flowinpaint.viz.result_sheet import result_sheet

        return result_sheet(self._arrays, self.info)

    def save(self, path: str | os.PathLike[str], unit: str | float | None = None) -> None:
        """Write the field in the format of the suffix, as `write_flow` does; NaN means unknown. Makes the folder.

        A .npz also has `expected_error` and `inliers`, if known. unit: of a 16-bit PNG of one channel.
        """
        from flowinpaint.io.results import save_result

        save_result(path, self._arrays, unit)

    def trusted(self, max_error: float) -> Any:
        """The field (H, W, C), NaN where the expected error is above `max_error` or the field is not filled."""
        import numpy as np

        arrays = self._arrays
        if arrays.expected_error is None:
            raise InputError(
                f"trusted needs expected errors, which {self.info['method']} does not predict here; use "
                "method='neuroexplicit' or robust=True"
            )
        limit: object = max_error
        if isinstance(limit, bool) or not isinstance(limit, Real) or not float(limit) >= 0:
            raise InputError(
                f"max_error must be a number of at least 0 in the unit of the field, got {max_error!r:.60}"
            )
        sure = arrays.expected_error <= float(limit)
        return self._in_kind(np.where(sure[..., None], arrays.flow, np.float32(np.nan)))

    def to_torch(self, device: str | torch.device = "cpu") -> Tensor:
        """Copy the field to a tensor (1, C, H, W) float32, the form that networks take; "auto" is CUDA if available."""
        import torch

        from flowinpaint.checks import check_device

        return torch.tensor(self._arrays.flow).permute(2, 0, 1)[None].contiguous().to(check_device(device))

    def __repr__(self) -> str:
        return f"Result({self._about()})"

    def _repr_html_(self) -> str:
        """The picture of a result in a notebook, above the line of `repr`."""
        from flowinpaint.viz.result_sheet import result_html

        return result_html(self.arrays, self.info, self._about())

    def _about(self) -> str:
        """The facts of `repr`, on two lines at most."""
        info, arrays = self.info, self.arrays
        seconds = info["seconds"]
        duration = f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
        time = f"{duration} on {info['device']}"
        return f"{info['method']}, {time}" if arrays is None else f"{info['method']}, {arrays.about(time)}"

    @property
    def _arrays(self) -> Arrays:
        if self.arrays is None:
            raise InputError(
                "this Result has no arrays and cannot be drawn, saved or converted; use a result of inpaint"
            )
        return self.arrays

    def _in_kind(self, array: npt.NDArray[Any]) -> Any:
        """A numpy array (H, W, C) or (H, W) in the type of the caller's flow."""
        return array if self.restore is None else self.restore(array)
