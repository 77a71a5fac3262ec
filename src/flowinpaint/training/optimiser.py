"""Adam or Muon with gradient clipping and an average of the weights, over one buffer that holds all weights.

The networks have many small tensors. With one buffer, the norm, a step and the average are one pass each. A step that
is not finite is skipped on the device, without synchronisation.

Muon (Jordan et al., 2024) takes orthogonalised steps for the kernels of convolutions. A kernel is a matrix with a row
for each output channel. The step is the matrix nearest to its momentum whose singular values are all equal, times
0.2 √max(rows, columns), so that a weight moves about as far as in a step of Adam with the same rate (Liu et al., 2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from flowinpaint.training.config import OptimiserConfig

EMA_RISE = 10.0
"""In step n the average keeps at most (1 + n) / (EMA_RISE + n) of itself, so that it soon forgets the start."""
COUNTERS = ("loss_sum", "norm_sum", "counted", "updates", "skipped", "skipped_in_row", "last_bad_sample")
_NORM_EPSILON = 1e-6
"""Added to the norm that a gradient is divided by, as in PyTorch's clipping."""
_ALIGNMENT = 64
"""Alignment in elements: tensors start at multiples of it, as if each were allocated separately."""
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the Newton-Schulz polynomial that maps singular values between 0 and 1 to about 1."""
_SIZE_OF_A_STEP = 0.2
"""Root mean square step of a weight, in learning rates."""
_EPSILON = 1e-7


@dataclass
class Statistics:
    """Means over the finite steps since the last reading, None without any, and counts of skipped steps."""

    loss: float | None
    grad_norm: float | None
    skipped: int
    """Steps of the whole run that were not finite."""
    skipped_in_row: int
    last_bad_sample: int
    """The first sample of the joint batch that was skipped last; 0 if there was none."""


class Update(NamedTuple):
    """Factors of one step, each ()."""

    finite: Tensor
    """True if loss and gradient are finite, so that the step is done."""
    clipping: Tensor
    """Divisor that clips the gradient."""
    first_correction: Tensor
    second_correction: Tensor
    """Adam's bias corrections 1 - βᵗ."""
    ema_gain: Tensor
    """Share of the new weights in their average."""


def count(sums: Tensor, counts: Tensor, loss: Tensor, norm: Tensor, first: Tensor, options: OptimiserConfig) -> Update:
    """The factors of a step with a loss (), a gradient norm () and a first sample number ().

    sums (2,), since the last reading, and counts (5,), of the whole run, are updated in place: the COUNTERS.
    """
    finite = torch.isfinite(norm) & torch.isfinite(loss)
    sums += torch.where(finite, torch.stack([loss, norm]), 0.0)
    counted, updates, skipped, in_row, last_bad = counts.unbind()
    updates = updates + finite
    in_row = torch.where(finite, 0, in_row + 1)
    last_bad = torch.where(finite, last_bad, first)
    counts.copy_(torch.stack([counted + finite, updates, skipped + ~finite, in_row, last_bad]))
    clipping = ((norm + _NORM_EPSILON) / options.clip).clamp(min=1) if options.clip else torch.ones_like(norm)
    kept = torch.clamp((1 + updates) / (EMA_RISE + updates), max=options.ema)
    first_correction, second_correction = (1 - torch.pow(beta, updates.double()) for beta in options.betas)
    gain = torch.where(finite, 1 - kept, 0.0)
    return Update(finite, clipping, first_correction.float(), second_correction.float(), gain)


