"""Muon (Jordan et al., 2024): orthogonalised steps for the kernels of convolutions.

A kernel is a matrix with a row for each output channel. The step is the matrix nearest to its momentum whose singular
values are all equal, times 0.2 √max(rows, columns), so that a weight moves about as far as in a step of Adam with the
same rate (Liu et al., 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the Newton-Schulz polynomial that maps singular values between 0 and 1 to about 1."""
_SIZE_OF_A_STEP = 0.2
"""Root mean square step of a weight, in learning rates."""
_EPSILON = 1e-7


def is_kernel(parameter: Tensor) -> bool:
    """Whether a parameter is the kernel of a convolution."""
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
        self._groups = [_Group(matrices, length) for matrices in groups.values()]
        back = torch.full((length + 1,), sum(group.places.numel() for group in self._groups))
        first = 0
        for group in self._groups:
            places = group.places.flatten()
            back[places] = torch.arange(first, first + len(places))
            first += len(places)
        back[length] = first  # the padding entry
        self._back = back[:length].to(device)
        for group in self._groups:
            group.to(device)
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def __call__(self, momentum: Tensor) -> Tensor:
        """The step (n,) for a momentum (n,), zero outside the kernels."""
        nothing = momentum.new_zeros(1)
        source = torch.cat([momentum, nothing])
        steps = [(orthogonal(source[g.places].to(self._dtype)).float() * g.scale).flatten() for g in self._groups]
        return torch.cat([*steps, nothing])[self._back]


class _Group:
    """Kernels with equally many rows, stacked: places (k, rows, columns) in the buffer, scales (k, 1, 1)."""

    def __init__(self, matrices: list[Tensor], nothing: int) -> None:
        columns = max(matrix.shape[1] for matrix in matrices)
        self.places = torch.full((len(matrices), len(matrices[0]), columns), nothing)
        for k, matrix in enumerate(matrices):
            self.places[k, :, : matrix.shape[1]] = matrix
        sizes = [_SIZE_OF_A_STEP * math.sqrt(max(matrix.shape)) for matrix in matrices]
        self.scale = torch.tensor(sizes).view(-1, 1, 1)

    def to(self, device: torch.device) -> None:
        """Move to a device."""
        self.places, self.scale = self.places.to(device), self.scale.to(device)


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
