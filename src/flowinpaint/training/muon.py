"""Muon (Jordan et al., 2024): orthogonalised steps for the kernels of convolutions.

A kernel is a matrix with a row for each output channel. The step is the matrix nearest to its momentum whose singular
values are all equal, times 0.2 √max(rows, columns), so that a weight moves about as far as in a step of Adam with the
same rate (Liu et al., 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the Newton-Schulz polynomial that maps singular values between 0 and 1 to about 1."""
_SIZE_OF_A_STEP = 0.2
"""Root mean square step of a weight, in learning rates."""
_EPSILON = 1e-7


def is_kernel(parameter: Tensor) -> bool:
    """True for the kernel of a convolution."""
    return parameter.ndim == 4


class EvenSteps:
    """Maps the momentum of kernels in one buffer (n,) to their step, also (n,)."""

    def __init__(self, kernels: Iterable[tuple[Tensor, bool]], starts: Iterable[int], length: int) -> None:
        """Kernels (·, ·, k, k), whether each is of a transposed convolution, and their starts in the buffer."""
        groups: dict[int, list[Tensor]] = {}
        device = torch.device("cpu")
        for (kernel, transposed), start in zip(kernels, starts, strict=True):
            device = kernel.device
            places = torch.arange(start, start + kernel.numel()).view(kernel.shape)
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
    """Stack matrices of places with equally many rows (k, rows, columns), and the scales of their steps (k, 1, 1)."""
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
