"""Sparsification: whether an uncertainty is large where the error is, measured by AUSE.

Pixels are removed by falling uncertainty. If it predicts the error, the mean error of the remaining pixels falls fast;
an oracle that removes by the error itself is the lower bound (Ilg et al., *Uncertainty estimates and multi-hypotheses
networks for optical flow*, ECCV 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt

from flowinpaint.errors import InputError

Map = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Curve = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sparsification:
    """curve, oracle (n,): the mean error of the remaining pixels over that of all, when a share i / n is removed.

    `curve` removes by the uncertainty, `oracle` by the error itself.
    """

    curve: Curve
    oracle: Curve

    @property
    def removed(self) -> Curve:
        """The shares (n,) of removed pixels, from 0 to just below 1."""
        return np.arange(self.curve.size) / self.curve.size

    @property
    def ause(self) -> float:
        """The area between curve and oracle: 0 for the best order."""
        above = self.curve - self.oracle
        return float(np.sum(np.diff(self.removed) * (above[1:] + above[:-1]) / 2))


def sparsification(error: Map, uncertainty: Map, valid: Mask | None = None, steps: int = 100) -> Sparsification:
    """Sparsification curves of an uncertainty (H, W) for a non-negative error (H, W).

    Only valid (H, W) pixels count; by default those whose error is not NaN. Only the order of the uncertainties
    matters; equal ones count as removed in random order, on average. The curves are flat if all errors are 0.
    """
    errors, uncertainties = _valid_values(error, uncertainty, valid)
    if steps < 2:
        raise InputError(f"steps must be at least 2, got {steps}.")
    return Sparsification(_curve(errors, uncertainties, steps), _curve(errors, errors, steps))


def distance_to_known(mask: Mask) -> Curve:
    """The distance (H, W) to the nearest known pixel of a mask (H, W): a baseline for uncertainties."""
    if not mask.any():
        raise InputError("mask must mark at least one known pixel, got none.")
    return np.asarray(distance_transform_edt(~mask), np.float64)


def _curve(errors: Curve, uncertainties: Curve, steps: int) -> Curve:
    """The relative mean error (steps,) of the rest of errors (N,) when a share i / steps is removed."""
    if not errors.any():
        return np.ones(steps)
    count = errors.size
    _, group, sizes = np.unique(-uncertainties, return_inverse=True, return_counts=True)
    expected = np.bincount(group, errors) / sizes  # of a pixel, by groups of equal uncertainty, the largest first
    # Summed from the end, so that a remaining sum is not a difference of large sums.
    remaining = np.cumsum(np.repeat(expected, sizes)[::-1])[::-1]
    gone = np.arange(steps) * count // steps
    means: Curve = remaining[gone] / (count - gone)
    relative: Curve = means / means[0]
    return relative


def _valid_values(error: Map, uncertainty: Map, valid: Mask | None) -> tuple[Curve, Curve]:
    """Error and uncertainty (N,) of the valid pixels."""
    if error.ndim != 2 or uncertainty.shape != error.shape:
        raise InputError(f"error and uncertainty must both be (H, W), got {error.shape} and {uncertainty.shape}.")
    counted = ~np.isnan(error) if valid is None else valid
    if counted.dtype != np.bool_ or counted.shape != error.shape:
        raise InputError(f"valid must be bool of shape {error.shape}, got {counted.dtype} {counted.shape}.")
    errors, uncertainties = error[counted].astype(np.float64), uncertainty[counted].astype(np.float64)
    if not errors.size:
        raise InputError("valid must mark at least one pixel, got none.")
    if not np.isfinite(errors).all() or errors.min() < 0:
        raise InputError("error must be finite and not negative at valid pixels.")
    if np.isnan(uncertainties).any():
        raise InputError("uncertainty must not be NaN at valid pixels.")
    return errors, uncertainties
