"""Contact sheets of pictures with titles and keys, and `preview`, which compares results."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import InputError
from flowinpaint.metrics import endpoint_error, epe, fl_outliers
from flowinpaint.opencv import cv2
from flowinpaint.text_tables import three_figures
from flowinpaint.viz.arrows import draw_arrow
from flowinpaint.viz.colours import (
    STRIPE,
    Field,
    FieldRange,
    Rgb,
    as_rgb,
    check_alike,
    colour_field,
    draw_given,
    error_limit,
    error_map,
    field_range,
    map_colours,
    resized,
    stripes,
    wheel_colours,
)

Panel = tuple[str, Rgb]
Panels = list[Panel | None]

SHEET_WIDTH = 2400
_PANEL_HEIGHT = 1000
_SMALL_PANEL = 240
_NO_IMAGE = 128
_THINNEST = 16
_MAX_COLUMNS = 6
# Off-white, so that a static field (white) stands out.
_PAPER = 238
_INK, _FAINT = (25, 28, 33), (95, 100, 110)


def preview(
    image: Field | None,
    flow: Field,
    mask: npt.NDArray[np.bool_],
    results: Mapping[str, Field | tuple[Field, str]],
    truth: Field | None = None,
    expected: Mapping[str, Field | None] | None = None,
    inliers: Field | None = None,
    width: int = SHEET_WIDTH,
) -> Rgb:
    """Draw a sheet of image, known vectors, each result, and, with a truth, the errors.

    image, flow and mask are as in `draw_given`; without an image (None) the known vectors are on grey. results are
    fields (H, W, C) by name, optionally with a line of small print. truth is (H, W, C), non-finite where unknown.
    expected are the expected errors (H, W) of results by name (`Result.expected_error`), grey where infinite. inliers
    (H, W) are the probabilities that the known vectors are correct (`Result.inliers`), drawn from blue (wrong) to red
    (correct). All fields share one colour range, without the wrong vectors, and all error maps another, both shown in a
    key. The sheet is at most about `width` px wide.
    """
    expected = expected or {}
    if unknown := sorted(expected.keys() - results.keys()):
        raise InputError(f"expected must have names of results, got {unknown[0]!r}")
    fields = {name: r if isinstance(r, tuple) else (r, "") for name, r in results.items()}
    ground = np.full(mask.shape, _NO_IMAGE, np.uint8) if image is None else image
    check_alike(ground, flow, mask, *(field for field, _ in fields.values()), *([] if truth is None else [truth]))
    expected_errors = {name: np.where(np.isinf(e), np.nan, e) for name, e in expected.items() if e is not None}
    for name, error in expected_errors.items():
        if error.shape != mask.shape:
            raise InputError(f"expected must have shape {mask.shape}, got {error.shape} for {name!r}")
    if inliers is not None and inliers.shape != mask.shape:
        raise InputError(f"inliers must have shape {mask.shape}, got {inliers.shape}")
    shown = mask if inliers is None or not (inliers >= 0.5).any() else mask & (inliers >= 0.5)
    limits = field_range(np.where(shown[..., None], flow, np.nan) if truth is None else truth)
    rows = -(-len(fields) // _MAX_COLUMNS)
    columns = max(2 if truth is None and inliers is None else 3, -(-len(fields) // max(rows, 1)))
    size = _panel_size(mask.shape, columns, width)
    share = f"{np.count_nonzero(mask)} of {mask.size} px | {three_figures(100 * mask.mean())} %"
    inputs: Panels = [(f"Given\n{share}", draw_given(ground, flow, mask, limits, size))]
    if image is not None:
        inputs.insert(0, (f"Image\n{mask.shape[1]} x {mask.shape[0]} px", as_rgb(image)))
    if inliers is not None:
        wrong = int(np.count_nonzero(inliers[mask] < 0.5)) / max(1, int(np.count_nonzero(mask)))
        judged = draw_given(ground, inliers[..., None], mask & np.isfinite(inliers), FieldRange(0.0, 1.0), size)
        inputs.append((f"Judged\nblue: wrong, {three_figures(100 * wrong)} %", judged))
    errors: dict[str, Field] = {}
    if truth is not None:
        inputs.append(("Ground truth", colour_field(truth, limits)))
        errors = {name: endpoint_error(field, truth) for name, (field, _) in fields.items()}
    filled: Panels = [
        (f"{name}\n{_score(field, truth, note)}", _filled_picture(_thinned(field, size), limits, size))
        for name, (field, note) in fields.items()
    ]
    stacked, keys = [filled], [field_key(limits, flow.shape[2], size[0])]
    if maps := [*errors.values(), *expected_errors.values()]:
        worst = error_limit(*maps)
        for title, of in (("Error of", errors), ("Expected error of", expected_errors)):
            if of:
                stacked.append(
                    [
                        (f"{title} {n}", _error_picture(_thinned(of[n], size), worst, size)) if n in of else None
                        for n in fields
                    ]
                )
        label = "error" if errors else "expected error"
        beyond = any((error[np.isfinite(error)] > worst).any() for error in maps)
        unit = _unit(flow) + (" and above" if beyond else "")
        keys.append(_bar_key(label, FieldRange(0.0, worst), unit, cv2.COLORMAP_INFERNO, size[0]))
    return contact_sheet(_grid(inputs, stacked, keys, columns, size), columns)


def _grid(inputs: Panels, stacked: list[Panels], keys: list[Rgb], columns: int, size: tuple[int, int]) -> Panels:
    """The panels row by row: inputs, then results with their errors below, or to the right of a single result.

    The keys are in the first free place, or in a new row.
    """
    if len(stacked[0]) == 1:
        rows = [inputs, [panel for row in stacked for panel in row]]
    else:
        rows = [inputs, *(row[i : i + columns] for i in range(0, len(stacked[0]), columns) for row in stacked)]
    panels: Panels = []
    for row in rows:
        panels += [panel and (panel[0], resized(panel[1], size)) for panel in row] + [None] * (columns - len(row))
    if None not in panels:
        return [*panels, ("Key", keys[0]), *(("", key) for key in keys[1:])]
    panels[panels.index(None)] = ("Key", np.concatenate(keys))
    return panels


def _filled_picture(field: Field, limits: FieldRange, size: tuple[int, int]) -> Rgb:
    """The colours of a field (H, W, C), striped where it is unknown, for a panel of this size."""
    return _striped(colour_field(field, limits), np.asarray(np.isfinite(field).all(axis=2)), size)


def _error_picture(error: Field, worst: float, size: tuple[int, int]) -> Rgb:
    """The colours of an error (H, W), striped where there is none, for a panel of this size."""
    return _striped(error_map(error, worst), ~np.isnan(error), size)


def _striped(picture: Rgb, known: npt.NDArray[np.bool_], size: tuple[int, int]) -> Rgb:
    if known.all():
        return picture
    H, W = known.shape
    return np.where(known[..., None], picture, stripes(H, W, round(STRIPE * W / size[0])))


def _score(field: Field, truth: Field | None, note: str) -> str:
    """The small print of a result: its errors, if the truth is known, the share of unknown pixels, and the note."""
    parts = [] if truth is None else [f"EPE {three_figures(epe(field, truth))}{_unit(field)}"]
    if truth is not None and field.shape[2] == 2:
        parts.append(f"Fl {three_figures(fl_outliers(field, truth))} %")
    if unknown := np.count_nonzero(~np.isfinite(field).all(axis=2)):
        parts.append(f"striped: unknown, {three_figures(100 * unknown / field[..., 0].size)} %")
    return " | ".join([*parts, note] if note else parts)


def _unit(field: Field) -> str:
    # One channel may be a depth in metres; only flow is certainly in px.
    return " px" if field.shape[2] == 2 else ""


def contact_sheet(panels: Sequence[Panel | None], columns: int) -> Rgb:
    """Arrange pictures (h, w, 3) in a grid, row by row, each below its title; None leaves a place free.

    The first line of a title is large, further lines are small. OpenCV's letters are ASCII only.
    """
    if not panels or columns < 1:
        raise InputError(f"panels and columns must be at least 1, got {len(panels)} and {columns}")
    cell = max([_SMALL_PANEL] + [panel[1].shape[1] for panel in panels if panel])
    em = _letter_size(cell)
    rows = [_sheet_row(panels[i : i + columns], columns, cell, em) for i in range(0, len(panels), columns)]
    return np.pad(np.concatenate(rows), ((em, 0), (em, 0), (0, 0)), constant_values=_PAPER)


def _sheet_row(row: Sequence[Panel | None], columns: int, cell: int, em: int) -> Rgb:
    """One row of the sheet, with titles above the pictures and margins to their right and below."""
    placed = [(i * (cell + em), panel[0].split("\n"), panel[1]) for i, panel in enumerate(row) if panel]
    head = round((0.5 + 1.3 * max((len(lines) for _, lines, _ in placed), default=0)) * em)
    body = max((rgb.shape[0] for _, _, rgb in placed), default=0)
    strip = _paper(head + body + em, columns * (cell + em))
    for left, lines, rgb in placed:
        for i, text in enumerate(lines):
            size = (1.0 if i == 0 else 0.8) * em
            size *= min(1.0, cell / max(1, _text_width(text, size)))
            _write(strip, text, (left, (1 + 1.3 * i) * em), size, _FAINT if i else _INK)
        strip[head : head + rgb.shape[0], left : left + rgb.shape[1]] = rgb
    return strip


def field_key(limits: FieldRange, channels: int, width: int) -> Rgb:
    """The key of a field's colours: a bar, or for flow the colour wheel with a legend."""
    if channels != 2:
        return _bar_key("value" if channels == 1 else "length", limits, "", cv2.COLORMAP_TURBO, width)
    em = _letter_size(width)
    key = _paper(5 * em, max(width, _SMALL_PANEL))
    v, u = np.mgrid[: 5 * em, : 5 * em].astype(np.float32) - (2.5 * em - 0.5)
    cover = np.clip(2.2 * em + 0.5 - np.hypot(u, v), 0, 1)[..., None]
    key[:, : 5 * em] = cover * wheel_colours(u, v, 2.2 * em + 1) + (1 - cover) * _PAPER
    for line, text in enumerate(("hue: direction", f"rim: {three_figures(limits.high)} px", "darker: beyond")):
        _write(key, text, (5.6 * em, (1.7 + 1.2 * line) * em), 0.8 * em, _FAINT)
    return key


