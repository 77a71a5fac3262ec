"""Whether an uncertainty is large where the error is: sparsification curves and the area between them, AUSE.

Pixels are removed in the order of their uncertainty, the largest first. If it foretells the error, the mean error of
those that remain falls fast; an oracle that removes by the error itself makes it fall as fast as can be (Ilg et al.,
*Uncertainty estimates and multi-hypotheses networks for optical flow*, ECCV 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt

from flowinpaint.errors import InputError

Map = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Curve = npt.NDArray[np.float64]

STEPS = 100


@dataclass(frozen=True)
class Sparsification:
    """removed (n,): shares of the pixels taken away, from 0 up to and without 1.

    curve, oracle (n,): the mean error of those that remain over that of all, removed by the uncertainty and by the
    error itself.
    """

    removed: Curve
    curve: Curve
    oracle: Curve

    @property
    def ause(self) -> float:
        """The area between the curve and the oracle's: 0 for the best order, and more for any other."""
        above = self.curve - self.oracle
        return float(np.sum(np.diff(self.removed) * (above[1:] + above[:-1]) / 2))


def sparsification(error: Map, uncertainty: Map, valid: Mask | None = None, steps: int = STEPS) -> Sparsification:
    """The curves of an uncertainty (H, W), larger where more error is expected, for an error (H, W) of at least 0.

    Only valid (H, W) pixels count; without it, those where the error is not NaN. Equal uncertainties count as removed
    in random order, on average: the curve is a function of the order alone, whatever the pixels' places. Where all
    errors are 0 the curves are flat.
    """
    errors, uncertainties = _counted(error, uncertainty, valid)
    if steps < 2:
        raise InputError(f"steps: {steps} was given; 2 or more are taken.")
    removed = np.arange(steps) / steps
    return Sparsification(removed, _curve(errors, uncertainties, steps), _curve(errors, errors, steps))


def mean_sparsification(parts: Sequence[Sparsification]) -> Sparsification:
    """The mean of curves over frames, all of as many steps; each frame weighs the same."""
    if len({part.removed.size for part in parts}) != 1:
        raise InputError(f"parts: {len(parts)} curves were given; one or more, of as many steps each, are taken.")
    curve, oracle = (np.mean([getattr(part, name) for part in parts], axis=0) for name in ("curve", "oracle"))
    return Sparsification(parts[0].removed, curve, oracle)


def distance_to_known(mask: Mask) -> Curve:
    """How far (H, W) each pixel is from the nearest one given in the mask (H, W): what an uncertainty has to beat."""
    if not mask.any():
        raise InputError("mask: it marks no pixel; at least one that is given is taken.")
    return np.asarray(distance_transform_edt(~mask), np.float64)


def _curve(errors: Curve, uncertainties: Curve, steps: int) -> Curve:
    """The relative mean error (steps,) of what remains of errors (N,) when a share i / steps is gone."""
    if not errors.any():
        return np.ones(steps)
    count = errors.size
    _, group, sizes = np.unique(-uncertainties, return_inverse=True, return_counts=True)
    expected = np.bincount(group, errors) / sizes  # of a pixel, by groups of equal uncertainty, the largest first
    # From the end, so that a remaining sum is of its own pixels and no difference of large ones.
    remaining = np.cumsum(np.repeat(expected, sizes)[::-1])[::-1]
    gone = np.arange(steps) * count // steps
    means: Curve = remaining[gone] / (count - gone)
    relative: Curve = means / means[0]
    return relative


def _counted(error: Map, uncertainty: Map, valid: Mask | None) -> tuple[Curve, Curve]:
    """Error and uncertainty (N,) of the pixels that count."""
    if error.ndim != 2 or uncertainty.shape != error.shape:
        raise InputError(f"error and uncertainty are {error.shape} and {uncertainty.shape}; one (H, W) is taken.")
    counted = ~np.isnan(error) if valid is None else valid
    if counted.dtype != np.bool_ or counted.shape != error.shape:
        raise InputError(f"valid is {counted.dtype} {counted.shape}; bool of the error's {error.shape} is taken.")
    errors, uncertainties = error[counted].astype(np.float64), uncertainty[counted].astype(np.float64)
    if not errors.size:
        raise InputError("valid: it leaves no pixel; at least one is taken.")
    if not np.isfinite(errors).all() or errors.min() < 0:
        raise InputError("error: it is not finite or below 0 at a valid pixel; lengths in px are taken.")
    if np.isnan(uncertainties).any():
        raise InputError("uncertainty: it is NaN at a valid pixel; numbers are taken.")
    return errors, uncertainties
