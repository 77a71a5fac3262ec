"""Cubic B-splines, by which random numbers at knots become smooth fields."""

from typing import Any

import numpy as np
import numpy.typing as npt


def spline_weights(places: npt.NDArray[Any], cell: float) -> tuple[int, npt.NDArray[np.float32]]:
    """The first knot near the pixels (n,) and the weights (n, knots) of it and those after, which are a cell apart."""
    knot, f = np.divmod((places + 0.5) / cell, 1)
    knot = knot.astype(np.int64)
    first, last = (int(knot[0]), int(knot[-1])) if places.size else (0, 0)
    weights = np.zeros((places.size, last - first + 4), np.float32)
    for offset, piece in enumerate(((1 - f) ** 3, 3 * f**3 - 6 * f**2 + 4, 1 + 3 * f * (1 + f - f * f), f**3)):
        weights[np.arange(places.size), knot - first + offset] = piece / 6
    return first, weights
