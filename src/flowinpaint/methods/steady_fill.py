"""From given vectors and edge weights to a filled field: what the linear methods share."""

from __future__ import annotations

from torch import Tensor

from flowinpaint.diffusion.steady import solve_steady
from flowinpaint.result import Progress, ProgressCallback, Solution


def fill_steady(
    f: Tensor,
    c: Tensor,
    weights: Tensor,
    tolerance: float,
    max_iterations: float,
    progress: ProgressCallback | None,
) -> Solution:
    """The steady state of `diffusion.steady`, with its progress told as that of a single level."""

    def report(iterations: int, residual: float) -> None:
        if progress:
            progress(Progress(1, 1, iterations, residual))

    return solve_steady(f, c, weights, tolerance=tolerance, max_iterations=max_iterations, report=report)
