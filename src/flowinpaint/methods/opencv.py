"""OpenCV's two interpolators of sparse matches, to compare with: they need the extra `peers` (opencv-contrib).

Edge-aware (as in EpicFlow): affine motion from the k matches nearest to a pixel, near along the image. RIC: a robust
affine motion per superpixel. Both end the process on some small inputs, so what they take is checked here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint.errors import InputError
from flowinpaint.result import ProgressCallback, Solution

MOST_MATCHES = 32_766
"""Edge-aware numbers its matches in 16 bits."""
FEWEST_MATCHES = 4
"""Edge-aware ends the process with one match, gives zeros with two and is ill-posed with three."""
SMALLEST_SIDE = 8
"""RIC ends the process when a side is below half a superpixel (15 pixels), edge-aware on a single column."""

MATCHES_PER_NEIGHBOUR = 5
"""RIC fails, or ends the process, when k is large beside the number of matches; from here on neither was seen."""

Image = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float32]


def available() -> bool:
    """Whether the OpenCV that is installed has both interpolators."""
    contrib = getattr(cv2, "ximgproc", None)
    return all(hasattr(contrib, f"create{name}Interpolator") for name in ("EdgeAware", "RIC"))


def opencv_edgeaware(
    image: Tensor,
    f: Tensor,
    c: Tensor,
    *,
    k: int = 128,
    sigma: float = 0.05,
    lam: float = 999.0,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Edge-aware interpolation; image (1, 3, H, W) in [0, 1], f (1, 2, H, W), c (1, 1, H, W).

    k: nearest matches that a pixel's affine motion is fitted to. sigma: how fast a match loses weight with distance.
    lam: how much image edges lengthen that distance.
    """
    k = _check_k(k)
    for name, value in (("sigma", sigma), ("lam", lam)):
        if not 1e-6 <= value <= 1e6:
            raise InputError(f"{name}: {value} was given; a value from 1e-6 to 1e6 is taken.")
    guide, points, vectors = _matches("opencv-edgeaware", image, f, c)
    if len(points) > MOST_MATCHES:
        warnings.warn(
            f"opencv-edgeaware takes {MOST_MATCHES} vectors at most: it gets as many of the {len(points)} known ones, "
            "drawn at random.",
            stacklevel=2,
        )
        drawn = np.sort(np.random.default_rng(0).choice(len(points), MOST_MATCHES, replace=False))
        points, vectors = points[drawn], vectors[drawn]
    interpolator = _contrib().createEdgeAwareInterpolator()
    interpolator.setK(min(k, len(points)))
    interpolator.setSigma(sigma)
    interpolator.setLambda(lam)
    return _solution("opencv-edgeaware", interpolator.interpolate(guide, points, guide, points + vectors), f, points)


def opencv_ric(
    image: Tensor, f: Tensor, c: Tensor, *, k: int = 32, progress: ProgressCallback | None = None
) -> Solution:
    """Robust interpolation of correspondences; image (1, 3, H, W) in [0, 1], f (1, 2, H, W), c (1, 1, H, W).

    k: nearest matches that a superpixel's affine motion is fitted to; fewer where OpenCV does not find as many.
    """
    k = _check_k(k)
    guide, points, vectors = _matches("opencv-ric", image, f, c)
    # OpenCV discards motions beyond a limit of its own unless told how large they get.
    longest = 2 * float(np.abs(vectors).max())
    k = min(k, max(1, len(points) // MATCHES_PER_NEIGHBOUR))
    while True:
        interpolator = _contrib().createRICInterpolator()
        interpolator.setMaxFlow(max(interpolator.getMaxFlow(), longest))
        interpolator.setK(k)
        try:
            with _nearly_repeatable():
                # Only its variational refinement, which is off, looks at the second image.
                dense = interpolator.interpolate(guide, points, guide, points + vectors)
            return _solution("opencv-ric", dense, f, points)
        except cv2.error:
            # Matches crowded in one corner leave superpixels with fewer than k of them in reach.
            if k == 1:
                raise InputError(_unusable("opencv-ric", points)) from None
            k //= 2


@contextmanager
def _nearly_repeatable() -> Iterator[None]:
    """Keep OpenCV to one thread and one series of random numbers: RIC then gives another field only now and then."""
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    cv2.setRNGSeed(0)
    try:
        yield
    finally:
        cv2.setNumThreads(threads)


def _contrib() -> Any:
    if not available():
        raise InputError(
            "method: one of OpenCV's interpolators was given; they are taken once opencv-contrib is there: "
            "pip install flowinpaint[peers]."
        )
    return getattr(cv2, "ximgproc")  # noqa: B009, the type stubs of plain OpenCV do not have it


def _check_k(k: int) -> int:
    if not FEWEST_MATCHES <= k < math.inf or k % 1:
        raise InputError(f"k: {k} was given; a whole number of at least {FEWEST_MATCHES} is taken.")
    return int(k)


def _matches(method: str, image: Tensor, f: Tensor, c: Tensor) -> tuple[Image, Points, Points]:
    """The 8-bit image (H, W, 3), the known pixels (N, 2) as x, y, and their vectors (N, 2)."""
    _, C, H, W = f.shape
    if C != 2:
        raise InputError(f"flow: {C} channels were given; {method} takes 2.")
    if min(H, W) < SMALLEST_SIDE:
        raise InputError(f"image: {H}×{W} pixels were given; {method} takes at least {SMALLEST_SIDE} on each side.")
    rows, columns = np.nonzero(c[0, 0].cpu().numpy() > 0)
    if len(rows) < FEWEST_MATCHES:
        raise InputError(f"flow: {len(rows)} known vectors were given; {method} takes at least {FEWEST_MATCHES}.")
    guide = (image[0].flip(0) * 255).round().to("cpu", torch.uint8).permute(1, 2, 0).numpy()
    vectors = f[0].permute(1, 2, 0).cpu().numpy()[rows, columns].astype(np.float32)
    return np.ascontiguousarray(guide), np.stack([columns, rows], axis=1).astype(np.float32), vectors


def _solution(method: str, dense: npt.NDArray[np.float32], f: Tensor, points: Points) -> Solution:
    if not np.isfinite(dense).all():
        raise InputError(_unusable(method, points))
    return Solution(torch.from_numpy(dense).permute(2, 0, 1)[None].to(f))


def _unusable(method: str, points: Points) -> str:
    return f"flow: {len(points)} known vectors were given; {method} takes others, and makes no finite field of these."
