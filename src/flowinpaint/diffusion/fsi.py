"""Fast Semi-Iterative scheme of Hafner, Ochs, Weickert, Reißel and Grewenig (2016): extrapolated explicit steps.

A cycle of L steps smooths like about L²/3 plain explicit steps, and is stable wherever those are: on an eigenvalue
cos θ of I + τA, the first l steps of a cycle multiply by sin((2l+1) θ/2) / ((2l+1) sin(θ/2)), never more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.kernels.fsi_reference import extrapolation_weight
from flowinpaint.diffusion.stencil import divergence
from flowinpaint.result import Solution, Status

Operator = Callable[[Tensor], Tensor]


def fsi_cycle(
    u: Tensor,
    f: Tensor,
    c: Tensor,
    weights: Tensor,
    tau: Tensor | float,
    steps: int,
    segment: int | None = None,
) -> Tensor:
    """One FSI cycle of inpainting: u, f (B, C, H, W), c (B, 1, H, W), weights (B, 4, H, W), tau (B, 1, 1, 1).

    u_{l+1} = (1 - c) (γ_l (u_l + τ A u_l) + (1 - γ_l) u_{l-1}) + c f, with u_{-1} = u_0; c > 0 counts as one.
    Differentiable, once, with respect to u, f, weights and tau. For the weights' gradient the iterates are kept, one
    per step; with a segment length S only about 2 steps/S + S of them, and each step is computed twice.
    """
    return inpainting_cycle(u, f, c, tau * weights, steps, segment)


def fsi_cycle_of(operators: Sequence[Operator], u: Tensor, f: Tensor, c: Tensor, tau: Tensor | float) -> Tensor:
    """One FSI cycle whose step l applies operators[l] in the place of A, differentiable by PyTorch's own graph."""
    known = c > 0
    previous = u
    for l, A in enumerate(operators):  # noqa: E741  (the paper's index)
        gamma = extrapolation_weight(l)
        proposal = torch.lerp(previous, u + tau * A(u), gamma)
        previous, u = u, torch.where(known, f, proposal)
    return u


@torch.no_grad()
def step_to_steady(
    u: Tensor,
    f: Tensor,
    c: Tensor,
    weights: Tensor,
    tau: Tensor,
    tolerance: float,
    max_iterations: int,
    report: Callable[[int, float], None] | None = None,
) -> Solution:
    """FSI cycles on one image until ‖(1-c) A u‖ ≤ tolerance · ‖(1-c) A c f‖, the residual of an empty start.

    Slow modes want long cycles and fast ones short, so a cycle that gained little is followed by one twice as long.
    `report` is told the iterations so far and the relative residual after each cycle.
    """
    u = torch.where(c > 0, f, u)
    scale = _norm((1 - c) * divergence(weights, c * f))
    if scale == 0:  # nothing flows out of the known pixels, so zero is the steady state of the others
        return Solution(c * f, 0, 0.0, "converged")
    residual = _norm((1 - c) * divergence(weights, u))
    iterations, length = 0, 16
    while residual > tolerance * scale and iterations < max_iterations:
        length = min(length, max_iterations - iterations)
        u = fsi_cycle(u, f, c, weights, tau, length)
        iterations += length
        before, residual = residual, _norm((1 - c) * divergence(weights, u))
        if report:
            report(iterations, residual / scale)
        if residual > 0.3 * before:
            length *= 2
    status: Status = "converged" if residual <= tolerance * scale else "max_iterations"
    return Solution(u, iterations, residual / scale, status)


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x.double()))
