"""Draw the picture of the page on masks with the package's demo scene: python docs/mask_pictures.py."""

from pathlib import Path

import cv2
import numpy as np

from flowinpaint.data.demo_scene import Scene, sample_scene
from flowinpaint.masks import (
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
from flowinpaint.masks.arrays import Mask
from flowinpaint.viz.colours import draw_given, field_range
from flowinpaint.viz.sheet import Panel, contact_sheet

COLUMNS = 4
QUALITY = 55
PANEL = (330, 220)


def masks(scene: Scene) -> dict[str, Mask]:
    """The masks of the page by the calls that make them."""
    shape = scene.flow.shape[:2]
    return {
        "random_mask\n0.02: the exact count": random_mask(shape, 0.02),
        "bernoulli_mask\n0.02: pixel by pixel": bernoulli_mask(shape, 0.02, seed=1),
        "mixed_mask\nseed=17: a random density": mixed_mask(*scene, seed=17),
        "mixed_mask\nseed=7: another draw": mixed_mask(*scene, seed=7),
        "lidar_mask\nlines=48": lidar_mask(shape),
        "lidar_mask\nlines=16, gaps=0.2": lidar_mask(shape, 16, gaps=0.2, seed=2),
        "corner_mask\ndensity=0.005": corner_mask(scene.image),
        "grid_mask\nspacing=16": grid_mask(shape, 16),
        "grid_mask\nspacing=16, jitter=0.8": grid_mask(shape, 16, 0.8),
        "blob_hole_mask\nshare=0.3": blob_hole_mask(shape, 0.3, seed=0),
        "rectangle_hole_mask\ncount=4, density=0.2": rectangle_hole_mask(shape, 4, 50, 150, 0.2, seed=9),
        "occlusion_mask\nreach=0.5": occlusion_mask(scene.flow),
    }


def main(path: Path) -> None:
    """Write the sheet: each mask as dots on the image, in the colours of the flow."""
    scene = sample_scene(seed=0)
    limits = field_range(scene.flow)
    panels: list[Panel | None] = []
    for title, mask in masks(scene).items():
        share = f"{100 * np.mean(mask):.1f} %"
        panels.append((f"{title} | {share}", draw_given(scene.image, scene.flow, mask, limits, PANEL)))
    sheet = contact_sheet(panels, COLUMNS)
    cv2.imwrite(str(path), cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])


if __name__ == "__main__":
    main(Path(__file__).parent / "masks.jpg")