class Optimiser:
    """Advances the parameters of a model, and of its average if it has one; their data become views of its buffers."""

    def __init__(self, model: nn.Module, average: nn.Module | None, config: OptimiserConfig) -> None:
        self.config = config
        self.parameters = _kernels_first(model)
        self._averages = list(_kernels_first(average).values()) if average else []
        self._weights = _joined(self.parameters.values())
        self._average = _joined(self._averages) if average else None
        self._gradient, self._first, self._second = (torch.zeros_like(self._weights) for _ in range(3))
        self.rate = torch.zeros((), device=self._weights.device)
        """The learning rate."""
        # Two tensors, so that counting is one operation on each.
        self._sums = torch.zeros(2, dtype=torch.float64, device=self._weights.device)
        self._counts = torch.zeros(5, dtype=torch.int64, device=self._weights.device)
        self._count, self._adam, self._muon, self._decay, self._follow = count, adam, muon, decay, follow
        transposed = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.ConvTranspose2d)}
        kernels = [(p, id(p) in transposed) for p in self.parameters.values() if p.ndim == 4]
        self._kernels = slice(sum(_room(kernel) for kernel, _ in kernels))
        """The part of the buffers that holds the kernels of convolutions."""
        self._even_steps = EvenSteps(kernels) if config.kernels == "muon" else None

    def compile_parts(self) -> None:
        """Compile the functions that a step calls, in place."""
        self._count = torch.compile(count, dynamic=False)
        self._adam, self._muon, self._decay, self._follow = (
            torch.compile(part, dynamic=False) for part in (adam, muon, decay, follow)
        )

    def forget_gradients(self) -> None:
        """Let the next backward pass write gradients instead of adding to them."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def advance(
        self,
        loss: Tensor,
        first: Tensor,
        join: Callable[[Tensor], Tensor] | None = None,
        constrain: Callable[[], None] | None = None,
    ) -> Update:
        """Clip the gradients, update weights and average unless loss () or gradient are not finite, and count.

        first: the first sample number () of the joint batch. join: averages the gradient (n,) over processes, if the
        backward pass has not done so. constrain: called after the update of the weights, before that of the average.
        """
        views = _views(self._gradient, self.parameters.values())
        pairs = [(view, p.grad) for view, p in zip(views, self.parameters.values(), strict=True) if p.grad is not None]
        torch._foreach_copy_([view for view, _ in pairs], [grad for _, grad in pairs])
        if join:
            self._gradient.copy_(join(self._gradient))
        if self.config.l2:
            self._gradient[self._kernels].add_(self._weights[self._kernels], alpha=self.config.l2)
        norm = torch.linalg.vector_norm(self._gradient)
        update = self._count(self._sums, self._counts, loss, norm, first, self.config)
        self._step(update)
        if constrain:
            constrain()
        if self._average is not None:
            self._follow(self._average, self._weights, update)
        return update

    def _step(self, update: Update) -> None:
        """Update the weights with the gathered gradients: the kernels by Muon if configured, all else by Adam."""
        options, kernels, rest, rate = self.config, self._kernels, slice(0, None), self.rate
        if self._even_steps is not None:
            rest, rate = slice(kernels.stop, None), self.rate * (options.muon_lr / options.lr)
        if options.weight_decay:
            self._decay(self._weights[kernels], update, rate, options.weight_decay)
        if self._even_steps is not None:
            muons = self._weights[kernels], self._first[kernels], self._gradient[kernels]
            self._muon(*muons, update, rate, options.momentum, self._even_steps)
        adams = self._weights[rest], self._first[rest], self._second[rest], self._gradient[rest]
        self._adam(*adams, update, self.rate, options.betas, options.eps)

    def note_change(self) -> None:
        """Increment the weights' version counters, by which caches elsewhere detect changed weights.

        Neither a graph replay nor a write to the buffers increments the counters of the tensors that view them.
        """
        torch.autograd.graph.increment_version([*self.parameters.values(), *self._averages])

    def state(self) -> dict[str, Tensor]:
        """Weights, moments and counters by name; the tensors themselves, not copies."""
        buffers = {"weights": self._weights, "adam.exp_avg": self._first, "adam.exp_avg_sq": self._second}
        state = {
            f"{what}.{name}": view
            for what, buffer in buffers.items()
            for name, view in zip(self.parameters, _views(buffer, self.parameters.values()), strict=True)
        }
        counted = zip(COUNTERS, (*self._sums.unbind(), *self._counts.unbind()), strict=True)
        return state | {f"counters.{name}": value for name, value in counted}

    def read_statistics(self) -> Statistics:
        """Wait for the device, read the statistics since the last reading, and reset the sums."""
        loss_sum, norm_sum = self._sums.tolist()
        counted, _, *skipped = self._counts.tolist()
        self._sums.zero_()
        self._counts[0].zero_()
        return Statistics(loss_sum / counted if counted else None, norm_sum / counted if counted else None, *skipped)


def adam(
    weights: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    update: Update,
    rate: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One step of Adam (Kingma and Ba, 2015) on flat buffers (n,), in place, if it is finite.

    first, second: running means of the gradient and of its square.
    """
    g = gradient / update.clipping
    m = torch.lerp(first, g, 1 - betas[0])
    v = betas[1] * second + (1 - betas[1]) * g * g
    slope = torch.sqrt(v) / torch.sqrt(update.second_correction) + eps
    new = weights - rate / update.first_correction * m / slope
    for old, value in ((weights, new), (first, m), (second, v)):
        old.copy_(torch.where(update.finite, value, old))


