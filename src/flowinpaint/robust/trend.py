"""Extrapolation far from all vectors: diffusion continues a field as a constant there, affine fits continue ramps.

Matches, checked flow and laser points leave whole regions empty, such as the road at the border of an image in front of
a moving camera. There the filled field gets the difference between an affine trend and a smooth fill of that trend.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt
from scipy.spatial import cKDTree
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.pyramid import pull
from flowinpaint.robust.points import Points, thinned

_STEP = 16
"""Distance in px between the places where the trend is computed."""
_MOST_POINTS, _NEIGHBOURS = 1500, 256
"""The trend is fitted to at most this number of points; each fit to the nearest of them."""
_CHUNK = 2048
"""Fits that are computed together, to bound the memory."""
_REACH = 0.03
"""Width of the Gaussian window of a fit, as a fraction of the diagonal of the image."""
_TAIL = 1e-4
"""Weight of the points outside the window: they decide where it is empty."""
_SLOPE_PENALTY = 0.02
_FAR, _POWER = 0.012, 3
"""Distance to the nearest vector, as a fraction of the diagonal, from which the trend counts more than the fill."""
_LEAST_FAR = 8.0
"""And at least this distance in px."""
_LEAST_SHARE = 0.1
"""A field in which the trend counts less than this everywhere has no ramps."""
_BEYOND = 0.25
"""The trend stays within the range of the vectors, extended on both sides by this fraction of it; without an extension
for one channel, since depth and disparity have limits and 1/depth must not reach zero."""


def ramps(points: Points, vectors: Tensor, trust: Tensor, spacings: float = 0.0) -> Tensor | None:
    """What a fill from some points lacks far away from them, (1, C, H, W); None if they are near everywhere.

    vectors (N, C) at the points. trust (N,): the weight of each in the fits, 0 for the points not filled from.
    spacings: far is at least this multiple of the spacing of these points.
    """
    used = trust > 0
    place = points.on_grid(used.float())[0, 0] > 0
    if not bool(used.any()):
        return None
    spacing = math.sqrt(place.numel() / int(used.sum()))
    from_here = max(_LEAST_FAR, _FAR * math.hypot(*place.shape), spacings * spacing)
    far = (distance_to(place) / from_here) ** _POWER
    share = far / (1 + far)
    if float(share.max()) < _LEAST_SHARE:
        return None
    trend = affine_trend(points, vectors, trust)
    smooth = pull(data_term(points.on_grid(points.at(trend)), place[None, None].float()))
    return share * (trend - smooth)


def distance_to(mask: Tensor) -> Tensor:
    """The distance in px to the nearest True of a mask (H, W)."""
    return torch.from_numpy(distance_transform_edt(~mask.numpy())).float()


def affine_trend(points: Points, vectors: Tensor, trust: Tensor) -> Tensor:
    """Affine fits in Gaussian windows, computed on a coarse grid and interpolated, (1, C, H, W)."""
    H, W = points.mask.shape
    used = points.on_grid((trust > 0).float())[0, 0] > 0
    chosen = thinned(used, _MOST_POINTS)[points.mask]
    place, f, w = points.place[chosen], vectors[chosen], trust[chosen]
    rows, columns = (torch.arange(0, n + _STEP, _STEP).float() for n in (H, W))
    centres = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)
    tree, k = cKDTree(place.numpy()), min(_NEIGHBOURS, len(place))
    middle = (w[:, None] * f).sum(0) / w.sum()
    reach = _REACH * math.hypot(H, W)
    fits = []
    for q in torch.split(centres, _CHUNK):
        near = torch.from_numpy(np.asarray(tree.query(q.numpy(), k)[1]).reshape(len(q), k))
        fits.append(_fit((place[near] - q[:, None]) / reach, w[near], (f - middle)[near]))
    fit = torch.cat(fits) + middle
    low, high = f.amin(0), f.amax(0)
    margin = _BEYOND * (high - low) if f.shape[1] > 1 else 0 * low
    coarse = fit.clamp(low - margin, high + margin).T.reshape(1, -1, len(rows), len(columns))
    fine = F.interpolate(coarse, scale_factor=_STEP, mode="bilinear", align_corners=False)
    half = _STEP // 2  # the first place, row 0, is the centre of the first _STEP interpolated rows
    return fine[..., half : half + H, half : half + W]


def _fit(d: Tensor, w: Tensor, f: Tensor) -> Tensor:
    """Values (Q, C) of affine fits to f (Q, K, C), weighted by w (Q, K), at the origins of d (Q, K, 2)."""
    distance = d.square().sum(-1)
    kernel = w * (torch.exp(-0.5 * distance) + _TAIL / (1 + distance))
    design = torch.cat([torch.ones_like(d[..., :1]), d], -1)
    weighted = design * kernel[..., None]
    penalty = torch.diag(torch.tensor([1e-6, _SLOPE_PENALTY, _SLOPE_PENALTY]))
    normal = weighted.mT @ design + penalty * kernel.sum(1)[:, None, None]
    fit: Tensor = torch.linalg.solve(normal, weighted.mT @ f)
    return fit[:, 0]
