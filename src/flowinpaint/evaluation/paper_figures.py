"""Numbers published in the paper, to compare with measured ones.

Fischer, Peter, Weickert and Ilg, *Neuroexplicit Diffusion Models for Inpainting of Optical Flow Fields*, ICML 2024,
tables 1 to 3 and Figure 4. Its Figure 3 (error by the number of training samples and by the density) has no numbers,
but its text has two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Triple = tuple[float, ...]
"""Values at the three PAPER_DENSITIES."""

PAPER_DENSITIES = (0.01, 0.05, 0.10)
PAPER_METHODS = {"neuroexplicit-paper": "Ours", "laplace-beltrami": "LB", "eed": "EED", "amle": "AMLE"}
"""The paper's names for methods of this package."""
PAPER_NETWORKS = {"ours": "Ours", "flownets": "FlowNetS", "wgain": "WGAIN", "pd": "PD"}
"""The paper's names for the networks that `flowinpaint reproduce` trains."""


def paper_name(method: str) -> str:
    """The paper's name for a method or a network, or the name itself if the paper has none."""
    return (PAPER_METHODS | PAPER_NETWORKS).get(method, method)


@dataclass(frozen=True)
class PaperTable:
    """One block of Table 1, 2 or 3: values by the name of the method or network, at 1, 5 and 10 %.

    words: lower-case parts of the name of its data set.
    """

    title: str
    words: tuple[str, ...]
    figure: Literal["epe", "fl"]
    values: dict[str, Triple]

    def is_of(self, dataset: str) -> bool:
        """Whether this block is for a data set of that name."""
        return all(word in dataset.lower() for word in self.words)

    def value(self, method: str, density: float) -> float | None:
        """The value of a method, by its name in this package or in the paper; None if the paper has none."""
        row = self.values.get(paper_name(method))
        return None if row is None else row[PAPER_DENSITIES.index(density)]

    def difference(self, network: str, density: float) -> float | None:
        """A network's value minus the full network's in Table 2; None for the latter, or if the paper has none."""
        own, full = self.value(network, density), self.value("full", density)
        return None if own is None or full is None or network == "full" else round(own - full, 2)


_SINTEL, _THINGS, _KITTI = ("sintel",), ("flyingthings",), ("kitti", "15")
_TABLE_1 = {  # EPE on Sintel, and on FlyingThings3D
    "Ours": ((0.72, 0.40, 0.28), (1.01, 0.55, 0.39)),
    "LB": ((0.86, 0.43, 0.31), (2.03, 1.00, 0.75)),
    "EED": ((0.94, 0.52, 0.43), (2.06, 1.00, 0.73)),
    "AMLE": ((0.94, 0.51, 0.38), (2.03, 1.08, 0.82)),
    "FlowNetS": ((0.85, 0.57, 0.51), (2.33, 1.68, 1.55)),
    "WGAIN": ((1.14, 0.80, 0.60), (2.26, 1.73, 1.43)),
    "PD": ((2.39, 0.55, 0.40), (3.96, 1.09, 0.72)),
}
_TABLE_2 = {  # EPE minus that of the full network on Sintel, and on FlyingThings3D
    "minus-mu": ((0.17, 0.04, 0.04), (0.95, 0.28, 0.20)),
    "minus-v": ((0.07, 0.06, 0.04), (0.07, 0.02, 0.00)),
    "minus-alpha": ((0.03, 0.02, 0.02), (0.05, 0.06, 0.02)),
    "plus-beta": ((-0.02, -0.01, -0.01), (-0.04, -0.03, -0.01)),
    "plus-w": ((0.01, -0.01, 0.00), (0.00, -0.01, 0.03)),
}
_TABLE_3 = {  # EPE, and Fl, on KITTI 2015
    "Ours": ((1.07, 0.47, 0.23), (0.87, 0.25, 0.11)),
    "LB": ((1.07, 0.46, 0.23), (0.94, 0.26, 0.11)),
    "EED": ((1.11, 0.46, 0.23), (1.14, 0.27, 0.11)),
    "AMLE": ((1.26, 0.56, 0.30), (1.19, 0.35, 0.16)),
    "FlowNetS": ((1.43, 2.53, 4.96), (1.20, 2.26, 3.77)),
    "WGAIN": ((3.18, 7.00, 6.82), (3.59, 4.48, 4.39)),
}


def _column(table: Mapping[str, tuple[Triple, Triple]], number: int) -> dict[str, Triple]:
    return {name: row[number] for name, row in table.items()}


def _ablations(number: int) -> dict[str, Triple]:
    """The EPE of the networks of Table 2."""
    full = _TABLE_1["Ours"][number]
    rows = _column(_TABLE_2, number).items()
    return {"full": full} | {name: tuple(round(f + d, 2) for f, d in zip(full, row, strict=True)) for name, row in rows}


PAPER_TABLES = (
    PaperTable("Sintel (Table 1)", _SINTEL, "epe", _column(_TABLE_1, 0)),
    PaperTable("FlyingThings3D, the training's domain (Table 1)", _THINGS, "epe", _column(_TABLE_1, 1)),
    PaperTable("KITTI 2015 (Table 3)", _KITTI, "epe", _column(_TABLE_3, 0)),
    PaperTable("KITTI 2015 (Table 3)", _KITTI, "fl", _column(_TABLE_3, 1)),
)
PAPER_ABLATIONS = (
    PaperTable("Sintel (Table 2)", _SINTEL, "epe", _ablations(0)),
    PaperTable("FlyingThings3D, the training's domain (Table 2)", _THINGS, "epe", _ablations(1)),
)

PAPER_UNSEEN_DENSITY = (0.29, 0.28)
"""EPE on Sintel at 10 % of the paper's networks for 5 % and for 10 %, from its text on Figure 3."""


@dataclass(frozen=True)
class PaperCost:
    """A pair of bars of Figure 4: learned parameters, and milliseconds of one inference.

    The paper names neither size nor device; it trained on an A100, at 384×384.
    """

    parameters: int
    milliseconds: float


PAPER_COSTS = {
    "Ours": PaperCost(1_311_635, 17.57),
    "FlowNetS": PaperCost(8_835_728, 10.12),
    "WGAIN": PaperCost(11_505_882, 20.0),
    "PD": PaperCost(976_748_807, 97_402.57),
}
