"""Regions of an image: where to fill, how far from the vectors, and where the image may be used."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import distance_transform_edt

from flowinpaint.errors import InputError, warn_user

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

TRUSTED = 0.5
"""A judged vector with at least this probability of being correct counts for `max_gap`."""


def check_region(name: str, region: Array | None, size: tuple[int, ...]) -> Mask | None:
    """The region (H, W) or None; InputError unless it is a bool array of this size."""
    if region is None:
        return None
    if region.dtype != np.bool_ or region.shape != size:
        hint = f"; pass {name} > 0" if region.shape == size and region.dtype.kind in "iuf" else ""
        raise InputError(f"{name} must be bool of shape {size}, got {region.dtype} {region.shape}{hint}")
    if not region.any():
        raise InputError(f"{name} must be True at some pixel, got False everywhere")
    return region


def warn_of_regions(known: Mask, image_where: Mask | None) -> None:
    """Warn if the image may be used only where hardly any vector is known, as with an inverted region."""
    if image_where is not None and 2 * np.count_nonzero(known & image_where) < np.count_nonzero(known):
        warn_user(
            "image_where is False at most of the known vectors; it must be True where the image may be used, so pass "
            "~image_where if it marks an object."
        )


def check_gap(max_gap: object) -> float:
    """The largest distance in px from a trusted vector, infinite for None."""
    if max_gap is None:
        return math.inf
    if isinstance(max_gap, bool) or not isinstance(max_gap, numbers.Real) or not float(max_gap) > 0:
        raise InputError(f"max_gap must be a distance in px above 0, got {max_gap!r:.60}")
    return float(max_gap)


def filled_region(known: Mask, inliers: Array | None, fill_where: Mask | None, max_gap: float) -> Mask | None:
    """Where the result has values, (H, W); None if everywhere.

    Within `fill_where` or at a given vector, and at most `max_gap` px from a trusted vector.
    """
    region = None if fill_where is None else fill_where | known
    if max_gap < math.inf:
        trusted = known if inliers is None else known & (np.nan_to_num(inliers) >= TRUSTED)
        near = distance_transform_edt(~trusted) <= max_gap if trusted.any() else trusted
        region = near if region is None else region & near
    return region


def image_without(image: Array, where: Mask) -> Array:
    """An image (H, W, ·) whose pixels outside `where` continue those around by homogeneous diffusion."""
    from flowinpaint.methods.harmonic import harmonic

    if where.all():
        return image
    pixels = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image.astype(np.float64), -1, 0)))[None]
    mask = torch.from_numpy(where)[None, None].double()
    filled = harmonic(pixels, pixels * mask, mask).u[0].movedim(0, -1).numpy()
    rounded = filled if image.dtype.kind == "f" else np.rint(filled)
    return np.where(where[..., None], image, rounded.astype(image.dtype))
