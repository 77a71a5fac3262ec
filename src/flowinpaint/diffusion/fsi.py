"""Fast Semi-Iterative scheme of Hafner, Ochs, Weickert, Reißel and Grewenig (2016): extrapolated explicit steps.

A cycle of L steps smooths like about L²/3 plain explicit steps, and is stable wherever those are: on an eigenvalue
cos θ of I + τA, the first l steps of a cycle multiply by sin((2l+1) θ/2) / ((2l+1) sin(θ/2)), never more than one.

The data term is implicit, so that weights of any size are stable: with the explicit proposal v of a step,

    u_{l+1} = (v + γ_l τk f) / (1 + γ_l τk),

which is f for infinite weights k, v for zero ones, and has the minimiser of the energy in `data_term` as fixed point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm, bind, data_term, residual
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
    data_weight: Tensor | None = None,
) -> Tensor:
    """One FSI cycle of inpainting: u, f (B, C, H, W), c (B, 1, H, W), weights (B, 4, H, W), tau (B, 1, 1, 1).

    u_{l+1} = (1 - c) (γ_l (u_l + τ A u_l) + (1 - γ_l) u_{l-1}) + c f, with u_{-1} = u_0; any c > 0 is treated as 1.
    data_weight (B, 1, H, W): weights k of the given vectors, for a soft data term; without it all are exact.
    Differentiable, once, with respect to u, f, weights, tau and data_weight. The gradient of the weights needs one
    stored iterate per step; a segment length S reduces this to about 2 steps/S + S, but computes each step twice.
    """
    data = data_term(f, c, data_weight, "data_weight").scaled(tau)
    return inpainting_cycle(u, data, tau * weights, steps, segment)


def fsi_cycle_of(operators: Sequence[Operator], u: Tensor, data: DataTerm, tau: Tensor | float) -> Tensor:
    """One FSI cycle whose step l applies operators[l] in place of τA.

    A pure function, differentiable by PyTorch's own graph: the oracle of `fsi_cycle`.
    """
    previous = u
    for l, A in enumerate(operators):  # noqa: E741  (the paper's index)
        gamma = extrapolation_weight(l)
        proposal = torch.lerp(previous, u + A(u), gamma)
        previous, u = u, bind(proposal, data, gamma * tau)
    return u


@torch.no_grad()
def step_to_steady(
    u: Tensor,
    data: DataTerm,
    weights: Tensor,
    tau: Tensor,
    tolerance: float,
    max_iterations: int,
    report: Callable[[int, float], None] | None = None,
) -> Solution:
    """FSI cycles on one image until ‖r(u)‖ ≤ tolerance · ‖(1-c) A c f‖, the residual of an empty start.

    r is `data_term.residual`, A u at unknown pixels. Slow modes need long cycles and fast ones short cycles, so the
    length is doubled after a cycle that gained little. After each cycle `report` is called with the iterations so far
    and the relative residual.
    """
    given = torch.where(data.known, data.f, 0)
    data = data._replace(f=given)

    def norm_of_residual(u: Tensor) -> float:
        r = residual(divergence(weights, u), u, data, tau)
        return float(torch.linalg.vector_norm(r.double()))

    u = bind(u, data)
    scale = norm_of_residual(given)
    if scale == 0:  # no flux leaves the known pixels, so zero is the steady state of the others
        return Solution(given, 0, 0.0, "converged")
    found = norm_of_residual(u)
    iterations, length = 0, 16
    while found > tolerance * scale and iterations < max_iterations:
        length = min(length, max_iterations - iterations)
        u = inpainting_cycle(u, data.scaled(tau), tau * weights, length)
        iterations += length
        before, found = found, norm_of_residual(u)
        if report:
            report(iterations, found / scale)
        if found > 0.3 * before:
            length *= 2
    status: Status = "converged" if found <= tolerance * scale else "max_iterations"
    return Solution(u, iterations, found / scale, status)
