"""Solvers that the linear methods share: multigrid, and explicit steps from coarse to fine as in the paper."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm, statistics
from flowinpaint.diffusion.fsi import step_to_steady
from flowinpaint.diffusion.pyramid import coarse_to_fine, image_pyramid, push, refine
from flowinpaint.diffusion.steady import solve_steady
from flowinpaint.result import Progress, ProgressCallback, Solution, Status

COARSEST_SIDE = 4
"""The pyramid stops before a level's shorter side falls below this."""


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


def fill_by_steps(
    image: Tensor,
    data: DataTerm,
    operator: Callable[[Tensor], tuple[Tensor, Tensor]],
    tolerance: float,
    max_iterations: int,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Solve A u + k (f - u) = 0; A's edge weights and its time step are operator(image) at each level.

    image (1, 3, H, W), f (1, C, H, W). Every level is solved to `tolerance` and starts from the next coarser one; the
    coarsest starts from the mean of the given vectors. Iterations are summed over the levels; the residual is that of
    the finest, and the status is the worst of all levels.
    """
    # The steady state commutes with a constant; without the mean, residuals do not drown in a large offset.
    f = torch.where(data.known, data.f, 0)
    mean = statistics(f, data.binding())[0]
    count = _levels(f.shape[-2], f.shape[-1])
    levels = push(data._replace(f=torch.where(data.known, f - mean, 0)), count)[::-1]
    images, solutions, history = image_pyramid(image, count), list[Solution](), list[float]()

    def solve(k: int, level: DataTerm, u: Tensor) -> Tensor:
        done = sum(solution.iterations for solution in solutions)

        def report(steps: int, residual: float) -> None:
            history.append(residual)
            if progress:
                progress(Progress(k + 1, count, done + steps, residual))

        weights, tau = operator(images[k])
        solutions.append(step_to_steady(u, level, weights, tau, tolerance, max_iterations, report))
        return solutions[-1].u

    u = coarse_to_fine(levels, torch.zeros_like(levels[0].f), refine, solve)
    converged = all(solution.status == "converged" for solution in solutions)
    iterations = sum(solution.iterations for solution in solutions)
    status: Status = "converged" if converged else "max_iterations"
    return Solution(u + mean, iterations, solutions[-1].residual, status, tuple(history))


def _levels(H: int, W: int) -> int:
    levels, side = 1, min(H, W)
    while (side := (side + 1) // 2) >= COARSEST_SIDE:
        levels += 1
    return levels
