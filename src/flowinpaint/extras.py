"""Optional dependencies: whether an extra of the package is installed, and the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec
from pkgutil import resolve_name

EXTRAS = {
    "fast": ("numba", "numba"),
    "peers": ("opencv-contrib", "cv2:ximgproc.createRICInterpolator"),
    "pd": ("diffusers", "diffusers"),
}
"""For each extra: the package it installs, and the name it makes importable, as "module" or "module:attribute"."""


def needs(extra: str) -> str:
    """The clause "needs PACKAGE (COMMAND)" for a message about an extra that is not installed."""
    return f"needs {EXTRAS[extra][0]} (pip install 'flowinpaint[{extra}]')"


def is_installed(extra: str) -> bool:
    """Whether the package of an extra can be imported."""
    target = EXTRAS[extra][1]
    if ":" not in target:  # without importing it, which is slow
        return find_spec(target) is not None
    try:
        return callable(resolve_name(target))
    except (ImportError, AttributeError):
        return False
