"""Solver for the steady state of diffusion inpainting: A u + k (f - u) = 0, with u = f where k is infinite.

`solve_steady` is conjugate gradients preconditioned by a multigrid V-cycle, for any edge weights whose graph Laplacian
is positive semi-definite: the anisotropic scheme of `stencil`, with its negative weights, and graphs with positive
weights. `steady_state` is the same as a differentiable function of f, of the edge weights and of the data weights k, by
the implicit-function theorem.

The unknown is x = u - f̃, where f̃ is f at given pixels and their mean m elsewhere: (-A + k) x = A f̃. Its right-hand
side does not contain k, so weights of any size are handled the same way; infinite ones are the limit x = 0.

The iteration runs in float32, where a 2D image's fields stay in the cache, and is corrected by residuals computed in
float64: x is accumulated in float64, and whenever the residual has fallen a hundredfold it is replaced by the true one
(van der Vorst and Ye, 2000). The search direction is kept, so nothing restarts. If weights span more than float32 can
resolve, this does not converge, and the iteration continues in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from flowinpaint.diffusion.data_term import DataTerm, data_term
from flowinpaint.diffusion.kernels import multigrid_reference as reference
from flowinpaint.diffusion.kernels.recording import record
from flowinpaint.diffusion.multigrid import Multigrid, build_multigrid, inner, pad
from flowinpaint.diffusion.stencil import EDGES, add_edge_products, check_shapes, divergence
from flowinpaint.errors import InputError
from flowinpaint.result import Solution, Status

Report = Callable[[int, float], None]
_norms = partial(torch.linalg.vector_norm, dim=(2, 3), keepdim=True)

_SINGLE_PRECISION_STEPS = 64
"""Iterations in float32 after which float64 is used: the weights then span more than float32 can resolve."""
_REPLACE_AT = 1e-2
"""Factor by which the residual must fall before it is recomputed."""
_LONGEST_TRUST = 32
"""Iterations after which the residual is recomputed in any case."""
_FUTILE_REPLACEMENTS = 5
"""Consecutive replacements that hardly lowered the true residual, after which the iteration gives up."""
_UNSEEN_STEPS = 2
"""Iterations on the GPU between two checks of the residual."""


@torch.no_grad()
def solve_steady(
    f: Tensor,
    c: Tensor,
    weights: Tensor,
    *,
    data_weight: Tensor | None = None,
    tolerance: float = 1e-6,
    max_iterations: float = 1000,
    report: Report | None = None,
) -> Solution:
    """Solve for u (B, C, H, W): Σ_q w_pq (u_q - u_p) + k_p (f_p - u_p) = 0, and u = f where k is infinite.

    f (B, C, H, W), c (B, 1, H, W) > 0 where a vector is given, weights w (B, 4, H, W) as from `stencil.edge_weights`,
    data_weight k (B, 1, H, W), by default infinite; any floating type. Edges that leave the image are ignored. Each
    channel of each image ends at a residual of at most tolerance · ‖A f̃‖ over the pixels that are not exact, i.e.
    relative to filling with the mean m of the given vectors. Pixels that no path of edges connects to a given one
    become m. `report` gets the iterations so far and the largest relative residual, which the history also lists.
    """
    check_shapes(f, c=(c, 1), weights=(weights, len(EDGES)))
    if not torch.isfinite(weights).all():
        raise InputError("weights must be finite, got infinite values or NaN")
    check_limits(tolerance, max_iterations)
    max_iterations = int(max_iterations)
    data = data_term(f, c, data_weight, "data_weight")
    exact, w = data.exact, weights.double()
    given, binding = torch.where(data.known, data.f, 0).double(), data.binding().double()
    count = binding.sum((2, 3), keepdim=True)
    mean = (given * binding).sum((2, 3), keepdim=True) / torch.where(count > 0, count, 1)
    given = torch.where(data.known, given - mean, 0)
    right = divergence(w, given).masked_fill_(exact, 0)
    x, iterations, history, status = _conjugate_gradients(w, data, right, tolerance, max_iterations, report)
    u = torch.where(exact, f, (x.add_(given).add_(mean)).to(f.dtype))
    return Solution(u, iterations, history[-1], status, tuple(history))


def steady_state(
    f: Tensor,
    c: Tensor,
    weights: Tensor,
    *,
    data_weight: Tensor | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> Tensor:
    """The same u, differentiable with respect to f, weights and data_weight; the backward pass is one more solve.

    With λ the solution of (-A + k) λ = g, zero where exact, for a gradient g at u: dL/df = k λ, or g + A λ where exact,
    dL/dw_pq = Σ_channels (λ_p - λ_q)(u_q - u_p) and dL/dk = Σ_channels λ (f - u). Warns if a solve did not converge.
    """
    u: Tensor = _SteadyState.apply(f, c, weights, data_weight, tolerance, max_iterations)  # type: ignore[no-untyped-call]
    return u


class _SteadyState(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        f: Tensor,
        c: Tensor,
        weights: Tensor,
        data_weight: Tensor | None,
        tolerance: float,
        max_iterations: int,
    ) -> Tensor:
        solution = solve_steady(
            f, c, weights, data_weight=data_weight, tolerance=tolerance, max_iterations=max_iterations
        )
        solution.warn_unless_converged("steady_state")
        ctx.save_for_backward(solution.u, f, c, weights, data_weight)
        ctx.limits = tolerance, max_iterations
        return solution.u

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        u, f, c, weights, data_weight = ctx.saved_tensors  # type: ignore[attr-defined]
        tolerance, max_iterations = ctx.limits  # type: ignore[attr-defined]
        data, w = data_term(f, c, data_weight, "data_weight"), weights.double()
        exact, known = data.exact, data.known
        # An image in which nothing is known is zero for any weights.
        right = g.double().masked_fill(exact | ~known.any(-1, keepdim=True).any(-2, keepdim=True), 0)
        lam, iterations, history, status = _conjugate_gradients(w, data, right, tolerance, max_iterations, None)
        Solution(lam, iterations, history[-1], status).warn_unless_converged("the gradient of steady_state")
        grad_f = torch.where(exact, g + divergence(w, lam).to(g.dtype), 0)
        grad_w, grad_k = torch.zeros_like(w), None
        add_edge_products(grad_w, lam, u.double())
        if (k := _finite_weight(data)) is not None:
            grad_f = torch.where(exact, grad_f, (k * lam).to(g.dtype))
            grad_k = torch.where(known, lam * (data.f - u), 0).sum(1, keepdim=True).to(data_weight.dtype)
        return grad_f, None, grad_w.to(weights.dtype), grad_k, None, None


def _finite_weight(data: DataTerm) -> Tensor | None:
    """The finite data weights k in float64, 0 elsewhere; None if every given vector is exact."""
    return None if data.weight is None else torch.where(data.exact, 0, data.weight).double()


def _conjugate_gradients(
    weights: Tensor, data: DataTerm, right: Tensor, tolerance: float, max_iterations: int, report: Report | None
) -> tuple[Tensor, int, list[float], Status]:
    """Solve (-A + k) x = right, x = 0 where exact, in float64: x, iterations, relative residuals, status."""
    exact, k = data.exact, _finite_weight(data)
    scale = _norms(right)
    if not (scale > 0).any():  # zero right-hand side, so zero is a solution
        return torch.zeros_like(right), 0, [0.0], "converged"
    right = right / torch.where(scale > 0, scale, 1)

    def begin(r: Tensor, dtype: torch.dtype) -> _Iteration:
        return _Iteration(build_multigrid(weights, exact, right.shape[1], dtype, k), r.to(dtype))

    x, r, norms = torch.zeros_like(right), right, torch.where(scale > 0, 1.0, 0.0)
    iteration, worst = begin(r, torch.float32), 1.0
    history, iterations, replaced, futile = [worst], 0, 0, 0
    while worst > tolerance and iterations < max_iterations and futile < _FUTILE_REPLACEMENTS:
        iterations += iteration.advance(max_iterations - iterations)
        estimate = float(iteration.norm.max())
        too_long = iteration.single and iterations > _SINGLE_PRECISION_STEPS
        due = too_long or iterations == max_iterations or iterations - replaced >= _LONGEST_TRUST
        if due or not estimate > max(0.9 * tolerance, _REPLACE_AT * worst):
            candidate = x + inner(iteration.x)
            candidate_r = right + divergence(weights, candidate)
            if k is not None:
                candidate_r -= k * candidate
            candidate_r.masked_fill_(exact, 0)
            found = _norms(candidate_r)
            better = found < norms  # per channel: one that cannot be solved must not stall the others
            gained = bool(((found < 0.9 * norms) & (norms > tolerance)).any())
            if better.all():
                x, r, norms = candidate, candidate_r, found
            else:
                x, r = torch.where(better, candidate, x), torch.where(better, candidate_r, r)
                norms = torch.where(better, found, norms)
            inner(iteration.r).copy_(r)
            iteration.x.zero_()
            estimate = worst = float(norms.max())
            replaced, futile = iterations, 0 if gained else futile + 1
            if iteration.single and (too_long or not gained):
                iteration, futile = begin(r, torch.float64), 0
        history.append(estimate)
        if report:
            report(iterations, estimate)
    status: Status = "max_iterations" if iterations == max_iterations else "stagnated"
    if worst <= tolerance:
        status = "converged"
    return x * scale, iterations, history, status


class _Iteration:
    """Preconditioned conjugate gradients on padded fields of r's type, from x = 0 and a residual r (B, C, H, W).

    On the CPU every channel of every image iterates separately; on the GPU, where a launch costs more than its
    computation, they iterate together.
    """

    def __init__(self, multigrid: Multigrid, r: Tensor) -> None:
        self.multigrid, self.single = multigrid, r.dtype == torch.float32
        self.r = pad(r)
        self.x, self.p, self.q = (torch.zeros_like(self.r) for _ in range(3))
        self.rz = torch.full_like(self.r[:, :, :1, :1], torch.inf)
        self.norm = torch.ones_like(self.rz)
        fields = (self.x, self.r, self.p, self.q, self.rz, self.norm)
        self._parts = [_Part(multigrid, *fields)]
        if r.device.type == "cpu" and multigrid.kernels is not reference:
            self._parts = [
                _Part(multigrid.part(b, c), *(field[b : b + 1, c : c + 1] for field in fields))
                for b in range(r.shape[0])
                for c in range(r.shape[1])
            ]
        self.graph: torch.cuda.CUDAGraph | None = None

    def advance(self, at_most: int) -> int:
        """Do one iteration, or on the GPU several without checking the residual, and return how many."""
        if self.r.device.type != "cuda" or self.multigrid.kernels is reference:
            self._step()
            return 1
        if self.graph is None:
            self._step()  # compiles the kernels
            self.graph = record(self._step)
            return 1
        steps = min(_UNSEEN_STEPS, at_most)
        for _ in range(steps):
            self.graph.replay()
        return steps

    def _step(self) -> None:
        self.multigrid.kernels.for_each(_Part.step, self._parts)


class _Part(NamedTuple):
    """State of an iteration: its hierarchy, padded fields, and rᵀz and ‖r‖ as (B, C, 1, 1)."""

    multigrid: Multigrid
    x: Tensor
    r: Tensor
    p: Tensor
    q: Tensor
    rz: Tensor
    norm: Tensor

    def step(self) -> None:
        kernels = self.multigrid.kernels
        z = self.multigrid.cycle(self.r)
        rz = kernels.dot(self.r, z)
        kernels.scale_add(self.p, _ratio(rz, self.rz), z)
        self.rz.copy_(rz)
        self.multigrid.apply(self.p, self.q)
        alpha = _ratio(rz, -kernels.dot(self.p, self.q))
        kernels.add_scaled(self.x, alpha, self.p)
        kernels.add_scaled(self.r, alpha, self.q)
        self.norm.copy_(kernels.dot(self.r, self.r).sqrt())


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """The quotient a / b, and zero where b <= 0, for a channel that is already solved."""
    return torch.where(b > 0, a / b, 0)


def check_limits(tolerance: float, max_iterations: float) -> None:
    """Raise InputError unless both limits can end an iteration."""
    if not 0 < tolerance < torch.inf:
        raise InputError(f"tolerance must be a relative residual above 0, got {tolerance}")
    if not max_iterations >= 1 or max_iterations % 1:
        raise InputError(f"max_iterations must be an integer of at least 1, got {max_iterations}")
