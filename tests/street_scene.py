"""A made-up scene of a street with a box, seen by a camera and by a scanner above it."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

H, W = 96, 160
FOCAL = 140.0
P = np.array([[FOCAL, 0, W / 2, 0], [0, FOCAL, 20, 0], [0, 0, 1, 0]])
HEIGHT, FAR = 1.6, 30.0
BOX = (-1.2, 0.8, 8.0)
"""Left and right end, and distance, of a box that stands on the ground and reaches the height of the camera."""


class Scene(NamedTuple):
    """image (H, W, 3) uint8, depth (H, W), and a scan (N, 4) in the camera's coordinates."""

    image: npt.NDArray[np.uint8]
    depth: npt.NDArray[np.float32]
    scan: npt.NDArray[np.float32]


def cast(origin: Any, rays: Any) -> Any:
    """Distance along each ray (N, 3), with z = 1, to the ground, the box or the wall."""
    x, y = rays[:, 0], rays[:, 1]
    with np.errstate(divide="ignore"):
        ground = np.where(y > 0, (HEIGHT - origin[1]) / y, np.inf)
    depth = np.minimum(ground, FAR - origin[2])
    near = BOX[2] - origin[2]
    at_box, height = origin[0] + near * x, origin[1] + near * y
    hit = (at_box > BOX[0]) & (at_box < BOX[1]) & (height > 0) & (height < HEIGHT)
    return np.where(hit, np.minimum(near, depth), depth)


def street() -> Scene:
    """The scene; the scanner is half a metre above the camera, and sees the ground and the wall behind the box."""
    v, u = np.mgrid[:H, :W].reshape(2, -1).astype(float)
    depth = cast(np.zeros(3), np.column_stack([(u - W / 2) / FOCAL, (v - 20) / FOCAL, np.ones(u.size)]))
    box = (depth == BOX[2]).reshape(H, W)
    image = np.where(box[..., None], (200, 60, 40), np.where((depth == FAR).reshape(H, W, 1), (90, 140, 200), 120))
    rows, columns = np.meshgrid(np.linspace(-0.16, 0.6, 40), np.linspace(-0.6, 0.6, 170), indexing="ij")
    rays = np.column_stack([columns.ravel(), rows.ravel(), np.ones(rows.size)])
    origin = np.array([0, -0.5, 0])
    points = origin + rays * cast(origin, rays)[:, None]
    scan = np.column_stack([points, np.full(len(points), 0.5)]).astype(np.float32)
    return Scene(image.astype(np.uint8), depth.reshape(H, W).astype(np.float32), scan)
