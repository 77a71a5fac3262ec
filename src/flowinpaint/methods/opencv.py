"""OpenCV's two interpolators of sparse matches, for comparison; they need OpenCV's contributed modules.

Edge-aware (as in EpicFlow): affine motion from the k matches nearest to a pixel, by a distance that image edges
lengthen. RIC: a robust affine motion per superpixel. Both crash the process on some small inputs, so this module checks
its input.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint.checks import check_whole
from flowinpaint.errors import InputError, warn_user
from flowinpaint.extras import is_installed, needs
from flowinpaint.opencv import cv2, single_threaded
from flowinpaint.result import ProgressCallback, Solution

MOST_MATCHES = 32_766
"""Edge-aware interpolation counts its matches in 16 bits."""
FEWEST_MATCHES = 4
"""Edge-aware crashes with one match, returns zeros for two and is ill-posed for three."""
SMALLEST_SIDE = 8
"""RIC crashes if a side is below half a superpixel (15 pixels), edge-aware on a single column."""

MATCHES_PER_NEIGHBOUR = 5
"""RIC fails or crashes if k is large relative to the number of matches; neither was seen from this ratio on."""
_LARGER_K = (8, 16, 32)
"""Values of k to try last, as far as there are enough matches for them."""
_ALONE = threading.Lock()
"""Held while RIC runs, because concurrent calls share random numbers."""
Points = npt.NDArray[np.float32]


def opencv_edgeaware(
    image: Tensor,
    flow: Tensor,
    mask: Tensor,
    *,
    k: int = 128,
    sigma: float = 0.05,
    lam: float = 999.0,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Edge-aware interpolation; image (1, 3, H, W) in [0, 1], flow (1, 2, H, W), mask (1, 1, H, W).

    k: number of nearest matches to which a pixel's affine motion is fitted. sigma: decay of a match's weight with
    distance. lam: how much image edges increase that distance.
    """
    k = check_whole("k", k, FEWEST_MATCHES)
    for name, value in (("sigma", sigma), ("lam", lam)):
        if not 1e-6 <= value <= 1e6:
            raise InputError(f"{name} must be from 1e-6 to 1e6, got {value}")
    guide, points, vectors = _matches("opencv-edgeaware", image, flow, mask)
    if len(points) > MOST_MATCHES:
        warn_user(
            f"opencv-edgeaware uses at most {MOST_MATCHES} vectors: a random subset of the {len(points)} known ones."
        )
        drawn = np.sort(np.random.default_rng(0).choice(len(points), MOST_MATCHES, replace=False))
        points, vectors = points[drawn], vectors[drawn]
    interpolator = _contrib().createEdgeAwareInterpolator()
    interpolator.setK(min(k, len(points)))
    interpolator.setSigma(sigma)
    interpolator.setLambda(lam)
    return _solution("opencv-edgeaware", interpolator.interpolate(guide, points, guide, points + vectors), flow, points)


def opencv_ric(
    image: Tensor, flow: Tensor, mask: Tensor, *, k: int = 32, progress: ProgressCallback | None = None
) -> Solution:
    """Robust interpolation of correspondences; image (1, 3, H, W) in [0, 1], flow (1, 2, H, W), mask (1, 1, H, W).

    k: number of nearest matches to which a superpixel's affine motion is fitted; fewer if OpenCV finds fewer.
    """
    k = check_whole("k", k, FEWEST_MATCHES)
    guide, points, vectors = _matches("opencv-ric", image, flow, mask)
    # OpenCV discards motions beyond its own limit unless this is raised.
    longest = 2 * float(np.abs(vectors).max())
    most = max(1, len(points) // MATCHES_PER_NEIGHBOUR)
    k = min(k, most)
    dense = None
    with _ALONE, single_threaded():  # with a fixed random seed, repeated calls then rarely differ
        # If the matches are clustered in one corner, some superpixels have fewer than k of them in reach. OpenCV's code
        # also returns a non-finite field now and then, mostly again with the same k but hardly ever with half of it.
        # With a k below 8 all halves sometimes fail, so larger ones follow.
        for tried in (*(k >> i for i in range(k.bit_length())), *_LARGER_K):
            if (dense is not None and np.isfinite(dense).all()) or tried > most:
                break
            cv2.setRNGSeed(0)
            interpolator = _contrib().createRICInterpolator()
            interpolator.setMaxFlow(max(interpolator.getMaxFlow(), longest))
            interpolator.setK(tried)
            with suppress(cv2.error):
                # The second image is for its variational refinement, which is off.
                dense = interpolator.interpolate(guide, points, guide, points + vectors)
    return _solution("opencv-ric", dense, flow, points)


def _contrib() -> Any:
    if not is_installed("peers"):
        raise InputError(f"method {needs('peers')}")
    return getattr(cv2, "ximgproc")  # noqa: B009, the type stubs of plain OpenCV lack it


def _matches(method: str, image: Tensor, flow: Tensor, mask: Tensor) -> tuple[npt.NDArray[np.uint8], Points, Points]:
    """The 8-bit image (H, W, 3), the known pixels (N, 2) as x, y, and their vectors (N, 2)."""
    _, C, H, W = flow.shape
    if C != 2:
        raise InputError(f"flow must have 2 channels for {method}, got {C}")
    if min(H, W) < SMALLEST_SIDE:
        raise InputError(f"image must have at least {SMALLEST_SIDE} pixels on each side for {method}, got {H}×{W}")
    rows, columns = np.nonzero(mask[0, 0].cpu().numpy() > 0)
    if len(rows) < FEWEST_MATCHES:
        raise InputError(f"flow must have at least {FEWEST_MATCHES} known vectors for {method}, got {len(rows)}")
    guide = (image[0].flip(0) * 255).round().to("cpu", torch.uint8).permute(1, 2, 0).numpy()
    vectors = flow[0].permute(1, 2, 0).cpu().numpy()[rows, columns].astype(np.float32)
    return np.ascontiguousarray(guide), np.stack([columns, rows], axis=1).astype(np.float32), vectors


def _solution(method: str, dense: npt.NDArray[np.float32] | None, flow: Tensor, points: Points) -> Solution:
    if dense is None or not np.isfinite(dense).all():
        raise InputError(f"flow: {method} produced a non-finite field from these {len(points)} known vectors")
    return Solution(torch.from_numpy(dense).permute(2, 0, 1)[None].to(flow))
