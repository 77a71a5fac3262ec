"""Draw the pictures of these pages with the package's demo scene: python docs/methods/pictures.py.

Needs the extras `fast` and `opencv`: pip install '.[fast,opencv]'.
"""

from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.errors import InputError
from flowinpaint.masks import random_mask
from flowinpaint.metrics import endpoint_error
from flowinpaint.viz.colours import FieldRange, Rgb, colour_field, draw_given, error_map, resized
from flowinpaint.viz.sheet import Panel, contact_sheet

METHODS = ("eed", "laplace-beltrami", "amle", "harmonic", "nearest", "opencv-edgeaware", "opencv-ric")
WORST_ERROR = 4.0
"""Pale yellow, in pixels; the captions name it."""
PANEL = (320, 220)

Field = npt.NDArray[Any]
Window = tuple[slice, slice]


class Case(NamedTuple):
    """Vectors at random, less those in a hole; the window of the scene to show, and the length of its full colours."""

    title: str
    density: float
    hole: Window | None
    window: Window
    longest: float


CASES = (
    Case("2 % at random", 0.02, None, (slice(200, 310), slice(200, 360)), 13.0),
    Case("5 % and a hole", 0.05, (slice(44, 116), slice(222, 294)), (slice(24, 134), slice(166, 326)), 7.5),
)
"""A ball before a meadow, and a balloon before a sky and mountains."""


class Drawing:
    """The panels to show for one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.image, self.truth = sample_scene(seed=0)
        self.mask = random_mask(self.truth.shape[:2], case.density, seed=0)
        if case.hole is not None:
            self.mask[case.hole] = False

    def inputs(self) -> list[Panel]:
        """Image, given vectors and truth."""
        window, limits = self.case.window, FieldRange(0.0, self.case.longest)
        given = draw_given(self.image[window], self.truth[window], self.mask[window], limits, PANEL)
        return [
            ("Image", resized(self.image[window], PANEL)),
            (f"Given: {self.case.title}", given),
            ("Truth", self._field(self.truth)),
        ]

    def results(self, method: str) -> list[Panel]:
        """The field that a method makes of it, and its error."""
        filled = fi.inpaint(self.image, self.truth, self.mask, method=method, device="cpu").flow
        error = endpoint_error(filled, self.truth)[self.case.window]
        return [(method, self._field(filled)), (f"Error of {method}", resized(error_map(error, WORST_ERROR), PANEL))]

    def _field(self, flow: Field) -> Rgb:
        return resized(colour_field(flow[self.case.window], FieldRange(0.0, self.case.longest)), PANEL)


def main(folder: Path) -> None:
    """Write one picture per method and the one that compares them all."""
    if missing := sorted(set(METHODS) - set(fi.methods())):
        raise InputError(f"{', '.join(missing)}: not there to be drawn; pip install '.[fast,opencv]'")
    drawings = [Drawing(case) for case in CASES]
    results = [{method: drawing.results(method) for method in METHODS} for drawing in drawings]
    for method in METHODS:
        rows: list[Panel | None] = []
        for drawing, of_method in zip(drawings, results, strict=True):
            rows += [*drawing.inputs(), *of_method[method]]
        _write(folder / f"{method}.jpg", contact_sheet(rows, columns=5))

    image, given, truth = drawings[0].inputs()
    inputs = [_stacked("Image, and what is given", image, given), truth]
    filled = [_stacked(method, *results[0][method]) for method in METHODS]
    _write(folder / "all.jpg", contact_sheet([inputs[0], *filled[:4], inputs[1], *filled[4:]], columns=5))


def _stacked(title: str, upper: Panel, lower: Panel) -> Panel:
    return title, np.concatenate([upper[1], lower[1]])


def _write(path: Path, sheet: Rgb) -> None:
    # Not fi.write_image, whose quality makes files twice the size.
    cv2.imwrite(str(path), cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 80])


if __name__ == "__main__":
    main(Path(__file__).parent)
