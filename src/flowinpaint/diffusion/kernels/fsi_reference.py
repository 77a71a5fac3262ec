"""FSI steps and their adjoint in plain PyTorch: runs on any device, reads like the maths.

Fields are contiguous (B, C, H, W), known (B, 1, H, W) is bool, weights (B, 4, H, W) include the time step. Weights of
None mean 1/4 on every edge to the right and downwards: I + A is then the mean of the four neighbours. The data term
includes the time step too (`DataTerm.scaled`): its weight is τk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm, freedom
from flowinpaint.diffusion.stencil import add_edge_products, divergence, isotropic_weights


def extrapolation_weight(step: int) -> float:
    """γ_l = (4l + 2) / (2l + 3) (Section 2.4)."""
    return (4 * step + 2) / (2 * step + 3)


def diffuse(u: Tensor, data: DataTerm, weights: Tensor | None, tau: Tensor | float, steps: int) -> Tensor:
    """One FSI cycle from u, without gradient; tau is the time step that the weights include."""
    return advance(u, u, data.scaled(tau), weights, range(steps))[1]


def advance(
    previous: Tensor,
    u: Tensor,
    data: DataTerm,
    weights: Tensor | None,
    steps: range,
    iterates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """From u_{l-1} and u_l, l being the first of the steps, to the last two iterates.

    A step: v = γ_l (u_l + A u_l) + (1 - γ_l) u_{l-1}, then the data term. Exact: step 0 writes f where known, and later
    ones keep the values there. Soft: u_{l+1} = f + (v - f) / (1 + γ_l τk). New iterates are also stored in iterates
    (n, B, C, H, W), or all but the last if that has n - 1 entries.
    """
    if weights is None:
        weights = isotropic_weights(u)
    weights, places = weights.to(u.dtype), [] if iterates is None else list(iterates)
    for i, l in enumerate(steps):  # noqa: E741  (the paper's index)
        gamma = extrapolation_weight(l)
        out = places[i] if i < len(places) else torch.empty_like(u)
        torch.lerp(previous, divergence(weights, u).add_(u), gamma, out=out)
        if data.weight is None:
            torch.where(data.known, u if l else data.f, out, out=out)
        else:
            out.sub_(data.f).mul_(freedom(data.weight, gamma)).add_(data.f)
        previous, u = u, out
    return previous, u


def retreat(
    g: Tensor,
    later: Tensor | None,
    known: Tensor,
    weights: Tensor,
    steps: range,
    u: Tensor | None,
    iterates: Tensor | None,
    grad_weights: Tensor | None,
    grad_f: Tensor | None,
    soft: SoftAdjoint | None = None,
) -> tuple[Tensor, Tensor]:
    """Propagate the gradient back through the steps l = a to b - 1: from dL/du_b and s_{b+1} to dL/du_a and s_{a+1}.

    s_l is the part of dL/du_l that passes the data term of step l - 1: the unknown part if exact. `later` is s_{b+1},
    None at the end of the cycle. dL/du_l = γ_l (s + A s) + (1 - γ_{l+1}) s' with s = s_{l+1} and s' = s_{l+2}; the
    start u_0 is its own predecessor: s + γ_0 A s + (1 - γ_1) s'. For l > 0 the result is s_l, and the rest of dL/du_l
    is added to grad_f unless that is None. grad_weights, unless None, accumulates γ_l Σ_channels (s_p - s_q)(u_q - u_p)
    on the edges pq, with u_a in u, later ones in iterates. soft: the adjoint of a soft data term; g is then s_b.
    """
    s = g.masked_fill(known, 0) if soft is None else g
    for l in reversed(steps):  # noqa: E741
        gamma = extrapolation_weight(l)
        u_l = u if l == steps.start or iterates is None else iterates[l - steps.start - 1]
        if grad_weights is not None:
            assert u_l is not None
            add_edge_products(grad_weights, s, u_l, gamma)
        g = divergence(weights, s).mul_(gamma).add_(s, alpha=gamma if l else 1)
        if later is not None:
            g.add_(later, alpha=1 - extrapolation_weight(l + 1))
        later = s
        if l == 0:
            s = g
        elif soft is not None:
            assert u_l is not None
            s = soft.pass_through(g, u_l, l)
        else:
            if grad_f is not None:
                grad_f.add_(torch.where(known, g, 0))
            s = g.masked_fill_(known, 0)
    assert later is not None
    return s, later


class SoftAdjoint:
    """The adjoint of the soft data term: u_l = f + S (v - f) with S = 1 / (1 + γτk) and γ that of step l - 1.

    dL/dv = S dL/du_l, dL/df = (1 - S) dL/du_l and dL/d(τk) = -γ S Σ_channels dL/du_l (u_l - f), summed over the steps.
    """

    def __init__(self, f: Tensor, weight: Tensor) -> None:
        self.f, self.weight = f, weight
        self.grad_f, self.grad_weight = torch.zeros_like(f), torch.zeros_like(weight)

    def pass_through(self, g: Tensor, u_l: Tensor, l: int) -> Tensor:  # noqa: E741
        """From dL/du_l to s_l = dL/dv."""
        gamma = extrapolation_weight(l - 1)
        s = freedom(self.weight, gamma) * g
        self.grad_f.add_(g).sub_(s)
        self.grad_weight.sub_((s * (u_l - self.f)).sum(1, keepdim=True), alpha=gamma)
        return s
