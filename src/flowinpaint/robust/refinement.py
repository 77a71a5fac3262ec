"""Variational refinement of a filled flow on the two images: sub-pixel accuracy where the vectors are coarser."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.pyramid import pull
from flowinpaint.opencv import cv2
from flowinpaint.robust.assessor import Verdict
from flowinpaint.robust.photometric import grey
from flowinpaint.robust.points import Points, norm

_SMOOTHNESS, _BRIGHTNESS, _GRADIENT = 40.0, 5.0, 25.0
"""Weights of the terms of `cv2.VariationalRefinement`."""
_WARPS, _ITERATIONS, _SWEEPS = 4, 10, 10
"""Warps of the second image; fixed-point iterations of each, and sweeps of the solver in each of these."""
_DOUBT = 2.0
"""Expected errors of the fill count times this: they are too small where vectors that are wrong together seem right."""
_SMALLEST_SIDE = 8
"""Smaller images are not refined."""


def refined(u: Tensor, error: Tensor, points: Points, verdict: Verdict, first: Tensor, second: Tensor) -> Tensor:
    """The mean of a flow u (1, 2, H, W) in px and its refinement, weighted by precision.

    error (1, 1, H, W): the expected error of u. first, second (1, 3, H, W): the images.
    """
    if min(u.shape[-2:]) < _SMALLEST_SIDE:
        return u
    found = variational(u, first, second)
    variance = _variance(found, points, verdict)
    own = (_DOUBT * error).square().clamp(max=1e12)
    return u + own / (own + variance).clamp(min=1e-12) * (found - u)


def variational(u: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """A flow close to u (1, 2, H, W) by which the images (1, 3, H, W) match better.

    It minimises differences of brightness and of its gradient with a smoothness term. It corrects errors up to a pixel
    or so, not wrong surfaces.
    """
    a, b = ((255 * grey(x)[0, 0]).round().clamp(0, 255).to(torch.uint8).numpy() for x in (first, second))
    search = cv2.VariationalRefinement.create()
    search.setAlpha(_SMOOTHNESS)
    search.setDelta(_BRIGHTNESS)
    search.setGamma(_GRADIENT)
    search.setFixedPointIterations(_ITERATIONS)
    search.setSorIterations(_SWEEPS)
    flow = np.ascontiguousarray(u[0].permute(1, 2, 0).numpy(), np.float32)
    for _ in range(_WARPS):
        flow = np.asarray(search.calc(a, b, flow), np.float32)
    found = torch.from_numpy(flow).permute(2, 0, 1)[None]
    return torch.where(found.isfinite(), found, u)


def _variance(found: Tensor, points: Points, verdict: Verdict) -> Tensor:
    """The squared error (1, 1, H, W) of a refined flow: how far it is from nearby estimates, less their own errors."""
    correct = verdict.logit > 0
    if not bool(correct.any()):
        return torch.zeros_like(found[:, :1])
    off, own = norm(points.at(found) - verdict.vectors).square(), verdict.error.square()
    off, own = (torch.where(correct, x, torch.nan)[points.neighbours].nanmedian(1).values for x in (off, own))
    known = (off.isfinite() & own.isfinite()).float()
    excess = (off - own).clamp(min=0).nan_to_num()
    return pull(data_term(points.on_grid(excess), points.on_grid(known)))
