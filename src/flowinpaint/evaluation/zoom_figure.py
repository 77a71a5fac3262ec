"""Zoom figure: samples next to the results of methods, enlarged where the truth has its strongest edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import distance_transform_edt

from flowinpaint.api import inpaint
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.data.folder import Frame
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.errors import InputError
from flowinpaint.evaluation.report import short_names
from flowinpaint.io import write_image
from flowinpaint.io.files import write_bytes
from flowinpaint.masks.cases import Case, case_text, drawn_mask
from flowinpaint.metrics import epe
from flowinpaint.opencv import cv2
from flowinpaint.viz.colours import Field, Rgb, as_rgb, colour_field, draw_given, field_range, resized
from flowinpaint.viz.sheet import Panel, contact_sheet

Window = tuple[slice, slice]

ENLARGED = 0.25
"""Side length of the enlarged part relative to the frame."""
SHEET_WIDTH = 1800
PANEL_WIDTHS = (240, 320)
OWN_SIZE = (320, 480)
OWN_SCENE = 2**61 + 1
"""Number of the generated scene below the landscape; training counts from 0 and does not reach it."""
JPEG_QUALITY = 70
_BOX = (230, 30, 30)
_NEAR = 3
"""The largest distance in px to a valid pixel at which a jump counts."""


@dataclass(frozen=True)
class ZoomRow:
    """A frame with a title, and the methods' results by name: fields (H, W, C)."""

    title: str
    frame: Frame
    filled: dict[str, Field]


def own_frames(case: Case, seed: int = 0) -> dict[str, Frame]:
    """The package's own frames by title: a landscape, and a scene of the training generator."""
    landscape = sample_scene(*OWN_SIZE)
    batch = LayeredFlow(size=OWN_SIZE).scenes(torch.tensor([OWN_SCENE]))
    image, flow = (planes[0].movedim(0, -1).numpy() for planes in (batch.image, batch.flow))
    valid = np.ones(OWN_SIZE, np.bool_)
    mask = drawn_mask(case, OWN_SIZE, seed, valid)
    return {
        "landscape": Frame(landscape.image, landscape.flow, valid, mask),
        "generated scene": Frame(as_rgb(image), flow, valid, mask),
    }


def fill_rows(
    frames: Mapping[str, Frame], methods: Sequence[str], device: str | torch.device = "auto"
) -> list[ZoomRow]:
    """Fill frames, given by title, with methods: names or weights files."""
    names = short_names(methods)
    return [
        ZoomRow(title, f, {name: inpaint(f.image, f.given, f.mask, m, device).flow for m, name in names.items()})
        for title, f in frames.items()
    ]


def zoom_figure(rows: Sequence[ZoomRow], case: Case) -> Rgb:
    """Image, given vectors, truth and results of each row side by side, and below each its part in the red box.

    The title of a result has its EPE (px) over the frame and in the box. The colours of a row span the truth's range.
    """
    if not rows:
        raise InputError("rows must have at least one element, got none")
    columns = 3 + max(len(row.filled) for row in rows)
    width = int(np.clip(SHEET_WIDTH // columns, *PANEL_WIDTHS))
    panels: list[Panel | None] = []
    for row in rows:
        drawn = _row_panels(row, case, width)
        panels += [*drawn, *[None] * (columns - len(drawn))]
    return contact_sheet(panels, columns)


def strongest_edges(truth: Field, valid: npt.NDArray[np.bool_]) -> Window:
    """The window of a field (H, W, C) with the largest sum of squared jumps between neighbours, or the centre if none.

    The square makes a border outweigh a slope. A pixel that is not valid (H, W) gets the vector of the nearest valid
    one if that is close; so there are borders between the scan lines of a laser, but not in an empty sky.
    """
    distance, nearest = distance_transform_edt(~valid, return_indices=True)
    values, near = truth[tuple(nearest)].astype(np.float64), distance <= _NEAR
    energy = np.zeros(valid.shape)
    energy[:, 1:] += ((values[:, 1:] - values[:, :-1]) ** 2).sum(2) * (near[:, 1:] & near[:, :-1])
    energy[1:] += ((values[1:] - values[:-1]) ** 2).sum(2) * (near[1:] & near[:-1])
    (H, W), (h, w) = valid.shape, (max(1, round(ENLARGED * n)) for n in valid.shape)
    if not energy.any():
        top, left = (H - h) // 2, (W - w) // 2
    else:
        total = np.pad(energy, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
        inside = total[h:, w:] - total[:-h, w:] - total[h:, :-w] + total[:-h, :-w]
        top, left = (int(i) for i in np.unravel_index(int(inside.argmax()), inside.shape))
    return slice(top, top + h), slice(left, left + w)


def write_figure(path: Path, figure: Rgb) -> None:
    """Write a picture; a JPEG with a lower quality than `write_image`."""
    if path.suffix.lower() not in (".jpg", ".jpeg"):
        write_image(path, figure)
        return
    bgr = np.ascontiguousarray(figure[..., ::-1])
    write_bytes(path, cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes())


def _row_panels(row: ZoomRow, case: Case, width: int) -> list[Panel]:
    frame, limits = row.frame, field_range(row.frame.truth)
    window = strongest_edges(frame.truth, frame.valid)
    size = (width, max(1, round(width * frame.mask.shape[0] / frame.mask.shape[1])))
    image = as_rgb(frame.image)
    given = draw_given(image, frame.given, frame.mask, limits, size)
    given_part = draw_given(image[window], frame.given[window], frame.mask[window], limits, size)
    drawn = [(f"Image\n{row.title}", image, image[window]), (f"Given\n{case_text(case)}", given, given_part)]
    fields = {"Truth\n ": frame.truth}
    for name, field in row.filled.items():
        errors = f"EPE {epe(field, frame.truth, frame.valid):.3f}"
        if frame.valid[window].any():
            errors += f" | box {epe(field[window], frame.truth[window], frame.valid[window]):.3f}"
        fields[f"{name}\n{errors}"] = field
    for title, field in fields.items():
        colours = colour_field(field, limits)
        drawn.append((title, colours, colours[window]))
    gap = np.full((max(2, width // 60), width, 3), 238, np.uint8)
    return [
        (title, np.concatenate([_boxed(resized(whole, size), window, frame.mask.shape), gap, resized(part, size)]))
        for title, whole, part in drawn
    ]


def _boxed(picture: Rgb, window: Window, shape: tuple[int, ...]) -> Rgb:
    """The picture (h, w, 3) of a frame of shape (H, W), with a box around a window."""
    scale = (picture.shape[1] / shape[1], picture.shape[0] / shape[0])
    rows, columns = window
    first = (round(scale[0] * columns.start), round(scale[1] * rows.start))
    last = (round(scale[0] * columns.stop) - 1, round(scale[1] * rows.stop) - 1)
    return np.asarray(cv2.rectangle(picture.copy(), first, last, _BOX, 2), np.uint8)
