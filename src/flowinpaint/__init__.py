"""flowinpaint: dense optical flow, disparity or depth from a sparse field and an image.

    import flowinpaint as fi
    result = fi.inpaint(image, flow)   # flow (H, W, 2), NaN where unknown
    result.flow                        # (H, W, 2), dense

This list is the public interface; `flowinpaint.diffusion` holds the building blocks for other networks.
"""

import os

# PyTorch's CPU threads spin while they wait for each other, and a second busy program then makes an iteration of small
# steps up to a hundred times slower; threads that sleep at once are up to three times slower on an idle machine. So
# they look about for a moment and then sleep. Read when torch is first imported, so this stands before it; whoever sets
# the variables, or imports torch earlier, is left alone.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from flowinpaint.api import inpaint, load_model, methods
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io import read_flow, read_image, read_mask, write_flow, write_image, write_mask
from flowinpaint.masks import random_mask
from flowinpaint.metrics import epe, fl_outliers
from flowinpaint.networks.weights import save_model
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.result import Progress, Result
from flowinpaint.version import __version__
from flowinpaint.viz.colours import error_map, flow_to_rgb
from flowinpaint.viz.sheet import preview

__all__ = [
    "FileFormatError",
    "InputError",
    "MissingFileError",
    "Neuroexplicit",
    "NeuroexplicitConfig",
    "Progress",
    "Result",
    "__version__",
    "epe",
    "error_map",
    "fl_outliers",
    "flow_to_rgb",
    "inpaint",
    "load_model",
    "methods",
    "preview",
    "random_mask",
    "read_flow",
    "read_image",
    "read_mask",
    "save_model",
    "write_flow",
    "write_image",
    "write_mask",
]