def arrow_key(value: float, length: float, spacing: int, width: int) -> Rgb:
    """The key of arrows: one of `length` px with the value it stands for."""
    em = _letter_size(width)
    key = _paper(round(2.2 * em), max(width, _SMALL_PANEL))
    start = np.array([0.4 * em, 1.1 * em])
    draw_arrow(key, start, np.array([length, 0.0]), spacing, _INK, max(1, round(spacing / 14)) + 1)
    _write(key, f"{three_figures(value)} px", (length + 1.2 * em, 1.4 * em), 0.8 * em, _FAINT)
    return key


def _bar_key(name: str, limits: FieldRange, unit: str, colormap: int, width: int) -> Rgb:
    """A bar of the colours from low to high, with labels below it."""
    em, length = _letter_size(width), max(width, _SMALL_PANEL)
    key = _paper(4 * em, length)
    ramp = np.linspace(limits.low, limits.high, length, dtype=np.float32)[None].repeat(em, axis=0)
    key[em : 2 * em] = map_colours(ramp, limits, colormap)
    for place, text in enumerate((three_figures(limits.low), name, three_figures(limits.high) + unit)):
        x = place / 2 * (length - _text_width(text, 0.8 * em))
        _write(key, text, (x, 3.1 * em), 0.8 * em, _FAINT)
    return key


