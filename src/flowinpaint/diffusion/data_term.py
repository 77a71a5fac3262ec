"""The data term: the known vectors and the weight of each.

Every method here minimises, over the filled field u,

    Σ_edges w_pq (u_p - u_q)² + Σ_p k_p (u_p - f_p)²        with k = 1/σ² in units of the smoothness term.

A vector of infinite weight k is kept exactly; one of weight zero is unknown. Without weights every given vector is
exact. The data term is then one bit per pixel, `known`, and each kernel has a fast path for it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.errors import InputError

EXACT = 1e20
"""Weights of at least this value count as infinite: in float32 the results are the same."""
RELATIVE_FLOOR = 1e-6
"""Floor of the mean deviation of given vectors relative to their mean: less is the rounding of a constant field."""


class DataTerm(NamedTuple):
    """The given vectors of one grid.

    f (B, C, H, W): the vectors; where unknown, arbitrary values if `weight` is None, else 0.
    known (B, 1, H, W) bool: where a vector is given. weight (B, 1, H, W): k, 0 where unknown, inf where exact; None if
    every given vector is exact.
    """

    f: Tensor
    known: Tensor
    weight: Tensor | None = None

    @property
    def exact(self) -> Tensor:
        """Where u = f holds exactly, (B, 1, H, W) bool."""
        return self.known if self.weight is None else torch.isinf(self.weight)

    def binding(self, tau: float = 0.25) -> Tensor:
        """τk / (1 + τk) in [0, 1], (B, 1, H, W): the fraction of its given vector in a pixel's value after a step τ."""
        if self.weight is None:
            return self.known.to(self.f.dtype)
        k = torch.where(self.exact, 0, self.weight)
        return torch.where(self.exact, 1, tau * k / (1 + tau * k))

    def scaled(self, tau: Tensor | float) -> DataTerm:
        """The data term of a time step τ, which has the weight τk."""
        if self.weight is None:
            return self
        return self._replace(weight=torch.where(self.exact, torch.inf, tau * torch.where(self.exact, 0, self.weight)))


def data_term(f: Tensor, mask: Tensor, weight: Tensor | None = None, name: str = "weight") -> DataTerm:
    """Given vectors f (B, C, H, W) where mask (B, 1, H, W) > 0, with weights k >= 0 (B, 1, H, W) or all exact.

    name: the argument that errors about the weights name.
    """
    known = mask > 0
    if weight is None:
        return DataTerm(f, known)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        got = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise InputError(f"{name} must be a floating-point tensor of shape {tuple(known.shape)}, got {got}")
    if weight.shape != known.shape:
        raise InputError(f"{name} must have shape {tuple(known.shape)}, got {tuple(weight.shape)}")
    if not bool((weight >= 0).all()):
        raise InputError(f"{name} must be at least 0, got negative values or NaN")
    weight = torch.where(known, weight.to(f.dtype), 0)
    known, exact = weight > 0, weight >= EXACT
    if not weight.requires_grad and torch.equal(known, exact):
        return DataTerm(f, known)
    return DataTerm(torch.where(known, f, 0), known, torch.where(exact, torch.inf, weight))


def freedom(weight: Tensor, tau: Tensor | float) -> Tensor:
    """1 / (1 + τk): the fraction of its own value that a pixel keeps in an implicit step τ of the data term."""
    exact = torch.isinf(weight)  # excluded from the quotient, whose gradient for τ would be inf · 0
    return torch.where(exact, 0, 1 / (1 + tau * torch.where(exact, 0, weight)))


def bind(u: Tensor, data: DataTerm, tau: Tensor | float = 0.25) -> Tensor:
    """U after an implicit step of the data term, (u + τk f) / (1 + τk): f where exact, u where unknown."""
    if data.weight is None:
        return torch.where(data.known, data.f, u)
    return data.f + freedom(data.weight, tau) * (u - data.f)


def residual(Au: Tensor, u: Tensor, data: DataTerm, tau: Tensor | float) -> Tensor:
    """(A u + k (f - u)) / (1 + τk): A u where unknown, 0 where exact."""
    if data.weight is None:
        return ~data.known * Au
    free = freedom(data.weight, tau)
    return free * Au + torch.where(data.exact, 0, (1 - free) / tau) * (data.f - u)


def pool(data: DataTerm) -> DataTerm:
    """The data term of the next coarser grid: a weighted mean of each 2×2 block, with the sum of its k as weight.

    The variance of a mean shrinks as vectors are pooled, and in 2D the smoothness term does not change with the grid.
    The mean weights a vector by `binding`: in proportion to k if k is small; large and infinite k count the same.
    A border block pools the pixels it has; f is 0 where nothing is known.
    """
    b = data.binding()
    total = block_sum(b)
    f = block_sum(torch.where(data.known, data.f, 0) * b) / torch.where(total > 0, total, 1)
    return DataTerm(f, total > 0, None if data.weight is None else block_sum(data.weight))


def block_sum(x: Tensor) -> Tensor:
    """Sums over blocks of 2×2 pixels, (B, ·, H, W) → (B, ·, ceil(H/2), ceil(W/2))."""
    H, W = x.shape[-2:]
    return F.avg_pool2d(F.pad(x, (0, W % 2, 0, H % 2)), 2, divisor_override=1)


def statistics(f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and mean absolute deviation of the vectors f (B, C, H, W), weighted by c (B, 1, H, W): (B, C, 1, 1) each."""
    count = c.sum((2, 3), keepdim=True)
    count = torch.where(count > 0, count, 1)
    mean = (f * c).sum((2, 3), keepdim=True) / count
    return mean, ((f - mean).abs() * c).sum((2, 3), keepdim=True) / count


@torch.no_grad()
def centre(data: DataTerm) -> Tensor:
    """The mean of the known vectors of each channel, (B, C, 1, 1).

    Diffusion commutes with adding a constant, so methods subtract it first: otherwise a large offset of the field costs
    digits. The sums of the rows come first, so the result does not depend on the number of threads.
    """
    c = data.known.to(data.f.dtype)
    total = torch.where(data.known, data.f, 0).sum(3).sum(2)[..., None, None]
    return total / c.sum(3).sum(2)[..., None, None].clamp(min=1)
