"""Which pixels of a field are given: families of masks, for arrays one by one and for training by the batch."""

from flowinpaint.masks.arrays import (
    bernoulli_mask,
    blob_hole_mask,
    corner_mask,
    grid_mask,
    lidar_mask,
    mixed_mask,
    occlusion_mask,
    random_mask,
    rectangle_hole_mask,
)
from flowinpaint.masks.mix import MaskMix

__all__ = [
    "MaskMix",
    "bernoulli_mask",
    "blob_hole_mask",
    "corner_mask",
    "grid_mask",
    "lidar_mask",
    "mixed_mask",
    "occlusion_mask",
    "random_mask",
    "rectangle_hole_mask",
]
