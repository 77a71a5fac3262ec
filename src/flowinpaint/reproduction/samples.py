"""The paper's figure of samples: what each method makes of a frame at 5 %, enlarged where the truth has its edges."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import cv2
import numpy as np

from flowinpaint.api import inpaint
from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.zoom_figure import ZoomRow, strongest_edges, zoom_figure
from flowinpaint.metrics import epe
from flowinpaint.reproduction.frames import AnySample
from flowinpaint.reproduction.measuring import Entrant, frame_key
from flowinpaint.reproduction.report import Report, label, number, provenance
from flowinpaint.reproduction.session import MOST_ROWS, Session
from flowinpaint.reproduction.study import MIDDLE, network_at
from flowinpaint.text_tables import markdown_table
from flowinpaint.viz.colours import Field, Rgb


def figure_samples(session: Session) -> Report:
    """A few frames, and what the contenders make of them at 5 %."""
    frames = session.square.spread(MOST_ROWS)
    found = [session.entrant(contender, MIDDLE) for contender in session.contenders()]
    entrants = [entrant for entrant in found if entrant is not None]
    rows = [_row(session, sample, entrants) for sample in frames.samples]
    drawn = {name for row in rows for name in row.filled}
    session.left_out = {name: reason for name, reason in session.left_out.items() if label(name) not in drawn}
    panels = [panel for row in rows for panel in _panels(row)]
    table = [[p["frame"], p["label"], number(p["epe"]), number(p["epe_box"])] for p in panels]
    paragraphs = [
        "# Samples at 5 %",
        "Below each picture is its part in the red box, where the truth has its strongest edges; EPE (px) is over the "
        "picture and in the box.",
        markdown_table(["frame", "method", "EPE", "in the box"], table, words=(0, 1)),
        *provenance(session, frames, None, [network_at(c.family, MIDDLE) for c in session.contenders() if c.family]),
    ]
    return Report(
        "figure-samples", panels, paragraphs, partial(picture_files, rows), "Samples, enlarged at their edges"
    )


def picture_files(rows: Sequence[ZoomRow]) -> dict[str, bytes]:
    """The figure as PNG, and the same inside of an SVG."""
    figure = zoom_figure(rows, MIDDLE)
    png = _png(figure)
    height, width = figure.shape[:2]
    data = base64.b64encode(png).decode()
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'<image width="{width}" height="{height}" href="data:image/png;base64,{data}"/>\n</svg>\n'
    )
    return {".png": png, ".svg": svg.encode()}


def _png(figure: Rgb) -> bytes:
    encoded: bytes = cv2.imencode(".png", np.ascontiguousarray(figure[..., ::-1]))[1].tobytes()
    return encoded


def _row(session: Session, sample: AnySample, entrants: Sequence[Entrant]) -> ZoomRow:
    frame = sample.load(MIDDLE, session.machine.seed, session.square.crop)
    filled: dict[str, Field] = {}
    for entrant in entrants:
        key = entrant.key(frame_key(sample, entrant.case, session.square.crop, session.machine))
        field = session.fields.find(key)
        if field is None and entrant.compute:
            field = _fill(session, frame, entrant)
            if field is not None:
                session.fields.keep(key, field)
        if field is not None:
            filled[label(entrant.column)] = field
    title = f"{sample.dataset} {sample.name}"
    return ZoomRow(f"rehearsal: {title}" if session.scale.rehearsal else title, frame, filled)


def _fill(session: Session, frame: Frame, entrant: Entrant) -> Field | None:
    """What an entrant makes of a frame, None if it fails; what it warns of is told."""
    values: dict[str, Any] = dict(entrant.parameters)
    given = (frame.image, frame.truth, frame.mask, entrant.method, session.machine.device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            filled = inpaint(*given, **values).flow
        except (ValueError, RuntimeError) as error:
            session.left_out[entrant.column] = f"it failed on a frame: {error}"
            return None
    for warning in caught:
        session.tell_once(str(warning.message))
    return filled


def _panels(row: ZoomRow) -> list[dict[str, Any]]:
    """The errors of a row's pictures."""
    frame, window = row.frame, strongest_edges(row.frame.truth, row.frame.valid)
    valid = frame.valid[window]
    return [
        {
            "frame": row.title,
            "label": name,
            "epe": epe(field, frame.truth, frame.valid),
            "epe_box": epe(field[window], frame.truth[window], valid) if valid.any() else None,
        }
        for name, field in row.filled.items()
    ]
