"""Masks of known pixels: families of masks for single arrays and for batches in training."""

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
