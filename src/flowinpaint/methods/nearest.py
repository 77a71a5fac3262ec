"""Nearest neighbour: each unknown pixel gets the vector of the closest known pixel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from flowinpaint.result import ProgressCallback, Solution


def nearest(image: Tensor, flow: Tensor, mask: Tensor, *, progress: ProgressCallback | None = None) -> Solution:
    """Copy the nearest known vector; flow (1, C, H, W), mask (1, 1, H, W). The image is not used.

    Known pixels at equal distance are averaged over the eight orientations of the grid, so a mirrored or transposed
    field gives the mirrored or transposed result.
    """
    known = mask[0, 0].cpu().numpy() > 0
    values = flow[0].permute(1, 2, 0).cpu().numpy()
    total = np.zeros_like(values)
    for transpose in (False, True):
        for flips in ((), (0,), (1,), (0, 1)):
            total += _from_orientation(values, known, transpose, flips)
    u = torch.from_numpy(total / 8).permute(2, 0, 1)[None].to(flow)
    return Solution(u)


def _from_orientation(
    values: npt.NDArray[np.float64], known: npt.NDArray[np.bool_], transpose: bool, flips: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """The nearest known values, found by the distance transform on the grid in one of its eight orientations."""
    turned = np.flip(known.T if transpose else known, flips)
    rows, columns = distance_transform_edt(~turned, return_distances=False, return_indices=True)
    source = np.flip(values.swapaxes(0, 1) if transpose else values, flips)
    picked: npt.NDArray[np.float64] = np.flip(source[rows, columns], flips)
    return picked.swapaxes(0, 1) if transpose else picked
