"""Hold uncertain depths of a dense scan to what plain interpolations say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowinpaint.api import inpaint
from flowinpaint.depth.visibility import typical_spacing
from flowinpaint.result import Result

WIDEST_SPACING = 5.0
"""Typical distance of the points in px up to which interpolations without the image are a help."""
DOUBT = 0.1
"""Expected error, as a share of the depth, at which a depth is moved half of the way."""


def restrain(result: Result) -> Result:
    """Move uncertain depths of a result towards the median of themselves, the harmonic and the nearest depth.

    With few points, or a method that predicts no errors, the result is returned unchanged. Next to the edges of far
    objects, the errors of a method that sees the image are rare but large, since it may take a texture for an edge.
    """
    arrays = result.arrays
    if arrays is None or arrays.expected_error is None:
        return result
    known = np.isfinite(arrays.given[..., 0])
    rows, columns = np.nonzero(known)
    if known.all() or len(rows) < 2 or typical_spacing(np.column_stack([columns, rows]).astype(float)) > WIDEST_SPACING:
        return result
    depth = arrays.flow
    others = [inpaint(arrays.image, arrays.given, known, method, "cpu").flow for method in ("harmonic", "nearest")]
    middle = np.median(np.stack([depth, *others]), axis=0)
    share = arrays.expected_error[..., None] / np.maximum(depth, np.finfo(np.float32).tiny)
    weight = np.where(np.isfinite(share), share / (share + DOUBT), 1)
    moved = np.where(known[..., None], depth, depth + weight * (middle - depth)).astype(np.float32)
    return replace(result, flow=moved, arrays=replace(arrays, flow=moved))
