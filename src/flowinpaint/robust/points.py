"""`Points`: the given vectors of one field as a point set, with their nearest neighbours and their surroundings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial import cKDTree
from torch import Tensor

from flowinpaint.robust.photometric import grey

NEIGHBOURS = 12
"""Neighbours of a point, fewer if there are not as many points."""
MOST_POINTS = 30_000
"""A field with more vectors is thinned to at most this number of points."""
SURROUNDINGS = 5
_WINDOWS = (9, 33)
"""Sides in px of the windows in which the coverage of the mask is counted."""
_REWEIGHTINGS = 3
"""Steps of iteratively reweighted least squares."""
_SLOPE_PENALTY = (1e-3, 0.3, 0.3)
"""Ridge penalty of a local affine fit: on its value, and on its slope per mean distance of the neighbours."""
_SMALLEST_SCALE = 5e-3
"""The least scale of a point set, relative to the spread of its vectors: where most neighbours agree exactly."""


@dataclass(frozen=True)
class Points:
    """N given vectors of a field and their k nearest neighbours in the image plane, on the CPU.

    mask (H, W) bool: where they are, in the order of `mask.nonzero()`. place (N, 2): row and column. vectors (N, C).
    colours (N, 3): mean of the 3×3 pixels around each point. surroundings (N, 5): logarithms of contrast and
    cornerness of the image, of the coverage of all given pixels in two windows, and of the distance to the border.
    neighbours (N, k): indices of other points. distances (N, k): in px, increasing.
    """

    mask: Tensor
    place: Tensor
    vectors: Tensor
    colours: Tensor
    surroundings: Tensor
    neighbours: Tensor
    distances: Tensor

    def __len__(self) -> int:
        return len(self.place)

    @property
    def spacing(self) -> float:
        """The mean distance between points in px, if they were on a grid."""
        return math.sqrt(self.mask.numel() / len(self))

    @cached_property
    def scale(self) -> float:
        """How much neighbours differ: the median over all points of the fourth smallest difference to a neighbour.

        All features are relative to it, so an assessment does not depend on the unit of the field.
        """
        differences = self.differences
        fourth = differences.kthvalue(min(4, differences.shape[1]), dim=1).values.median()
        smallest = max(_SMALLEST_SCALE * self.spread, 1e-6 * float(self.vectors.abs().max()), 1e-30)
        return max(float(fourth), smallest)

    @cached_property
    def spread(self) -> float:
        """The mean distance of a vector from the median vector; it is positive unless all vectors are equal."""
        return float(norm(self.vectors - self.vectors.median(0).values).mean())

    @cached_property
    def differences(self) -> Tensor:
        """Differences between each vector and those of its neighbours, (N, k)."""
        return norm(self.vectors[self.neighbours] - self.vectors[:, None])

    def on_grid(self, values: Tensor) -> Tensor:
        """Values (N,) or (N, C) as a map (1, 1, H, W) or (1, C, H, W), 0 where there is no point."""
        values = values[:, None] if values.ndim == 1 else values
        grid = values.new_zeros(values.shape[1], *self.mask.shape)
        grid[:, self.mask] = values.T
        return grid[None]

    def at(self, grid: Tensor) -> Tensor:
        """The values (N, C) of a map (1, C, H, W) at the points."""
        return grid[0][:, self.mask].T.contiguous()


def points_of(image: Tensor, f: Tensor, mask: Tensor) -> Points:
    """The points of a field f (1, C, H, W) where mask (1, 1, H, W) > 0, with an image (1, 3, H, W); at least two.

    A field with more than `MOST_POINTS` points is thinned.
    """
    given = mask > 0
    kept = thinned(given[0, 0], MOST_POINTS)
    place = kept.nonzero().float()
    k = min(NEIGHBOURS, len(place) - 1)
    distances, neighbours = (np.asarray(x) for x in cKDTree(place.numpy()).query(place.numpy(), k + 1))
    maps = torch.cat([_blurred(image, 3), _texture(image), *_coverages(given.float()), _border(image)], 1)
    values = maps[0][:, kept].T
    return Points(
        mask=kept,
        place=place,
        vectors=f[0][:, kept].T.contiguous(),
        colours=values[:, :3].contiguous(),
        surroundings=values[:, 3:].contiguous(),
        neighbours=torch.from_numpy(neighbours[:, 1:]),
        distances=torch.from_numpy(distances[:, 1:]).float(),
    )


def thinned(given: Tensor, most: int) -> Tensor:
    """A subset of the pixels given (H, W) bool, at most `most`: in each square block the one nearest the middle.

    All of them if there are not more than `most`.
    """
    rows, columns = given.nonzero().T
    if len(rows) <= most:
        return given
    side = math.ceil(math.sqrt(len(rows) / most))
    while len(torch.unique(blocks := _block_of(rows, columns, side, given.shape[1]))) > most:
        side += 1
    middle = (side - 1) / 2
    distance = (rows % side - middle) ** 2 + (columns % side - middle) ** 2
    order = torch.argsort(distance, stable=True)
    first = torch.full((int(blocks.max()) + 1,), len(order)).scatter_reduce(
        0, blocks[order], torch.arange(len(order)), "amin"
    )
    chosen = order[first[first < len(order)]]
    kept = torch.zeros_like(given)
    kept[rows[chosen], columns[chosen]] = True
    return kept


def _block_of(rows: Tensor, columns: Tensor, side: int, width: int) -> Tensor:
    return rows // side * (-(-width // side)) + columns // side


def norm(x: Tensor) -> Tensor:
    """The length of vectors (…, C) per two components, so that thresholds hold for any C."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return length * math.sqrt(2 / x.shape[-1])


