"""Edge-enhancing diffusion inpainting: linear, driven by the image, to the steady state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from flowinpaint.diffusion.coarse_to_fine import coarse_to_fine
from flowinpaint.diffusion.data_term import DataTerm, data_term, statistics
from flowinpaint.diffusion.fsi import step_to_steady
from flowinpaint.diffusion.pyramid import image_pyramid, push, refine
from flowinpaint.diffusion.steady import check_limits
from flowinpaint.diffusion.stencil import cell_delta, edge_weights, stable_beta, time_step_bound
from flowinpaint.diffusion.tensor import edge_enhancing_tensor
from flowinpaint.errors import InputError
from flowinpaint.methods.harmonic import fill_steady
from flowinpaint.progress import level_share, solver_share
from flowinpaint.result import Progress, ProgressCallback, Solution

TUNED_LAMBDA = 1e-4
TUNED_ALPHA = {0.01: 0.42, 0.05: 0.3, 0.10: 0.1}
"""α by mask density, in ascending order. λ and α are the results of the paper's grid search (its Table 6)."""

MAX_ITERATIONS = {"multigrid": 1000, "fsi": 100_000}
"""Limit by solver: a multigrid iteration costs about a hundred times an FSI step."""
COARSEST_SIDE = 4
"""The pyramid of the explicit solver stops before a level's shorter side falls below this."""


def tuned_alpha(density: float) -> float:
    """α for a density of known pixels: linear in the log density between the tuned values, constant beyond."""
    return float(np.interp(math.log(density), [math.log(d) for d in TUNED_ALPHA], list(TUNED_ALPHA.values())))


def eed(
    image: Tensor,
    flow: Tensor,
    mask: Tensor,
    *,
    lam: float = TUNED_LAMBDA,
    alpha: float | None = None,
    rho: float = 0.5,
    solver: str = "multigrid",
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    weight: Tensor | None = None,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Diffusion along image edges and not across them (Equations 1 to 6 of the paper).

    image (1, 3, H, W) in [0, 1]; flow (1, C, H, W); mask (1, 1, H, W).
    lam: contrast parameter λ of the diffusivity, compared with the structure tensor's eigenvalue, a squared gradient:
    1e-4 separates gradients at about 0.01 per pixel.
    alpha: discretisation parameter, by default `tuned_alpha` of the mask's density.
    rho: standard deviation of the presmoothing in pixels.
    solver: "multigrid" (`diffusion.steady`), or "fsi", explicit steps from coarse to fine as in the paper; both have
    the same steady state.
    max_iterations: by default 1000 cycles or 100,000 steps.
    weight (1, 1, H, W): weight of each given vector, relative to diffusivities up to 1; by default infinite (exact).
    """
    if not 1e-12 <= lam <= 1e12:
        raise InputError(f"lam must be a contrast parameter from 1e-12 to 1e12, got {lam}")
    if alpha is not None and not 0 <= alpha <= 0.5:
        raise InputError(f"alpha must be in [0, 0.5], got {alpha}")
    side = max(image.shape[-2:])
    if not 0 <= rho <= side:
        raise InputError(f"rho must be a standard deviation from 0 to the image's {side} pixels, got {rho}")
    if solver not in MAX_ITERATIONS:
        raise InputError(f"solver must be {' or '.join(MAX_ITERATIONS)}, got {solver!r}")
    chosen_alpha = tuned_alpha(float(mask.mean())) if alpha is None else alpha
    limit = MAX_ITERATIONS[solver] if max_iterations is None else max_iterations
    H, W = flow.shape[-2:]
    image, flow, mask = (_at_least_two_pixels(x) for x in (image, flow, mask))
    weight = None if weight is None else _at_least_two_pixels(weight)

    def operator(level: Tensor) -> tuple[Tensor, Tensor]:
        D = edge_enhancing_tensor(level, lam, rho)
        delta = cell_delta(D, chosen_alpha, stable_beta(D, chosen_alpha))
        return edge_weights(D, delta), time_step_bound(D, delta)

    if solver == "fsi":
        check_limits(tolerance, limit)
        solution = _fill_by_steps(image, data_term(flow, mask, weight), operator, tolerance, int(limit), progress)
    else:
        edges = operator(image)[0]
        solution = fill_steady(flow, mask, edges, weight, progress, tolerance=tolerance, max_iterations=limit)
    return replace(solution, u=solution.u[..., :H, :W])


def _at_least_two_pixels(x: Tensor) -> Tensor:
    """Double a single row or column: without a cell there is no tensor, and two equal rows diffuse like one."""
    H, W = x.shape[-2:]
    return x.repeat(1, 1, 2 if H == 1 else 1, 2 if W == 1 else 1)


def _fill_by_steps(
    image: Tensor,
    data: DataTerm,
    operator: Callable[[Tensor], tuple[Tensor, Tensor]],
    tolerance: float,
    max_iterations: int,
    progress: ProgressCallback | None,
) -> Solution:
    """Explicit steps from coarse to fine, as in the paper: solve A u + k (f - u) = 0.

    A's edge weights and its time step are operator(image) at each level. Every level is solved to `tolerance` and
    starts from the next coarser one; the coarsest starts from the mean of the given vectors. Iterations are summed over
    the levels; the residual is that of the finest, and the status is the worst of all levels.
    """
    # The steady state commutes with adding a constant; subtracting the mean avoids rounding errors of a large offset.
    mean = statistics(torch.where(data.known, data.f, 0), data.binding())[0]
    # Levels halve the sides, rounded up, while the shorter one stays at COARSEST_SIDE or above.
    count = max(1, ((min(image.shape[-2:]) - 1) // (COARSEST_SIDE - 1)).bit_length())
    levels = push(data._replace(f=data.f - mean), count)[::-1]
    images, solutions, history = image_pyramid(image, count), list[Solution](), list[float]()

    def solve(k: int, level: DataTerm, u: Tensor) -> Tensor:
        done = sum(solution.iterations for solution in solutions)

        def report(steps: int, residual: float) -> None:
            history.append(residual)
            if progress:
                share = level_share(k, count, solver_share(residual, tolerance))
                progress(Progress(k + 1, count, done + steps, residual, share))

        solutions.append(step_to_steady(u, level, *operator(images[k]), tolerance, max_iterations, report))
        return solutions[-1].u

    u = coarse_to_fine(levels, torch.zeros_like(levels[0].f), refine, solve)
    worst = next((solution for solution in solutions if solution.status != "converged"), solutions[-1])
    iterations = sum(solution.iterations for solution in solutions)
    return Solution(u + mean, iterations, solutions[-1].residual, worst.status, tuple(history))
