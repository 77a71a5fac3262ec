"""Variants of methods: a name followed by options of `inpaint`, such as "neuroexplicit+robust+second"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flowinpaint.data.folder import Frame

ROBUST, SECOND = "+robust", "+second"


@dataclass(frozen=True)
class Variant:
    """A method, by name or weights file, and whether it gets `robust=True` and `second=` the next image."""

    method: str
    robust: bool = False
    second: bool = False

    @property
    def name(self) -> str:
        """The name, its options always in the same order."""
        return f"{self.method}{ROBUST if self.robust else ''}{SECOND if self.second else ''}"

    def keywords(self, frame: Frame) -> dict[str, Any]:
        """The keywords for `inpaint` on a frame."""
        options: dict[str, Any] = {"robust": True} if self.robust else {}
        return options | ({"second": frame.second} if self.second else {})


def parse_variant(name: str) -> Variant:
    """The variant of a name; one without options is the method itself."""
    method, found = name, set[str]()
    while option := next((o for o in (ROBUST, SECOND) if method.endswith(o)), ""):
        found.add(option)
        method = method.removesuffix(option)
    return Variant(method, ROBUST in found, SECOND in found)
