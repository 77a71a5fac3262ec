"""flowinpaint: dense optical flow, disparity or depth from a sparse field and an image.

    import flowinpaint as fi
    result = fi.inpaint(image, flow)   # flow (H, W, 2), NaN where unknown
    result.flow                        # (H, W, 2), dense

`__all__` is the public interface. A name is imported when it is first used: `import flowinpaint` does not import
PyTorch. `flowinpaint.diffusion` holds the building blocks for other networks.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# PyTorch's CPU threads spin while they wait for each other. If another program is busy, this slows small steps down up
# to a hundredfold; threads that sleep immediately are up to three times slower on an idle machine. These settings let
# them spin briefly, then sleep. PyTorch reads the variables when it is first imported. Values set by the user are kept.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# On the CPU, PyTorch and oneDNN each cache 1024 compiled convolutions, one per layer and size of the image: more than
# 100 MB after frames of many sizes. A call needs less than 100 of them.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
os.environ.setdefault("LRU_CACHE_CAPACITY", "128")

# Not lazy: it lets forked processes compute in one thread, also if only the caller has used PyTorch.
from flowinpaint import forked as forked

# Not lazy: importing the subpackage of the same name would bind the subpackage to this name.
from flowinpaint.methods.registry import methods
from flowinpaint.version import __version__

if TYPE_CHECKING:
    from flowinpaint.api import inpaint, load_model
    from flowinpaint.depth.camera import project, read_calibration
    from flowinpaint.depth.colmap import read_colmap
    from flowinpaint.depth.complete import complete_depth
    from flowinpaint.depth.velodyne import read_velodyne
    from flowinpaint.depth.visibility import visible_points
    from flowinpaint.errors import FileFormatError, InputError, MissingFileError
    from flowinpaint.io import read_flow, read_image, read_mask, write_flow, write_image, write_mask
    from flowinpaint.io.matches import Matches, read_matches
    from flowinpaint.io.tracks import read_tracks
    from flowinpaint.masks import random_mask
    from flowinpaint.methods.functions import numpy_method
    from flowinpaint.methods.registry import register_method
    from flowinpaint.metrics import epe, fl_outliers
    from flowinpaint.networks.weights import save_model
    from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
    from flowinpaint.neuroexplicit.model import Neuroexplicit
    from flowinpaint.points.fill import PointResults, inpaint_points
    from flowinpaint.result import Progress, Result, Solution
    from flowinpaint.viz.colours import error_map, flow_to_rgb
    from flowinpaint.viz.sheet import preview

__all__ = [
    "FileFormatError",
    "InputError",
    "Matches",
    "MissingFileError",
    "Neuroexplicit",
    "NeuroexplicitConfig",
    "PointResults",
    "Progress",
    "Result",
    "Solution",
    "__version__",
    "complete_depth",
    "epe",
    "error_map",
    "fl_outliers",
    "flow_to_rgb",
    "inpaint",
    "inpaint_points",
    "load_model",
    "methods",
    "numpy_method",
    "preview",
    "project",
    "random_mask",
    "read_calibration",
    "read_colmap",
    "read_flow",
    "read_image",
    "read_mask",
    "read_matches",
    "read_tracks",
    "read_velodyne",
    "register_method",
    "save_model",
    "visible_points",
    "write_flow",
    "write_image",
    "write_mask",
]

_LAZY = {
    "api": ("inpaint", "load_model"),
    "depth.camera": ("project", "read_calibration"),
    "depth.colmap": ("read_colmap",),
    "depth.complete": ("complete_depth",),
    "depth.velodyne": ("read_velodyne",),
    "depth.visibility": ("visible_points",),
    "errors": ("FileFormatError", "InputError", "MissingFileError"),
    "io": ("read_flow", "read_image", "read_mask", "write_flow", "write_image", "write_mask"),
    "io.matches": ("Matches", "read_matches"),
    "io.tracks": ("read_tracks",),
    "masks": ("random_mask",),
    "methods.functions": ("numpy_method",),
    "methods.registry": ("register_method",),
    "metrics": ("epe", "fl_outliers"),
    "networks.weights": ("save_model",),
    "neuroexplicit.config": ("NeuroexplicitConfig",),
    "neuroexplicit.model": ("Neuroexplicit",),
    "points.fill": ("PointResults", "inpaint_points"),
    "result": ("Progress", "Result", "Solution"),
    "viz.colours": ("error_map", "flow_to_rgb"),
    "viz.sheet": ("preview",),
}
_HOMES = {name: module for module, names in _LAZY.items() for name in names}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