def muon(
    weights: Tensor,
    average: Tensor,
    gradient: Tensor,
    update: Update,
    rate: Tensor,
    momentum: float,
    even_steps: Callable[[Tensor], Tensor],
) -> None:
    """One step of Muon on flat buffers (n,) of kernels, in place, if it is finite.

    average: the running mean of the gradients; Nesterov momentum adds the newest gradient once more.
    """
    g = gradient / update.clipping
    new = torch.lerp(average, g, 1 - momentum)
    step = rate * even_steps(torch.lerp(g, new, momentum))
    for old, value in ((weights, weights - step), (average, new)):
        old.copy_(torch.where(update.finite, value, old))


class EvenSteps:
    """Maps the momentum of kernels in one buffer (n,) to their step, also (n,)."""

    def __init__(self, kernels: Sequence[tuple[Tensor, bool]]) -> None:
        """Kernels (·, ·, k, k) in the order of the buffer, and whether each is of a transposed convolution."""
        length = sum(_room(kernel) for kernel, _ in kernels)
        device = kernels[0][0].device if kernels else torch.device("cpu")
        groups: dict[int, list[Tensor]] = {}
        for (_, transposed), places in zip(kernels, _views(torch.arange(length), [k for k, _ in kernels]), strict=True):
            matrix = (places.transpose(0, 1) if transposed else places).flatten(1)
            matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
            groups.setdefault(len(matrix), []).append(matrix)
        stacks = [_stacked(matrices, length) for matrices in groups.values()]
        places = torch.cat([places.flatten() for places, _ in stacks]) if stacks else torch.arange(0)
        back = torch.full((length + 1,), len(places))
        back[places] = torch.arange(len(places))
        back[length] = len(places)  # the padding entry
        self._back = back[:length].to(device)
        self._stacks = [(places.to(device), scale.to(device)) for places, scale in stacks]
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def __call__(self, momentum: Tensor) -> Tensor:
        """The step (n,) for a momentum (n,), zero outside the kernels."""
        nothing = momentum.new_zeros(1)
        source = torch.cat([momentum, nothing])
        steps = [
            (orthogonal(source[places].to(self._dtype)).float() * scale).flatten() for places, scale in self._stacks
        ]
        return torch.cat([*steps, nothing])[self._back]


def _stacked(matrices: list[Tensor], padding: int) -> tuple[Tensor, Tensor]:
    """Index matrices with the same number of rows, stacked (k, rows, columns), and their step scales (k, 1, 1)."""
    places = nn.utils.rnn.pad_sequence([matrix.T for matrix in matrices], True, padding).mT
    scale = torch.tensor([_SIZE_OF_A_STEP * math.sqrt(max(matrix.shape)) for matrix in matrices])
    return places.contiguous(), scale.view(-1, 1, 1)


def orthogonal(matrices: Tensor) -> Tensor:
    """Map matrices (k, m, n), m ≤ n, to matrices with the same singular vectors and singular values of about 1.

    Zero matrices stay zero, as do the rows and columns of zeros that pad matrices to one size.
    """
    a, b, c = COEFFICIENTS
    norm = torch.linalg.vector_norm(matrices.float(), dim=(1, 2), keepdim=True)
    X: Tensor = matrices / (norm + _EPSILON).to(matrices.dtype)
    for _ in range(ITERATIONS):
        A = X @ X.mT
        X = a * X + (b * A + c * (A @ A)) @ X
    return X


def decay(weights: Tensor, update: Update, rate: Tensor, share: float) -> None:
    """Subtract rate · share of flat weights (n,), in place, if the step is finite."""
    weights.mul_(torch.where(update.finite, 1 - rate * share, 1.0))


def follow(average: Tensor, weights: Tensor, update: Update) -> None:
    """Move an average (n,) towards the weights (n,), in place."""
    average.add_((weights - average) * update.ema_gain)


def _kernels_first(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, the kernels of convolutions before all others."""
    return dict(sorted(model.named_parameters(), key=lambda item: item[1].ndim != 4))


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    """A buffer (n,) with the content of the tensors, which become views of it."""
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
