"""Fill the holes that a forward-backward check leaves in a dense flow, compare methods, and draw the result.

    .venv/bin/python examples/fill_holes.py [OUT.png]

The scene is generated, so the truth is known; replace the first block of main() by your own image and flow.
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.ndimage import binary_dilation, gaussian_filter

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene


def failed_check(flow: npt.NDArray[np.float32], seed: int = 0) -> npt.NDArray[np.bool_]:
    """True where a forward-backward check would typically fail: along motion edges, and in patches of poor texture."""
    jump = np.linalg.norm(np.diff(flow, axis=1, append=flow[:, -1:]), axis=-1)
    jump += np.linalg.norm(np.diff(flow, axis=0, append=flow[-1:]), axis=-1)
    occluded = binary_dilation(jump > 1, iterations=5)
    patches = gaussian_filter(np.random.default_rng(seed).normal(size=flow.shape[:2]), 12)
    failed: npt.NDArray[np.bool_] = occluded | (patches > np.quantile(patches, 0.9))
    return failed


def main() -> None:
    image, truth = sample_scene(seed=3)
    flow = truth.copy()
    flow[failed_check(truth)] = np.nan  # NaN means unknown, so no mask is needed

    known = ~np.isnan(flow[..., 0])
    results = {}
    for method in ("neuroexplicit", "laplace-beltrami", "eed", "harmonic", "nearest"):
        result = fi.inpaint(image, flow, method=method)
        results[method] = result.flow
        error = fi.epe(result.flow, truth, valid=~known)
        print(f"{method:16s} EPE in the holes {error:6.3f} px   {result.info['seconds']:5.2f} s")

    out = Path(sys.argv[1] if len(sys.argv) > 1 else "fill_holes.png")
    fi.write_image(out, fi.preview(image, flow, known, results, truth))
    print(f"{100 * (1 - known.mean()):.0f} % of the vectors were missing; look at {out}")


if __name__ == "__main__":
    main()
