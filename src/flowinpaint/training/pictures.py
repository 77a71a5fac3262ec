"""What a model makes of held-out scenes and of frames, as one sheet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowinpaint.api import inpaint
from flowinpaint.metrics import epe
from flowinpaint.networks.network import Network
from flowinpaint.training.validation import OURS, RIVALS, Validator
from flowinpaint.viz.colours import as_rgb, colour_field, draw_given, field_range, resized
from flowinpaint.viz.sheet import Panel, contact_sheet

ROWS = 4
PANEL = (432, 288)
"""The width and height that a picture must fit into."""


def validation_sheet(validator: Validator, model: Network) -> npt.NDArray[np.uint8]:
    """Some held-out scenes and frames, one a row: image, given vectors, truth, other methods and this model."""
    density = validator.densities[len(validator.densities) // 2]
    panels: list[Panel | None] = []
    for frame in validator.examples(density, ROWS):
        limits = field_range(frame.truth)
        height, width = frame.mask.shape
        scale = min(PANEL[0] / width, PANEL[1] / height)
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        results = {
            rival: inpaint(frame.image, frame.truth, frame.mask, rival, validator.device).flow for rival in RIVALS
        }
        results[OURS] = validator.fill(model, frame)
        row = [
            ("Image", as_rgb(frame.image)),
            (f"Given\n{100 * density:g} %", draw_given(frame.image, frame.truth, frame.mask, limits, size)),
            ("Truth", colour_field(frame.truth, limits)),
        ]
        row += [
            (f"{name}\nEPE {epe(field, frame.truth, frame.valid):.3f} px", colour_field(field, limits))
            for name, field in results.items()
        ]
        panels += [(title, resized(rgb, size)) for title, rgb in row]
    return contact_sheet(panels, columns=6)