def _panel_size(shape: tuple[int, ...], columns: int, sheet_width: int) -> tuple[int, int]:
    """The (width, height) of panels for pictures (H, W): shrunk to fit, or enlarged by an integer factor."""
    height, width = shape
    margin = _letter_size(sheet_width // columns)
    room = (sheet_width - margin) // columns - margin
    shrink = min(1.0, room / width, _PANEL_HEIGHT / height)
    enlarge = max(1, min(-(-_SMALL_PANEL // width), 2 * _SMALL_PANEL // height))
    factor = shrink if shrink < 1 else enlarge
    return max(_THINNEST, round(width * factor)), max(_THINNEST, round(height * factor))


def _thinned(field: Field, size: tuple[int, int]) -> Field:
    """Every k-th row and column of a field that is shown at (width, height): at least two per pixel shown."""
    k = max(1, field.shape[1] // (2 * size[0]))
    return field[::k, ::k]


def _paper(height: int, width: int) -> Rgb:
    return np.full((height, width, 3), _PAPER, np.uint8)


def _letter_size(width: int) -> int:
    """The height in px of letters for pictures of a width."""
    return int(np.clip(width // 22, 13, 30))


def _font_scale(size: float) -> float:
    # The height of letters at scale 1 depends on the OpenCV version.
    (_, above), below = cv2.getTextSize("Ag", cv2.FONT_HERSHEY_SIMPLEX, 1.0, 1)
    return 1.25 * size / (above + below)


def _text_width(text: str, size: float) -> int:
    return cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, _font_scale(size), 1)[0][0]


def _write(picture: Rgb, text: str, origin: tuple[float, float], size: float, colour: tuple[int, int, int]) -> None:
    """Write letters of `size` px, with the start of their base line at the origin (x, y)."""
    letters, place = text.encode("ascii", "replace").decode(), (round(origin[0]), round(origin[1]))
    cv2.putText(picture, letters, place, cv2.FONT_HERSHEY_SIMPLEX, _font_scale(size), colour, 1, cv2.LINE_AA)
