"""The picture of a `Result`: a sheet for files, and a smaller one for notebooks."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from flowinpaint.opencv import cv2
from flowinpaint.viz.colours import Rgb
from flowinpaint.viz.sheet import SHEET_WIDTH, preview

if TYPE_CHECKING:
    from flowinpaint.result import Arrays, Info

NOTEBOOK_WIDTH, JUDGED_WIDTH = 640, 960
"""Largest width of the sheet in a notebook, in px: with two columns, and with three if the vectors are judged."""
_STYLE = "margin: 0; white-space: pre-wrap"


def result_sheet(arrays: Arrays, info: Info, width: int = SHEET_WIDTH) -> Rgb:
    """Draw image, given vectors, result and expected errors (h, w, 3); `width` is the largest one, as in `preview`."""
    name = str(info["method"]).rpartition("/")[2]
    known = np.asarray(np.isfinite(arrays.given).all(axis=2))
    return preview(
        arrays.image,
        arrays.given,
        known,
        {name: (arrays.flow, f"{info['seconds']:.2f} s")},
        expected={name: arrays.expected_error},
        inliers=arrays.inliers,
        width=width,
    )


def result_html(arrays: Arrays | None, info: Info, about: str) -> str:
    """The sheet as an embedded PNG, and a line of facts."""
    text = f'<pre style="{_STYLE}">{escape(about)}</pre>'
    if arrays is None:
        return f"<div>{text}</div>"
    sheet = result_sheet(arrays, info, NOTEBOOK_WIDTH if arrays.inliers is None else JUDGED_WIDTH)
    _, png = cv2.imencode(".png", cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, 6])
    source = f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
    picture = f'<img src="{source}" width="{sheet.shape[1]}" alt="Result of {escape(str(info["method"]))}">'
    return f"<div>{picture}{text}</div>"
