"""The steps of an FSI cycle and of its adjoint in plain PyTorch: runs on any device, reads like the maths.

Fields are contiguous (B, C, H, W), known (B, 1, H, W) is bool, weights (B, 4, H, W) have the time step in them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flowinpaint.diffusion.stencil import EDGES, divergence, edge_ends


def extrapolation_weight(step: int) -> float:
    """γ_l = (4l + 2) / (2l + 3) (Section 2.4)."""
    return (4 * step + 2) / (2 * step + 3)


def advance(u: Tensor, previous: Tensor, held: Tensor, known: Tensor, weights: Tensor, step: int, out: Tensor) -> None:
    """Write u_{l+1} to `out`, which may be `previous`: `held` where known, else γ_l (u + A u) + (1 - γ_l) previous."""
    torch.lerp(previous, divergence(weights, u).add_(u), extrapolation_weight(step), out=out)
    torch.where(known, held, out, out=out)


def retreat(
    s: Tensor, later: Tensor | None, known: Tensor, weights: Tensor, step: int, out: Tensor, grad_f: Tensor | None
) -> None:
    """Take the gradient from u_{l+1} back to u_l: s = (1 - c) dL/du_{l+1}, later = (1 - c) dL/du_{l+2}, if there is.

    dL/du_l = γ_l (s + A s) + (1 - γ_{l+1}) later. For l > 0 its unknown part is written to `out` and its known part
    added to grad_f, where wanted. The start u_0 is its own predecessor and free everywhere: all of
    s + γ_0 A s + (1 - γ_1) later is written.
    """
    gamma = extrapolation_weight(step)
    g = divergence(weights, s).mul_(gamma).add_(s, alpha=gamma if step else 1)
    if later is not None:
        g.add_(later, alpha=1 - extrapolation_weight(step + 1))
    if step and grad_f is not None:
        grad_f.add_(torch.where(known, g, 0))
    out.copy_(g.masked_fill_(known, 0) if step else g)


def weight_gradient(ring: Tensor, iterates: Tensor, first: int, out: Tensor, accumulate: bool) -> None:
    """Write, or add, the weights' gradient of the n steps from l = first to `out` (B, 4, H, W).

    It is Σ_l γ_l Σ_channels (s_p - s_q)(u_q - u_p) on the edge pq, with u_l in iterates (n, B, C, H, W) and
    s = (1 - c) dL/du_{l+1} in ring (R, B, C, H, W) at slot (l + 1) mod R.
    """
    H, W = out.shape[-2:]
    if not accumulate:
        out.zero_()
    for step, u in enumerate(iterates, first):
        s = ring[(step + 1) % len(ring)]
        for k in range(len(EDGES)):
            near, far = edge_ends(k, H, W)
            product = (s[near] - s[far]).mul_(u[far] - u[near]).sum(1)
            out[:, k][near].add_(product, alpha=extrapolation_weight(step))
