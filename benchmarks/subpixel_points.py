"""Error at pixel centres of points between pixels: rounding their positions, or moving their values.

    python benchmarks/subpixel_points.py FRAMES

FRAMES has <dataset>/<sample>/flow.*. The true flow is sampled at 5,000 random points of each frame, not across edges.
"""

import argparse
from pathlib import Path

import numpy as np

import flowinpaint as fi
from flowinpaint.points.subpixel import PointSet, at_pixel_centres, local_slopes

POINTS = 5000
SMOOTH = 1.0
"""The corners of a pixel differ by less than this, in px, where a point is sampled."""


def main() -> None:
    """Print the mean errors in px of each frame."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frames", type=Path)
    rng = np.random.default_rng(0)
    print("rounding moving frame")
    for path in sorted(parser.parse_args().frames.glob("*/*/flow.*")):
        flow, _ = fi.read_flow(path)
        points = rng.uniform(0, (flow.shape[1] - 1.001, flow.shape[0] - 1.001), (POINTS, 2))
        x, y = np.floor(points).astype(int).T
        corners = np.stack([flow[y + i, x + j] for i in (0, 1) for j in (0, 1)], 1)
        smooth = np.isfinite(corners).all((1, 2)) & (np.ptp(corners, axis=1).max(1) < SMOOTH)
        points, corners = points[smooth], corners[smooth]
        if len(points) < 100:
            continue
        fx, fy = (points - np.floor(points)).T
        weights = np.stack([(1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy], 1)
        values = (weights[..., None] * corners).sum(1)
        moved = at_pixel_centres(points, values, local_slopes(PointSet(points), values, None))
        column, row = np.floor(points + 0.5).astype(int).T
        errors = [np.linalg.norm(v - flow[row, column], axis=1).mean() for v in (values, moved)]
        print(f"{errors[0]:.4f} {errors[1]:.4f} {path.parent.parent.name}/{path.parent.name}", flush=True)


if __name__ == "__main__":
    main()
