"""A small COLMAP model of three images and three points, in both forms."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

POINTS = {7: (0.3, -0.2, 4.0, 0.5), 12: (-1.0, 0.4, 9.0, 1.25), 900: (0.1, 0.1, 2.5, 0.75)}
"""Position and reprojection error by id."""
ANGLE = 0.3
POSE = (np.cos(ANGLE / 2), 0.0, np.sin(ANGLE / 2), 0.0, 0.1, 0.2, 0.3)
"""A turn about the y axis, then a shift."""
IMAGES: dict[str, list[tuple[float, float, int]]] = {
    "a b.png": [(1.5, 2.5, 7)],
    "dark.png": [],
    "view.png": [(10.0, 20.0, 7), (33.25, 4.5, -1), (50.5, 60.25, 900), (5.0, 6.0, 12)],
}


def write_binary(folder: Path) -> Path:
    images = [struct.pack("<Q", len(IMAGES))]
    for i, (name, keypoints) in enumerate(IMAGES.items()):
        images.append(struct.pack("<I7dI", i + 1, *POSE, 1) + name.encode() + b"\0" + struct.pack("<Q", len(keypoints)))
        images += [struct.pack("<ddQ", x, y, point % 2**64) for x, y, point in keypoints]
    points = [struct.pack("<Q", len(POINTS))]
    for point, (x, y, z, error) in POINTS.items():
        points.append(struct.pack("<Q3d3BdQ", point, x, y, z, 1, 2, 3, error, 2) + struct.pack("<4I", 1, 0, 3, 0))
    (folder / "images.bin").write_bytes(b"".join(images))
    (folder / "points3D.bin").write_bytes(b"".join(points))
    return folder


def write_text(folder: Path) -> Path:
    lines = ["# Image list", "# Number of images: 3"]
    for i, (name, keypoints) in enumerate(IMAGES.items()):
        lines.append(" ".join(map(str, (i + 1, *POSE, 1, name))))
        lines.append(" ".join(f"{x} {y} {point}" for x, y, point in keypoints))
    (folder / "images.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{point} {x} {y} {z} 1 2 3 {error} 1 0 3 0" for point, (x, y, z, error) in POINTS.items()]
    (folder / "points3D.txt").write_text("# 3D points\n" + "\n".join(rows) + "\n")
    return folder


def depth_of(point: int) -> Any:
    x, _, z, _ = POINTS[point]
    return -np.sin(ANGLE) * x + np.cos(ANGLE) * z + 0.3
