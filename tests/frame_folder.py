"""A small folder of frames with ground truth, for tests of code that reads such folders."""

from pathlib import Path

import numpy as np

import flowinpaint as fi
from image_pair import SHIFT, image_pair

H, W = 20, 30


def make_sample(folder: Path, truth: str = "flow.flo", seed: int = 0) -> Path:
    """A random frame whose left fifth has no truth, with a fixed mask of 10 % over all of it."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    fi.write_image(folder / "image.png", rng.integers(0, 256, (H, W, 3), dtype=np.uint8))
    field = rng.uniform(1, 9, (H, W, 1 if truth.startswith("disp") else 2)).astype(np.float32)
    field[:, : W // 5] = np.nan
    fi.write_flow(folder / truth, field, unit="px/256")
    fi.write_mask(folder / "mask_10.png", fi.random_mask((H, W), 0.1, seed))
    return folder


def make_root(root: Path) -> Path:
    """Two data sets of two frames each, one of flow and one of disparity."""
    make_sample(root / "A" / "one")
    make_sample(root / "A" / "two", "flow.png", seed=1)
    make_sample(root / "B" / "one", "disp.pfm", seed=2)
    make_sample(root / "B" / "three", "disp.png", seed=3)
    return root


def make_pair(folder: Path, seed: int = 0) -> Path:
    """A frame with a second image, to which its texture moves, and no truth in its left fifth."""
    folder.mkdir(parents=True)
    first, second = image_pair(seed=seed)
    fi.write_image(folder / "image.png", first)
    fi.write_image(folder / "image2.png", second)
    field = np.full((*first.shape, 2), SHIFT, np.float32)
    field[:, : first.shape[1] // 5] = np.nan
    fi.write_flow(folder / "flow.flo", field)
    return folder
