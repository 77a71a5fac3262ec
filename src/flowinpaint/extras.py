"""Optional dependencies: whether an extra of the package is installed, and the command that installs it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter

EXTRAS = {
    "fast": ("numba", "numba"),
    "peers": ("opencv-contrib", "cv2:ximgproc.createRICInterpolator"),
    "pd": ("diffusers", "diffusers"),
}
"""By extra: the package it installs, and what can then be imported, as "module" or "module:attribute"."""


def needs(extra: str) -> str:
    """The clause "needs PACKAGE (COMMAND)" for a message about an extra that is not installed."""
    return f"needs {EXTRAS[extra][0]} (pip install 'flowinpaint[{extra}]')"


def is_installed(extra: str) -> bool:
    """Whether what an extra stands for can be imported."""
    module, _, attribute = EXTRAS[extra][1].partition(":")
    if find_spec(module) is None:
        return False
    try:
        return not attribute or callable(attrgetter(attribute)(import_module(module)))
    except AttributeError:
        return False
