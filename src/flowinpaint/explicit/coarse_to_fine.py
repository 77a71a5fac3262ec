"""Steady-state diffusion inpainting, coarse to fine: what harmonic and edge-enhancing inpainting share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flowinpaint.diffusion.fsi import solve_steady
from flowinpaint.diffusion.pyramid import build_pyramid, upsample
from flowinpaint.diffusion.stencil import cell_delta, edge_weights, stable_beta, time_step_bound
from flowinpaint.diffusion.tensor import SymmetricTensor
from flowinpaint.errors import InputError
from flowinpaint.result import Progress, ProgressCallback, Solution

COARSEST_SIDE = 4
"""The pyramid stops before a level's shorter side falls below this."""


def inpaint_coarse_to_fine(
    image: Tensor,
    f: Tensor,
    c: Tensor,
    tensor_of: Callable[[Tensor], SymmetricTensor],
    alpha: float,
    tolerance: float,
    max_iterations: int,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Solve div(D∇u) = 0 with u = f where c = 1; D = tensor_of(image) at each level.

    Shapes (1, 3, H, W), (1, C, H, W), (1, 1, H, W). Every level is solved to `tolerance` and starts from the level
    above it; the coarsest starts from the mean of the known vectors. Iterations are summed over the levels; the
    residual is that of the finest, and the status is the worst of all levels.
    """
    if not tolerance > 0:
        raise InputError(f"tolerance: {tolerance} was given; a relative residual above 0 is taken.")
    if not max_iterations >= 1 or max_iterations % 1:
        raise InputError(f"max_iterations: {max_iterations} was given; a whole number of at least 1 is taken.")
    max_iterations = int(max_iterations)
    H, W = f.shape[-2:]
    image, f, c = (_at_least_two_pixels(x) for x in (image, f, c))
    # The steady state commutes with a constant; without the mean, residuals do not drown in a large offset.
    mean = (f * c).sum((2, 3), keepdim=True) / c.sum((2, 3), keepdim=True)
    pyramid = build_pyramid(image, f - mean, c, _levels(f.shape[-2], f.shape[-1]))
    u = torch.zeros_like(pyramid[-1].f)
    iterations, converged = 0, True
    for number, level in enumerate(reversed(pyramid), start=1):
        if number > 1:
            u = upsample(u, (level.f.shape[-2], level.f.shape[-1]))
        D = tensor_of(level.image)
        delta = cell_delta(D, alpha, stable_beta(D, alpha))

        def report(steps: int, residual: float, done: int = iterations, number: int = number) -> None:
            if progress:
                progress(Progress(number, len(pyramid), done + steps, residual))

        solution = solve_steady(
            u,
            level.f,
            level.c,
            edge_weights(D, delta),
            time_step_bound(D, delta),
            tolerance,
            max_iterations,
            report,
        )
        u = solution.u
        iterations += solution.iterations
        converged = converged and solution.status == "converged"
    u = (u + mean)[..., :H, :W]
    return Solution(u, iterations, solution.residual, "converged" if converged else "max_iterations")


def _levels(H: int, W: int) -> int:
    levels, side = 1, min(H, W)
    while (side := (side + 1) // 2) >= COARSEST_SIDE:
        levels += 1
    return levels


def _at_least_two_pixels(x: Tensor) -> Tensor:
    """Double a single row or column: without a cell there is no tensor, and two equal rows diffuse like one."""
    H, W = x.shape[-2:]
    return x.repeat(1, 1, 2 if H == 1 else 1, 2 if W == 1 else 1)
