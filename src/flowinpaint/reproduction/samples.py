"""Figure of samples, as in the paper: filled frames at 5 %, enlarged where the truth has its strongest edges."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from flowinpaint.data.folder import FrameSource
from flowinpaint.evaluation.runner import fill_frame, frame_key
from flowinpaint.evaluation.zoom_figure import ZoomRow, strongest_edges, zoom_figure
from flowinpaint.metrics import epe
from flowinpaint.opencv import cv2
from flowinpaint.reproduction.drawing import Pictures
from flowinpaint.reproduction.experiment import MIDDLE, label, networks_at
from flowinpaint.reproduction.page import Page, provenance
from flowinpaint.reproduction.runs import Column
from flowinpaint.reproduction.session import MOST_ROWS, Session
from flowinpaint.text_tables import markdown_table, number
from flowinpaint.viz.colours import Field


def figure_samples(session: Session) -> Page:
    """A few frames, filled by the methods at 5 %."""
    frames = session.square.spread(MOST_ROWS)
    chosen = session.among()
    columns = [column for name in chosen if (column := session.column(name, MIDDLE)) is not None]
    rows = [_row(session, sample, columns) for sample in frames.samples]
    drawn = {name for row in rows for name in row.filled}
    for name in [name for name in session.missing if label(name) in drawn]:
        del session.missing[name]
    panels = [panel for row in rows for panel in _panels(row)]
    table = [[p["frame"], p["label"], number(p["epe"]), number(p["epe_box"])] for p in panels]
    paragraphs = [
        "# Samples at 5 %",
        "Below each picture is the part in the red box, around the strongest edges of the truth. EPE (px) is of the "
        "picture and of the box.",
        markdown_table(["frame", "method", "EPE", "in the box"], table, words=(0, 1)),
        *provenance(session, frames, None, networks_at(chosen, MIDDLE)),
    ]
    return Page(panels, paragraphs, partial(_pictures, rows), "Samples, enlarged at their edges")


def _pictures(rows: Sequence[ZoomRow]) -> Pictures:
    """The figure as PNG, and an SVG that contains the PNG."""
    figure = zoom_figure(rows, MIDDLE)
    png: bytes = cv2.imencode(".png", np.ascontiguousarray(figure[..., ::-1]))[1].tobytes()
    height, width = figure.shape[:2]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'<image width="{width}" height="{height}" href="data:image/png;base64,{base64.b64encode(png).decode()}"/>\n'
        "</svg>\n"
    )
    return {".png": png, ".svg": svg.encode()}


def _row(session: Session, sample: FrameSource, columns: Sequence[Column]) -> ZoomRow:
    """A frame and its fields: known ones, and those that can be computed here. Warnings are noted."""
    options, crop = session.run_options, session.square.crop
    frame = sample.load(MIDDLE, options.seed, crop)
    filled: dict[str, Field] = {}
    frame_of_run = frame_key(sample, MIDDLE, options.seed, options.device, crop)
    for column in columns:
        key = column.key(frame_of_run)
        field = session.records.find_field(key)
        if field is None and column.compute:
            record, result = fill_frame(key, frame)
            for note in record.notes:
                session.callbacks.note_once(note)
            if result is None:
                session.missing[column.name] = f"it failed on a frame: {record.error}"
                continue
            field = result.flow
            session.records.keep_field(key, field)
        if field is not None:
            filled[label(column.name)] = field
    title = f"{sample.dataset} {sample.name}"
    return ZoomRow(f"rehearsal: {title}" if session.scale.rehearsal else title, frame, filled)


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
