"""Which pixels of a field are given."""

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import InputError


def random_mask(
    shape: tuple[int, int], density: float, seed: int = 0, valid: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.bool_]:
    """Mark a fraction of the pixels of a picture of shape (H, W), uniformly at random and without repeats.

    The count is exact, max(1, round(density * H * W)), and the same seed gives the same mask. With valid (H, W) the
    same count, a share of all pixels, is drawn from the valid ones: the paper's rule for KITTI.
    """
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(f"shape is {tuple(shape)}; a height and a width of at least 1 are taken.")
    if not 0 < density <= 1:
        raise InputError(f"density is {density}; a fraction above 0 and up to 1 is taken.")
    height, width = shape
    count = max(1, round(density * height * width))
    if valid is not None and (valid.shape != shape or valid.dtype != np.bool_):
        raise InputError(f"valid is {valid.dtype} {valid.shape}; bool of the shape {tuple(shape)} is taken.")
    places = np.arange(height * width) if valid is None else np.flatnonzero(valid)
    if count > places.size:
        raise InputError(
            f"density is {density}, {count} of {height * width} pixels; up to the {places.size} valid ones are taken."
        )
    # Drawn by place in the list: without valid these are the masks of the same seed in earlier versions.
    chosen = places[np.random.default_rng(seed).choice(places.size, size=count, replace=False, shuffle=False)]
    mask = np.zeros(height * width, dtype=np.bool_)
    mask[chosen] = True
    return mask.reshape(height, width)
