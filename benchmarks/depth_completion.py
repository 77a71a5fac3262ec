"""Errors of `complete_depth` and of `harmonic` on real scans and depth images.

    python benchmarks/depth_completion.py FOLDER [--seeds 3]

FOLDER has frames at any depth below it: image.png with depth.png (truth, m/256, or mm in a folder NYU) and, for a scan,
sparse.png (m/256). Without sparse.png, 500 random points of the truth are given, once per seed. A frame of KITTI raw
has velodyne.bin, calib_cam.txt, calib_velo.txt and disp.png (truth, px/256) instead. Prints MAE and RMSE in mm and the
relative error: `complete_depth`, then `harmonic` of the same points in depth and in inverse depth.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import flowinpaint as fi
from flowinpaint.depth.complete import depth_image, depth_points

POINTS = 500
CALIBRATION = "cam", "velo"
Array = npt.NDArray[Any]


def scores(depth: Array, truth: Array) -> str:
    """MAE and RMSE in mm, and the mean relative error, where the truth is known."""
    known = np.isfinite(truth)
    off = np.abs(depth[known] - truth[known]).astype(np.float64)
    return f"{1000 * off.mean():7.1f} {1000 * np.sqrt(np.square(off).mean()):7.1f} {(off / truth[known]).mean():.4f}"


def drawn(truth: Array, seed: int) -> tuple[Array, Array]:
    """Random points of the truth."""
    uv, depth = depth_points(truth)
    chosen = np.random.default_rng(seed).choice(len(uv), min(POINTS, len(uv)), replace=False)
    return uv[chosen], depth[chosen]


def frames(folder: Path, seeds: int) -> Iterator[tuple[Path, Array, Array, list[tuple[Array, Array]]]]:
    """Folder, image, truth (H, W, 1) in metres, and the points of each case."""
    for path in sorted(folder.rglob("depth.png")):
        image, truth = fi.read_image(path.with_name("image.png")), fi.read_flow(path, unit_of(path))[0]
        sparse = path.with_name("sparse.png")
        points = [depth_points(fi.read_flow(sparse, "m/256")[0])] if sparse.exists() else []
        yield path.parent, image, truth, points or [drawn(truth, seed) for seed in range(seeds)]
    for path in sorted(folder.rglob("velodyne.bin")):
        image, files = (
            fi.read_image(path.with_name("image.png")),
            [path.with_name(f"calib_{x}.txt") for x in CALIBRATION],
        )
        left, right = (fi.read_calibration(files, camera) for camera in (2, 3))
        disparity = fi.read_flow(path.with_name("disp.png"), "px/256")[0]
        # The matrices differ by focal length times baseline alone.
        yield (
            path.parent,
            image,
            (left - right)[0, 3] / disparity,
            [fi.project(fi.read_velodyne(path), left, image.shape)[:2]],
        )


def unit_of(path: Path) -> str:
    """The unit of a depth image."""
    return "mm" if "NYU" in path.parts else "m/256"


def main() -> None:
    """Print a line per frame and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for place, image, truth, inputs in frames(options.folder, options.seeds):
        for seed, (uv, depth) in enumerate(inputs):
            found = [fi.complete_depth(image, uv, depth).flow]
            given = depth_image(uv, depth, image.shape)
            found += [fi.inpaint(image, given, method="harmonic", space=space).flow for space in ("linear", "inverse")]
            print(place.relative_to(options.folder), seed, *(scores(x, truth) for x in found), sep="  ", flush=True)


if __name__ == "__main__":
    main()
