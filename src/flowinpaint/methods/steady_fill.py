"""Steady state of given vectors and edge weights, with progress: shared by the linear methods."""

from __future__ import annotations

from torch import Tensor

from flowinpaint.diffusion.steady import solve_steady
from flowinpaint.result import Progress, ProgressCallback, Solution


def fill_steady(
    f: Tensor,
    c: Tensor,
    weights: Tensor,
    data_weight: Tensor | None,
    tolerance: float,
    max_iterations: float,
    progress: ProgressCallback | None,
) -> Solution:
    """The steady state of `diffusion.steady`, with its progress reported as that of a single level."""

    def report(iterations: int, residual: float) -> None:
        if progress:
            progress(Progress(1, 1, iterations, residual))

    return solve_steady(
        f, c, weights, data_weight=data_weight, tolerance=tolerance, max_iterations=max_iterations, report=report
    )
