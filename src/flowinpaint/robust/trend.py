"""Extrapolation far from all vectors: diffusion continues a field as a constant there, affine fits continue ramps.

Matches and laser points leave whole regions empty, such as a road without texture in front of a moving camera. Where
the nearest vector is far away, the filled field gets the difference between an affine trend and its smooth fill.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.pyramid import pull
from flowinpaint.robust.points import Points, thinned

_STEP = 16
"""Distance in px between the places where the trend is computed."""
_MOST_POINTS = 4000
"""The trend is fitted to at most this number of points."""
_CHUNK = 512
"""Fits that are computed together, to bound the memory."""
_REACH = 0.04
"""Width of the Gaussian window of a fit, as a fraction of the diagonal of the image."""
_TAIL = 1e-4
"""Weight of the points outside the window: they decide where it is empty."""
_SLOPE_PENALTY = 0.02
_FAR = 0.025
"""Distance to the nearest vector, as a fraction of the diagonal, from which the trend counts more than the fill."""
_BEYOND = 0.25
"""The trend stays within the range of the vectors, extended on both sides by this fraction of it."""


def continue_ramps(u: Tensor, points: Points, vectors: Tensor, trust: Tensor) -> Tensor:
    """A filled field u (1, C, H, W) with its ramps continued where vectors are far away.

    vectors (N, C) at the points, trust (N,): the weight of each in the fits.
    """
    far = distance_to(points.mask) / (_FAR * math.hypot(*points.mask.shape))
    share = far**4 / (1 + far**4)
    if float(share.max()) < 0.1:
        return u
    trend = affine_trend(points, vectors, trust)
    at_points = points.on_grid(points.at(trend))
    smooth = pull(data_term(at_points, points.on_grid(torch.ones(len(points)))))
    return u + (share * (trend - smooth)).to(u)


def distance_to(mask: Tensor) -> Tensor:
    """The distance in px to the nearest True of a mask (H, W)."""
    return torch.from_numpy(distance_transform_edt(~mask.numpy())).float()


def affine_trend(points: Points, vectors: Tensor, trust: Tensor) -> Tensor:
    """Affine fits in Gaussian windows, computed on a coarse grid and interpolated, (1, C, H, W)."""
    H, W = points.mask.shape
    chosen = thinned(points.mask, _MOST_POINTS)[points.mask]
    place, f, w = points.place[chosen], vectors[chosen], trust[chosen]
    reach = _REACH * math.hypot(H, W)
    rows, columns = (torch.arange(0, n + _STEP, _STEP).float() for n in (H, W))
    centres = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 1, 2)
    middle = (w[:, None] * f).sum(0) / w.sum()
    fits = [_fit((place - q) / reach, w, f - middle) for q in torch.split(centres, _CHUNK)]
    fit = torch.cat(fits) + middle
    low, high = f.amin(0), f.amax(0)
    margin = _BEYOND * (high - low)
    coarse = fit.clamp(low - margin, high + margin).T.reshape(1, -1, len(rows), len(columns))
    fine = F.interpolate(coarse, scale_factor=_STEP, mode="bilinear", align_corners=False)
    half = _STEP // 2  # the first place, row 0, is the centre of the first _STEP interpolated rows
    return fine[..., half : half + H, half : half + W]


def _fit(d: Tensor, w: Tensor, f: Tensor) -> Tensor:
    """Values (Q, C) of affine fits to f (N, C), weighted by w (N,), at the origins of d (Q, N, 2)."""
    distance = d.square().sum(-1)
    kernel = w * (torch.exp(-0.5 * distance) + _TAIL / (1 + distance))
    design = torch.cat([torch.ones_like(d[..., :1]), d], -1)
    weighted = design * kernel[..., None]
    penalty = torch.diag(torch.tensor([1e-6, _SLOPE_PENALTY, _SLOPE_PENALTY]))
    normal = weighted.mT @ design + penalty * kernel.sum(1)[:, None, None]
    fit: Tensor = torch.linalg.solve(normal, weighted.mT @ f)
    return fit[:, 0]
