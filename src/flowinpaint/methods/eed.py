"""Edge-enhancing diffusion inpainting: linear, driven by the image, to the steady state."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.steady import check_limits
from flowinpaint.diffusion.stencil import cell_delta, edge_weights, stable_beta, time_step_bound
from flowinpaint.diffusion.tensor import edge_enhancing_tensor
from flowinpaint.errors import InputError
from flowinpaint.methods.linear_solvers import fill_by_steps, fill_steady
from flowinpaint.result import ProgressCallback, Solution

TUNED_LAMBDA = 1e-4
TUNED_ALPHA = {0.01: 0.42, 0.05: 0.3, 0.10: 0.1}
"""α by mask density. Both are the results of the paper's grid search (its Table 6)."""

MAX_ITERATIONS = {"multigrid": 1000, "fsi": 100_000}
"""By solver: an iteration of one costs about a hundred times that of the other."""


def tuned_alpha(density: float) -> float:
    """α for a share of known pixels: linear in the log density between the tuned values, constant beyond."""
    tuned = sorted(TUNED_ALPHA.items())
    return float(np.interp(math.log(density), [math.log(d) for d, _ in tuned], [alpha for _, alpha in tuned]))


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
    weight (1, 1, H, W): how strongly each given vector binds, with diffusivities up to 1; exactly by default.
    """
    if not 1e-12 <= lam <= 1e12:
        raise InputError(f"lam must be a contrast parameter from 1e-12 to 1e12, got {lam}.")
    if alpha is not None and not 0 <= alpha <= 0.5:
        raise InputError(f"alpha must be in [0, 0.5], got {alpha}.")
    side = max(image.shape[-2:])
    if not 0 <= rho <= side:
        raise InputError(f"rho must be a standard deviation from 0 to the image's {side} pixels, got {rho}.")
    if solver not in MAX_ITERATIONS:
        raise InputError(f"solver must be {' or '.join(MAX_ITERATIONS)}, got {solver!r}.")
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
        data = data_term(flow, mask, weight)
        solution = fill_by_steps(image, data, operator, tolerance, int(limit), progress)
    else:
        solution = fill_steady(flow, mask, operator(image)[0], weight, tolerance, limit, progress)
    return replace(solution, u=solution.u[..., :H, :W])


def _at_least_two_pixels(x: Tensor) -> Tensor:
    """Double a single row or column: without a cell there is no tensor, and two equal rows diffuse like one."""
    H, W = x.shape[-2:]
    return x.repeat(1, 1, 2 if H == 1 else 1, 2 if W == 1 else 1)
