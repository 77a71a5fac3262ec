"""Adam or Muon with clipping, and an average of the weights, over one buffer that holds all weights of a network.

A network of this kind has many small tensors. Laid side by side, the norm, a step and the average are a pass each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from flowinpaint.training.config import OptimiserConfig
from flowinpaint.training.muon import EvenSteps, is_kernel
from flowinpaint.training.tally import Verdict

_ALIGNMENT = 64
"""Numbers; tensors begin at multiples of it, as if each had been allocated by itself."""


class Moments(NamedTuple):
    """Adam's averages of the gradient and of its square, flat, (n,)."""

    first: Tensor
    second: Tensor


class Optimiser:
    """Advances the parameters of a model and of its average, whose data become views of this object's buffers."""

    def __init__(self, model: nn.Module, average: nn.Module, config: OptimiserConfig) -> None:
        self.config = config
        self.parameters = dict(_kernels_first(model))
        self._averages = list(dict(_kernels_first(average)).values())
        self._weights = _side_by_side(self.parameters.values())
        self._average = _side_by_side(self._averages)
        self._gradient, *moments = (torch.zeros_like(self._weights) for _ in range(3))
        self._moments = Moments(*moments)
        self.rate = torch.zeros((), device=self._weights.device)
        """The learning rate."""
        self._adam, self._muon, self._shrink, self._follow = adam, muon, shrink, follow
        transposed = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.ConvTranspose2d)}
        kernels = [(p, id(p) in transposed) for p in self.parameters.values() if is_kernel(p)]
        starts = list(accumulate((_room(kernel) for kernel, _ in kernels), initial=0))
        self._kernels = slice(starts.pop())
        """The part of the buffers where the kernels of convolutions lie."""
        self._even_steps = EvenSteps(kernels, starts, self._kernels.stop) if config.kernels == "muon" else None

    def compile_parts(self) -> None:
        """Compile, in place, what is done for every weight."""
        self._adam, self._muon, self._shrink, self._follow = (
            torch.compile(part, dynamic=False) for part in (adam, muon, shrink, follow)
        )

    def forget_gradients(self) -> None:
        """Let the next backward pass write gradients instead of adding to them."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def gather_gradients(self, joined: Callable[[Tensor], Tensor] = lambda gradient: gradient) -> Tensor:
        """Take what backward has left in the parameters, add that of the L2 term, and return the norm ().

        joined: makes the gradient (n,) of one process that of all, where backward has not done so.
        """
        views = _views(self._gradient, self.parameters.values())
        pairs = [(view, p.grad) for view, p in zip(views, self.parameters.values(), strict=True) if p.grad is not None]
        torch._foreach_copy_([view for view, _ in pairs], [grad for _, grad in pairs])
        self._gradient.copy_(joined(self._gradient))
        if self.config.l2:
            self._gradient[self._kernels].add_(self._weights[self._kernels], alpha=self.config.l2)
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        return norm

    def step(self, verdict: Verdict) -> None:
        """A step with the gathered gradients, if they are good: Muon's of the kernels if it is chosen, else Adam's."""
        options, kernels, rest, rate = self.config, self._kernels, slice(0, None), self.rate
        if self._even_steps is not None:
            rest, rate = slice(kernels.stop, None), self.rate * (options.muon_lr / options.lr)
        if options.weight_decay:
            self._shrink(self._weights[kernels], verdict, rate, options.weight_decay)
        if self._even_steps is not None:
            buffers = self._weights[kernels], self._moments.first[kernels], self._gradient[kernels]
            self._muon(*buffers, verdict, rate, options.momentum, self._even_steps)
        moments = Moments(*(moment[rest] for moment in self._moments))
        self._adam(self._weights[rest], moments, self._gradient[rest], verdict, self.rate, options.betas, options.eps)

    def average(self, verdict: Verdict) -> None:
        """Let the average follow the weights."""
        self._follow(self._average, self._weights, verdict)

    def note_change(self) -> None:
        """Tell PyTorch that the weights are others: what is made from them elsewhere asks for their version.

        Neither the replay of a graph nor writing to the buffers counts as a change of the tensors that view them.
        """
        torch.autograd.graph.increment_version([*self.parameters.values(), *self._averages])

    def state(self) -> dict[str, Tensor]:
        """Weights and moments by name; the tensors themselves, not copies."""
        buffers = {"weights": self._weights, "adam.exp_avg": self._moments[0], "adam.exp_avg_sq": self._moments[1]}
        return {
            f"{what}.{name}": view
            for what, buffer in buffers.items()
            for name, view in zip(self.parameters, _views(buffer, self.parameters.values()), strict=True)
        }


def adam(
    weights: Tensor,
    moments: Moments,
    gradient: Tensor,
    verdict: Verdict,
    rate: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One step of Adam (Kingma and Ba, 2015) on flat buffers (n,), in place; nothing changes if it is no good."""
    g = gradient / verdict.shrinkage
    first = torch.lerp(moments.first, g, 1 - betas[0])
    second = betas[1] * moments.second + (1 - betas[1]) * g * g
    slope = torch.sqrt(second) / torch.sqrt(verdict.second_share) + eps
    new = weights - rate / verdict.first_share * first / slope
    for old, value in ((weights, new), (moments.first, first), (moments.second, second)):
        old.copy_(torch.where(verdict.good, value, old))


def muon(
    weights: Tensor,
    average: Tensor,
    gradient: Tensor,
    verdict: Verdict,
    rate: Tensor,
    momentum: float,
    even_steps: Callable[[Tensor], Tensor],
) -> None:
    """One step of Muon on flat buffers (n,) of kernels, in place; nothing changes if it is no good.

    average: of the gradients, to which Nesterov's momentum adds the newest once more.
    """
    g = gradient / verdict.shrinkage
    new = torch.lerp(average, g, 1 - momentum)
    step = rate * even_steps(torch.lerp(g, new, momentum))
    for old, value in ((weights, weights - step), (average, new)):
        old.copy_(torch.where(verdict.good, value, old))


def shrink(weights: Tensor, verdict: Verdict, rate: Tensor, decay: float) -> None:
    """Take rate · decay of flat weights (n,) away, in place, unless the step is no good."""
    weights.mul_(torch.where(verdict.good, 1 - rate * decay, 1.0))


def follow(average: Tensor, weights: Tensor, verdict: Verdict) -> None:
    """Move an average (n,) towards the weights (n,), in place."""
    average.add_((weights - average) * verdict.gain)


def _kernels_first(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters by name, the kernels of convolutions before all others."""
    return sorted(model.named_parameters(), key=lambda item: not is_kernel(item[1]))


def _side_by_side(tensors: Iterable[Tensor]) -> Tensor:
    """A buffer (n,) with what is in the tensors, which become views of it."""
    tensors = list(tensors)
    buffer = tensors[0].new_zeros(sum(_room(x) for x in tensors)).detach()
    for x, view in zip(tensors, _views(buffer, tensors), strict=True):
        view.copy_(x.detach())
        x.data = view
    return buffer


def _views(buffer: Tensor, tensors: Iterable[Tensor]) -> list[Tensor]:
    """The parts of a buffer (n,) that belong to the tensors, in their shapes."""
    views, start = [], 0
    for x in tensors:
        views.append(buffer[start : start + x.numel()].view(x.shape))
        start += _room(x)
    return views


def _room(x: Tensor) -> int:
    return -(-x.numel() // _ALIGNMENT) * _ALIGNMENT
