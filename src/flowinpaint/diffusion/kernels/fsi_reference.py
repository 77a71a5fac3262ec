"""The steps of an FSI cycle and of its adjoint in plain PyTorch: runs on any device, reads like the maths.

Fields are contiguous (B, C, H, W), known (B, 1, H, W) is bool, weights (B, 4, H, W) have the time step in them. No
weights means 1/4 on every edge to the right and downwards: I + A is then the mean of the four neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.stencil import EDGES, divergence, edge_ends


def extrapolation_weight(step: int) -> float:
    """γ_l = (4l + 2) / (2l + 3) (Section 2.4)."""
    return (4 * step + 2) / (2 * step + 3)


def diffuse(u: Tensor, known: Tensor, weights: Tensor | None, steps: int) -> Tensor:
    """One FSI cycle from u, which keeps its values where known."""
    return advance(u, u, None, known, weights, range(steps))[1]


def advance(
    previous: Tensor,
    u: Tensor,
    f: Tensor | None,
    known: Tensor,
    weights: Tensor | None,
    steps: range,
    iterates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """From u_{l-1} and u_l, l being the first of the steps, to the last two, n steps on.

    A step: u_{l+1} = γ_l (u_l + A u_l) + (1 - γ_l) u_{l-1}; where known the first puts f in place, if there is one, and
    values stay. The new ones also lie in iterates (n, B, C, H, W); if that has n - 1, all but the last.
    """
    if weights is None:
        weights = u.new_tensor([0.25, 0.25, 0, 0]).view(1, -1, 1, 1).expand(1, -1, *u.shape[-2:])
    weights, places = weights.to(u.dtype), [] if iterates is None else list(iterates)
    for i, l in enumerate(steps):  # noqa: E741  (the paper's index)
        out = places[i] if i < len(places) else torch.empty_like(u)
        torch.lerp(previous, divergence(weights, u).add_(u), extrapolation_weight(l), out=out)
        torch.where(known, u if f is None or i else f, out, out=out)
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
) -> tuple[Tensor, Tensor]:
    """Take the gradient back through the steps from l = a to b - 1: from dL/du_b and s_{b+1} to dL/du_a and s_{a+1}.

    s_l is the unknown part of dL/du_l, `later` is s_{b+1}, if there is one. dL/du_l = γ_l (s + A s) + (1 - γ_{l+1}) s'
    with s = s_{l+1} and s' = s_{l+2}; the start u_0 is its own predecessor: s + γ_0 A s + (1 - γ_1) s'. For l > 0 the
    result has only the unknown part, and the known one is added to grad_f, where wanted. To grad_weights, where wanted,
    are added γ_l Σ_channels (s_p - s_q)(u_q - u_p) on the edges pq, with u_a in u and those after it in iterates.
    """
    H, W = g.shape[-2:]
    s = g.masked_fill(known, 0)
    for l in reversed(steps):  # noqa: E741
        gamma = extrapolation_weight(l)
        if grad_weights is not None:
            assert u is not None
            u_l = u if l == steps.start or iterates is None else iterates[l - steps.start - 1]
            for k in range(len(EDGES)):
                near, far = edge_ends(k, H, W)
                product = (s[near] - s[far]).mul_(u_l[far] - u_l[near]).sum(1)
                grad_weights[:, k][near].add_(product, alpha=gamma)
        g = divergence(weights, s).mul_(gamma).add_(s, alpha=gamma if l else 1)
        if later is not None:
            g.add_(later, alpha=1 - extrapolation_weight(l + 1))
        if l and grad_f is not None:
            grad_f.add_(torch.where(known, g, 0))
        later, s = s, g.masked_fill_(known, 0) if l else g
    assert later is not None
    return s, later
