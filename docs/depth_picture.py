"""Draw the picture of the guide on depth with a made-up street: python docs/depth_picture.py."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np

import flowinpaint as fi
from flowinpaint.viz.colours import FieldRange, map_colours
from flowinpaint.viz.sheet import Panel, contact_sheet

H, W, FOCAL, HORIZON = 260, 640, 420.0, 90
EYE, FAR = 1.7, 40.0
BOXES = (
    (-3.6, -1.8, 0.0, 1.7, 9.0, (150, 60, 50)),
    (2.0, 4.2, -0.6, 1.7, 13.0, (70, 110, 70)),
    (-0.6, 0.2, 0.1, 1.7, 16.0, (190, 170, 120)),
    (0.9, 1.02, -1.6, 1.7, 7.0, (60, 60, 70)),
    (-9.0, -6.5, -3.0, 1.7, 22.0, (120, 100, 140)),
)
"""Left, right, top, bottom in metres (y down), distance and colour of things that stand in the street."""
SCANNER = np.array([0.05, -0.35, -0.25])
"""Its place in the camera's coordinates."""
QUALITY = 80
PANEL = 640, 260

Array = np.ndarray[Any, Any]


def cast(origin: Array, rays: Array) -> tuple[Array, Array]:
    """Distance along each ray (N, 3) to the street, and the thing that it hits: -1 ground, -2 wall, or a box."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ground = np.where(rays[:, 1] > 0, (EYE - origin[1]) / rays[:, 1], np.inf)
        wall = (FAR - origin[2]) / rays[:, 2]
    distance, thing = np.minimum(ground, wall), np.where(ground < wall, -1, -2)
    for k, (left, right, top, bottom, z, _) in enumerate(BOXES):
        t = (z - origin[2]) / rays[:, 2]
        x, y = origin[0] + t * rays[:, 0], origin[1] + t * rays[:, 1]
        hit = (t > 0) & (t < distance) & (x > left) & (x < right) & (y > top) & (y < bottom)
        distance, thing = np.where(hit, t, distance), np.where(hit, k, thing)
    return distance, thing


def picture(rays: Array, depth: Array, thing: Array) -> Array:
    """The camera's image (H, W, 3), with stripes, bricks and noise as textures."""
    rng = np.random.default_rng(0)
    place = depth[:, None] * rays
    bricks = 12 * ((np.floor(place[:, 0] / 0.8) + np.floor(place[:, 1] / 0.4)) % 2)
    stripe = np.abs(place[:, 0] - 0.6) < 0.08
    colour = np.where((thing == -1)[:, None], np.where(stripe[:, None] & (place[:, 2:] % 4 < 2), 210, 92), 0.0)
    colour = np.where((thing == -2)[:, None], np.array([165, 150, 135]) - bricks[:, None], colour)
    for k, (*_, paint) in enumerate(BOXES):
        colour = np.where((thing == k)[:, None], np.array(paint) + bricks[:, None], colour)
    blotches = cv2.GaussianBlur(rng.normal(0, 60, (H, W)), (0, 0), 2).reshape(-1, 1)
    return np.clip(colour + blotches + rng.normal(0, 4, (H * W, 1)), 0, 255).astype(np.uint8).reshape(H, W, 3)


def scan() -> Array:
    """Points (N, 3) of 40 scan lines, with 2 cm of noise."""
    up, round_ = np.meshgrid(np.radians(np.linspace(-22, 7, 44)), np.radians(np.arange(-42, 42, 0.22)), indexing="ij")
    rays = np.stack([np.cos(up) * np.sin(round_), -np.sin(up), np.cos(up) * np.cos(round_)], axis=-1).reshape(-1, 3)
    distance, _ = cast(SCANNER, rays)
    return SCANNER + rays * (distance + np.random.default_rng(1).normal(0, 0.02, len(distance)))[:, None]


def dots(image: Array, uv: Array, depth: Array, visible: Array, limits: FieldRange) -> Array:
    """The points on the dimmed image in the colours of their depth; hidden ones are white."""
    drawn = (0.35 * image).astype(np.uint8)
    colours = map_colours(1 / depth[None], limits, cv2.COLORMAP_TURBO)[0]
    for (x, y), colour, seen in zip(np.rint(uv).astype(int), colours, visible, strict=True):
        cv2.circle(drawn, (int(x), int(y)), 1, [int(c) for c in colour] if seen else (255, 255, 255), -1)
    return drawn


def main() -> None:
    """Write the picture."""
    v, u = np.mgrid[:H, :W].reshape(2, -1).astype(float)
    rays = np.column_stack([(u - W / 2) / FOCAL, (v - HORIZON) / FOCAL, np.ones(u.size)])
    truth, thing = cast(np.zeros(3), rays)
    image, matrix = picture(rays, truth, thing), np.array([[FOCAL, 0, W / 2, 0], [0, FOCAL, HORIZON, 0], [0, 0, 1, 0]])
    uv, depth, _ = fi.project(scan(), matrix, image.shape)
    visible = fi.visible_points(uv, depth)
    result = fi.complete_depth(image, uv, depth)
    error = np.abs(result.flow[..., 0] - truth.reshape(H, W))
    hidden = np.abs(fi.complete_depth(image, uv, depth, visible_only=False).flow[..., 0] - truth.reshape(H, W))
    print(
        f"{(~visible).sum()} of {len(depth)} points hidden; MAE {error.mean():.3f} m, with them {hidden.mean():.3f} m"
    )
    limits = FieldRange(1 / FAR, 1 / 4.0)
    panels: list[Panel | None] = [
        ("Image", image),
        (f"Scan\n{len(depth)} points; white: hidden from the camera", dots(image, uv, depth, visible, limits)),
        ("Depth\ncolours of 1 / depth", map_colours(1 / result.flow[..., 0], limits, cv2.COLORMAP_TURBO)),
        ("Expected error\nbrightest: 2 m", fi.error_map(np.nan_to_num(result.expected_error, posinf=2), 2.0)),
    ]
    path = Path(__file__).with_name("depth-from-lidar.jpg")
    sheet = contact_sheet(panels, 2)
    cv2.imwrite(str(path), sheet[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])


if __name__ == "__main__":
    main()
