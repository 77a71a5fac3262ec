"""Error in the hole of a removed object that is still visible in the image, for the table of docs/inputs.md.

    python benchmarks/object_removal.py FRAMES CUTOUTS

FRAMES has <dataset>/<sample>/{image.png, flow.*}. CUTOUTS has pictures of objects, NAME.jpg with the mask NAME.png.
An object of 45 % of the image's height is pasted at a random place. The flow is known at 5 % of the pixels outside it.
"""

import argparse
import warnings
from pathlib import Path

import cv2
import numpy as np
from scipy.ndimage import binary_dilation

import flowinpaint as fi

HEIGHT, MARGIN, DENSITY = 0.45, 4, 0.05
WAYS = ("clean image", "object visible", "image_where", "grey image", "Telea", "harmonic")


def main() -> None:
    """Print the endpoint errors in the holes, and their means relative to the clean image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frames", type=Path)
    parser.add_argument("cutouts", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    masks = sorted(options.cutouts.glob("*.png"))
    rows = []
    for path in sorted(options.frames.glob("*/*/image.png")):
        truths = sorted(path.parent.glob("flow.*"))
        if not truths:
            continue
        picture, (flow, valid) = fi.read_image(path), fi.read_flow(truths[0])
        image = np.asarray(picture if picture.ndim == 3 else np.dstack([picture] * 3))
        pasted, hole = paste(image, masks[rng.integers(len(masks))], rng)
        if (valid & hole).sum() < 200:
            continue
        known = valid & ~hole & (rng.random(valid.shape) < DENSITY)
        bgr = np.ascontiguousarray(pasted)
        telea = cv2.inpaint(bgr, hole.astype(np.uint8), 5, cv2.INPAINT_TELEA)
        fills = (
            fi.inpaint(image, flow, known),
            fi.inpaint(pasted, flow, known),
            fi.inpaint(pasted, flow, known, image_where=~hole),
            fi.inpaint(np.full_like(image, 128), flow, known),
            fi.inpaint(telea, flow, known),
            fi.inpaint(None, flow, known, method="harmonic"),
        )
        truth = np.where(valid[..., None], flow, np.nan)
        rows.append([fi.epe(result.flow, truth, valid=valid & hole) for result in fills])
        print(path.parent.parent.name, path.parent.name, *(f"{error:.3f}" for error in rows[-1]), flush=True)
    ratios = np.array(rows) / np.array(rows)[:, :1]
    print(f"{len(rows)} frames; geometric mean and median relative to the clean image:")
    for name, ratio in zip(WAYS, ratios.T, strict=True):
        print(f"{name:16} {np.exp(np.log(ratio).mean()):.2f} {np.median(ratio):.2f}")


def paste(image: np.ndarray, mask_file: Path, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The image with an object at a random place, and the hole (H, W) that is to be filled."""
    shape = fi.read_image(mask_file)
    mask = np.asarray((shape if shape.ndim == 2 else shape[..., 0]) > 127)
    size = round(mask.shape[1] * HEIGHT * image.shape[0] / max(mask.shape)), 0
    scale = size[0] / mask.shape[1]
    mask = cv2.resize(mask.astype(np.uint8), None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST) > 0
    picture = cv2.resize(fi.read_image(mask_file.with_suffix(".jpg")), (mask.shape[1], mask.shape[0]))
    y, x = (int(rng.integers(0, image.shape[i] - mask.shape[i])) for i in (0, 1))
    pasted, hole = image.copy(), np.zeros(image.shape[:2], np.bool_)
    pasted[y : y + mask.shape[0], x : x + mask.shape[1]][mask] = picture[mask]
    hole[y : y + mask.shape[0], x : x + mask.shape[1]] = mask
    return pasted, np.asarray(binary_dilation(hole, np.ones((3, 3), np.bool_), MARGIN))


if __name__ == "__main__":
    main()