def local_affine(points: Points, trust: Tensor) -> tuple[Tensor, Tensor]:
    """Predict each vector from a robust affine fit to its neighbours.

    trust (N,): prior weight of each point as a neighbour, in [0, 1]. Returns the predictions (N, C) and the mean
    residual of each fit (N,). Iteratively reweighted least squares with Cauchy weights.
    """
    near, d = points.neighbours, points.distances
    reach = d.mean(1, keepdim=True).clamp(min=1)
    steps = (points.place[near] - points.place[:, None]) / reach[..., None]
    design = torch.cat([torch.ones_like(steps[..., :1]), steps], -1)
    middle = points.vectors[near].median(1, keepdim=True).values
    target = points.vectors[near] - middle
    prior = trust[near].clamp(min=1e-3) * torch.exp(-0.5 * (d / reach) ** 2)
    weight, residual = prior, norm(target)
    penalty = torch.diag(torch.tensor(_SLOPE_PENALTY))
    for _ in range(_REWEIGHTINGS):
        mean = (prior * residual).sum(1, keepdim=True) / prior.sum(1, keepdim=True)
        width = torch.minimum(0.5 * mean, 1.5 * residual.median(1, keepdim=True).values) + 1e-9 * points.scale
        weight = prior / (1 + (residual / width) ** 2)
        weighted = design * weight[..., None]
        normal = weighted.mT @ design + penalty * weight.sum(1)[:, None, None]
        fit = torch.linalg.solve(normal, weighted.mT @ target)
        residual = norm(target - design @ fit)
    return fit[:, 0] + middle[:, 0], (weight * residual).sum(1) / weight.sum(1)


def _blurred(x: Tensor, side: int) -> Tensor:
    """The mean over windows of odd side of a map (1, ·, H, W)."""
    r = side // 2
    rows = F.avg_pool2d(F.pad(x, (r, r, 0, 0), mode="replicate"), (1, side), 1)
    return F.avg_pool2d(F.pad(rows, (0, 0, r, r), mode="replicate"), (side, 1), 1)


def _texture(image: Tensor) -> Tensor:
    """Logarithms of contrast in 5×5 and of the smaller eigenvalue of the structure tensor in 11×11, (1, 2, H, W)."""
    g = grey(image)
    contrast = (_blurred(g * g, 5) - _blurred(g, 5).square()).clamp(min=0)
    x, y = _slope(g), _slope(g.mT).mT
    a, b, c = (_blurred(product, 11) for product in (x * x, x * y, y * y))
    smaller = (a + c) / 2 - torch.sqrt(((a - c) / 2).square() + b * b)
    return torch.cat([torch.log10(contrast + 1e-6), torch.log10(smaller.clamp(min=0) + 1e-7)], 1)


def _slope(g: Tensor) -> Tensor:
    """Central differences along the last axis, repeated at its ends; 0 if it is shorter than three pixels."""
    if g.shape[-1] < 3:
        return torch.zeros_like(g)
    return F.pad((g[..., 2:] - g[..., :-2]) / 2, (1, 1, 0, 0), mode="replicate")


def _coverages(given: Tensor) -> list[Tensor]:
    """Logarithm of the share of given pixels in each window, relative to their share of the image, (1, 1, H, W)."""
    share = given.mean()
    return [torch.log(_blurred(given, side) / share + 0.05) for side in _WINDOWS]


def _border(image: Tensor) -> Tensor:
    """Logarithm of the distance to the border in px, (1, 1, H, W)."""
    H, W = image.shape[-2:]
    rows, columns = torch.arange(H)[:, None], torch.arange(W)
    nearest = torch.minimum(torch.minimum(rows, H - 1 - rows), torch.minimum(columns, W - 1 - columns))
    return torch.log(nearest.float() + 1)[None, None]
