"""Harmonic inpainting: Δu = 0 between the known pixels."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from flowinpaint.diffusion.steady import solve_steady
from flowinpaint.progress import solver_share
from flowinpaint.result import Progress, ProgressCallback, Solution


def harmonic(
    image: Tensor,
    flow: Tensor,
    mask: Tensor,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    weight: Tensor | None = None,
    progress: ProgressCallback | None = None,
) -> Solution:
    """The steady state of the five-point Laplacian: smooth, and independent of the image.

    flow (1, C, H, W); mask (1, 1, H, W); weight (1, 1, H, W): weight of each given vector, by default infinite (exact).
    """
    B, _, H, W = flow.shape
    edges = flow.new_zeros(B, 4, H, W)
    edges[:, 0, :, : W - 1] = 1
    edges[:, 1, : H - 1] = 1
    solution = fill_steady(flow, mask, edges, weight, progress, tolerance=tolerance, max_iterations=max_iterations)
    return within_range(solution, flow, mask)


def within_range(solution: Solution, f: Tensor, c: Tensor) -> Solution:
    """Clamp each channel to the range of its known values, which the steady state of positive edges never leaves.

    A solver that stops at its tolerance may: with weights that span six orders of magnitude by a per cent.
    """
    low, high = (torch.where(c > 0, f, sign * torch.inf) for sign in (1, -1))
    return replace(solution, u=solution.u.clamp(low.amin((2, 3), keepdim=True), high.amax((2, 3), keepdim=True)))


def fill_steady(
    f: Tensor,
    c: Tensor,
    edges: Tensor,
    weight: Tensor | None,
    progress: ProgressCallback | None,
    *,
    tolerance: float,
    max_iterations: float,
) -> Solution:
    """The steady state of `diffusion.steady`, with its progress reported as that of a single level."""

    def report(iterations: int, residual: float) -> None:
        if progress:
            progress(Progress(1, 1, iterations, residual, solver_share(residual, tolerance)))

    limits = {"tolerance": tolerance, "max_iterations": max_iterations}
    return solve_steady(f, c, edges, data_weight=weight, report=report, **limits)
