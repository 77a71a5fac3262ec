"""The figures that the paper publishes, to stand beside measured ones.

Fischer, Peter, Weickert and Ilg, *Neuroexplicit Diffusion Models for Inpainting of Optical Flow Fields*, ICML 2024,
tables 1 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PAPER_DENSITIES = (0.01, 0.05, 0.10)
PAPER_REFERENCE = "laplace-beltrami"
PAPER_METHODS = {
    "neuroexplicit-paper": "Ours",
    "laplace-beltrami": "LB",
    "eed": "EED",
    "amle": "AMLE",
}
"""What the paper calls methods of this package; it has others, which the package has not."""


@dataclass(frozen=True)
class PaperTable:
    """One block of a table: a figure by the paper's name of the method, at 1, 5 and 10 %.

    words: a data set whose name has all of them, without regard to capitals, is the one it was measured on.
    """

    title: str
    words: tuple[str, ...]
    figure: Literal["epe", "fl"]
    values: dict[str, tuple[float, float, float]]

    def value(self, method: str, density: float) -> float | None:
        """The figure of a method of this package or of the paper's own name, None if the paper has none."""
        row = self.values.get(PAPER_METHODS.get(method, method))
        return None if row is None else row[PAPER_DENSITIES.index(density)]

    def ratio(self, method: str, density: float) -> float | None:
        """R: the figure over that of Laplace-Beltrami."""
        own, other = self.value(method, density), self.value(PAPER_REFERENCE, density)
        return None if own is None or not other else own / other

    def is_of(self, dataset: str) -> bool:
        """Whether a data set has the name of this table's."""
        return all(word in dataset.lower() for word in self.words)


PAPER_TABLES = (
    PaperTable(
        "Sintel (Table 1)",
        ("sintel",),
        "epe",
        {
            "Ours": (0.72, 0.40, 0.28),
            "LB": (0.86, 0.43, 0.31),
            "EED": (0.94, 0.52, 0.43),
            "AMLE": (0.94, 0.51, 0.38),
            "FlowNetS": (0.85, 0.57, 0.51),
            "WGAIN": (1.14, 0.80, 0.60),
            "PD": (2.39, 0.55, 0.40),
        },
    ),
    PaperTable(
        "FlyingThings3D, the training's domain (Table 1)",
        ("flyingthings",),
        "epe",
        {
            "Ours": (1.01, 0.55, 0.39),
            "LB": (2.03, 1.00, 0.75),
            "EED": (2.06, 1.00, 0.73),
            "AMLE": (2.03, 1.08, 0.82),
            "FlowNetS": (2.33, 1.68, 1.55),
            "WGAIN": (2.26, 1.73, 1.43),
            "PD": (3.96, 1.09, 0.72),
        },
    ),
    PaperTable(
        "KITTI 2015 (Table 3)",
        ("kitti", "15"),
        "epe",
        {
            "Ours": (1.07, 0.47, 0.23),
            "LB": (1.07, 0.46, 0.23),
            "EED": (1.11, 0.46, 0.23),
            "AMLE": (1.26, 0.56, 0.30),
            "FlowNetS": (1.43, 2.53, 4.96),
            "WGAIN": (3.18, 7.0, 6.82),
        },
    ),
    PaperTable(
        "KITTI 2015 (Table 3)",
        ("kitti", "15"),
        "fl",
        {
            "Ours": (0.87, 0.25, 0.11),
            "LB": (0.94, 0.26, 0.11),
            "EED": (1.14, 0.27, 0.11),
            "AMLE": (1.19, 0.35, 0.16),
            "FlowNetS": (1.2, 2.26, 3.77),
            "WGAIN": (3.59, 4.48, 4.39),
        },
    ),
)
