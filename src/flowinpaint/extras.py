"""Optional dependencies: whether an extra of the package is installed, and the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec
from pkgutil import resolve_name

from flowinpaint.errors import InputError
from flowinpaint.opencv import contrib_command

PEERS = "peers"
EXTRAS = {
    "fast": ("numba", "numba"),
    PEERS: ("opencv-contrib-python-headless", "flowinpaint.opencv:cv2.ximgproc.createRICInterpolator"),
    "pd": ("diffusers", "diffusers"),
    "plots": ("matplotlib", "matplotlib"),
    "train": ("tensorboard", "tensorboard"),
    "segmentation": ("scikit-image", "skimage"),
}
"""For each optional feature: the package that it needs, and the name this makes importable, as "module" or
"module:attribute"."""


def needs(feature: str) -> str:
    """The clause "needs PACKAGE (COMMAND)" for a message about a feature whose package is not installed."""
    if feature == PEERS:  # a second wheel of OpenCV would damage the first
        return f"needs OpenCV's contributed modules ({contrib_command()})"
    package = EXTRAS[feature][0]
    return f"needs {package} (pip install {package})"


def is_installed(feature: str) -> bool:
    """Whether the package of a feature can be imported."""
    target = EXTRAS[feature][1]
    if ":" not in target:  # without importing it, which is slow
        return find_spec(target) is not None
    try:
        return callable(resolve_name(target))
    except (ImportError, AttributeError, InputError):
        return False
