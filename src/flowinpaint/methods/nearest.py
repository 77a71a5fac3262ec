"""Nearest neighbour: each unknown pixel gets the vector of the closest known pixel."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from flowinpaint.result import Progress, ProgressCallback, Solution

ORIENTATIONS = 8


def nearest(image: Tensor, flow: Tensor, mask: Tensor, *, progress: ProgressCallback | None = None) -> Solution:
    """Copy the nearest known vector; flow (1, C, H, W), mask (1, 1, H, W). The image is not used.

    Known pixels at equal distance are averaged over the eight orientations of the grid, so a mirrored or transposed
    field gives the mirrored or transposed result.
    """
    known = mask[0, 0].cpu().numpy() > 0
    values = flow[0].permute(1, 2, 0).cpu().numpy()
    total = np.zeros_like(values)
    for done, (axes, flips) in enumerate(product(((0, 1, 2), (1, 0, 2)), ((), (0,), (1,), (0, 1)))):
        if progress:
            progress(Progress(1, 1, 0, share=done / ORIENTATIONS))
        turned = np.flip(known.transpose(axes[:2]), flips)
        rows, columns = distance_transform_edt(~turned, return_distances=False, return_indices=True)
        source = np.flip(values.transpose(axes), flips)
        total += np.flip(source[rows, columns], flips).transpose(axes)
    return Solution(torch.from_numpy(total / ORIENTATIONS).permute(2, 0, 1)[None].to(flow))
