"""Photometric evidence: whether the surroundings of a pixel look like those of the pixel its vector points to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

RADII = (2, 5)
"""Radii in px of the square patches that are compared."""
_LUMA = (0.299, 0.587, 0.114)
_FLAT = 1e-5
"""Variance of grey values below which a patch has no texture; it then correlates with any flat patch."""


def patch_correlations(first: Tensor, second: Tensor, place: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    """Compare patches of the first image with those that several vectors per point lead to in the second.

    first, second (1, 3, H, W) in [0, 1]; place (N, 2): row and column; vectors: V tensors (N, 2) of flow (x, y) in px.
    Returns (N, 2V + 3): per radius the normalised correlations of all V, in [-1, 1], and the logarithm of the contrast
    of the first patch; last, 1 if the first vector ends inside the second image, else 0. Normalised correlation ignores
    changes of brightness and contrast.
    """
    a, b = grey(first), grey(second)
    columns = []
    for radius in RADII:
        steps = torch.arange(-radius, radius + 1.0)
        patch = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2)
        here, contrast = _centred(sample(a, place[:, None] + patch))
        for v in vectors:
            there, other = _centred(sample(b, (place + v.flip(-1))[:, None] + patch))
            covariance = (here * there).mean(1)
            columns.append((covariance + _FLAT) / torch.sqrt((contrast + _FLAT) * (other + _FLAT)))
        columns.append(torch.log10(contrast + _FLAT) / 2)
    end = place + vectors[0].flip(-1)
    size = torch.tensor(b.shape[-2:])
    columns.append(((end >= 0) & (end <= size - 1)).all(1).float())
    return torch.stack(columns, 1)


def grey(image: Tensor) -> Tensor:
    """The luminance (1, 1, H, W) of an image (1, 3, H, W)."""
    return (image * image.new_tensor(_LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)


def sample(image: Tensor, place: Tensor) -> Tensor:
    """Bilinear samples (N, P) of an image (1, 1, H, W) at rows and columns (N, P, 2); the border is repeated."""
    size = place.new_tensor(image.shape[-2:])
    grid = ((2 * place + 1) / size - 1).flip(-1)
    return F.grid_sample(image, grid[None], padding_mode="border", align_corners=False)[0, 0]


def _centred(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Patches (N, P) minus their means, and their variances (N,)."""
    patches = patches - patches.mean(1, keepdim=True)
    return patches, patches.square().mean(1)
