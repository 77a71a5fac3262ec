"""Steady-state diffusion inpainting by explicit steps, coarse to fine, as the paper computes its EED baseline."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowinpaint.diffusion.fsi import step_to_steady
from flowinpaint.diffusion.pyramid import build_pyramid, upsample
from flowinpaint.result import Progress, ProgressCallback, Solution, Status

COARSEST_SIDE = 4
"""The pyramid stops before a level's shorter side falls below this."""


def inpaint_coarse_to_fine(
    image: Tensor,
    f: Tensor,
    c: Tensor,
    operator: Callable[[Tensor], tuple[Tensor, Tensor]],
    tolerance: float,
    max_iterations: int,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Solve A u = 0 with u = f where c = 1; A's edge weights and its time step are operator(image) at each level.

    Shapes (1, 3, H, W), (1, C, H, W), (1, 1, H, W). Every level is solved to `tolerance` and starts from the level
    above it; the coarsest starts from the mean of the known vectors. Iterations are summed over the levels; the
    residual is that of the finest, and the status is the worst of all levels.
    """
    # The steady state commutes with a constant; without the mean, residuals do not drown in a large offset.
    mean = (f * c).sum((2, 3), keepdim=True) / c.sum((2, 3), keepdim=True)
    pyramid = build_pyramid(image, f - mean, c, _levels(f.shape[-2], f.shape[-1]))
    u = torch.zeros_like(pyramid[-1].f)
    iterations, converged, history = 0, True, []
    for number, level in enumerate(reversed(pyramid), start=1):
        if number > 1:
            u = upsample(u, (level.f.shape[-2], level.f.shape[-1]))

        def report(steps: int, residual: float, done: int = iterations, number: int = number) -> None:
            history.append(residual)
            if progress:
                progress(Progress(number, len(pyramid), done + steps, residual))

        weights, tau = operator(level.image)
        solution = step_to_steady(u, level.f, level.c, weights, tau, tolerance, max_iterations, report)
        u = solution.u
        iterations += solution.iterations
        converged = converged and solution.status == "converged"
    status: Status = "converged" if converged else "max_iterations"
    return Solution(u + mean, iterations, solution.residual, status, tuple(history))


def _levels(H: int, W: int) -> int:
    levels, side = 1, min(H, W)
    while (side := (side + 1) // 2) >= COARSEST_SIDE:
        levels += 1
    return levels
