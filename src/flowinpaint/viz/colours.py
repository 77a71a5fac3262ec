"""Colours of flow fields and errors, and known vectors as dots; `flowinpaint.viz.sheet` arranges the pictures."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.arguments.arrays import field_of, map_of, plain
from flowinpaint.errors import InputError
from flowinpaint.opencv import cv2

Rgb = npt.NDArray[np.uint8]
Field = npt.NDArray[Any]

# Numbers of steps from each of these colours to the next, more where the eye is more sensitive
# (Baker et al., "A Database and Evaluation Methodology for Optical Flow", 2011).
_WHEEL_CORNERS = np.array([(1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1)], np.float32)
_WHEEL_STEPS = (15, 6, 4, 11, 13, 6)
_WHEEL: npt.NDArray[np.float32] = np.concatenate(
    [
        start + (end - start) * np.arange(steps, dtype=np.float32)[:, None] / steps
        for start, end, steps in zip(_WHEEL_CORNERS, np.roll(_WHEEL_CORNERS, -1, axis=0), _WHEEL_STEPS, strict=True)
    ]
)
"""The 55 colours (55, 3) in 0..1, from red through yellow, green, cyan, blue and magenta back to red."""
_BEYOND_RANGE = 0.75
_HEADROOM = 1.25
_UNKNOWN_ERROR = 128
_HATCH = (64, 96)
"""Greys of the stripes where a field is unknown."""
STRIPE = 6
"""Width of these stripes in px of the picture."""


class FieldRange(NamedTuple):
    """The values that the colours of a field span; for flow the magnitudes from 0 to high."""

    low: float
    high: float


def field_range(*fields: Field) -> FieldRange:
    """A common range of the finite values of fields (H, W, C).

    For C = 2 it is 0 to the largest magnitude, at most 1.25 times the 99th percentile, so that a few huge vectors do
    not bleach the rest; otherwise the 1st to the 99th percentile of the value or norm.
    """
    values = np.concatenate([_scalar(field[_known(field)][None])[0] for field in fields])
    if not values.size:
        return FieldRange(0.0, 1.0)
    low, high = (float(v) for v in np.percentile(values, (1, 99)))
    if fields[0].shape[2] == 2:
        low, high = 0.0, min(float(values.max()), _HEADROOM * high)
    return FieldRange(low, high if high > low else low + 1.0)


def flow_to_rgb(flow: Any, max_magnitude: float | None = None) -> Rgb:
    """Colour a field (H, W, C) as an RGB picture (H, W, 3); non-finite pixels are black.

    Two channels get the Middlebury colours: hue is the direction (right red, down yellow, left cyan, up violet),
    saturation the magnitude, full at max_magnitude and darkened beyond it. Other numbers of channels get the turbo
    colours of the value or norm. The colours span 0 to max_magnitude, by default the field's `field_range`.
    """
    flow = field_of("flow", flow)
    if max_magnitude is None:
        return colour_field(flow, field_range(flow))
    if not 0 < max_magnitude < np.inf:
        raise InputError(f"max_magnitude must be a finite number above 0, got {max_magnitude}")
    return colour_field(flow, FieldRange(0.0, max_magnitude))


def colour_field(field: Field, limits: FieldRange) -> Rgb:
    """The colours (H, W, 3) of `flow_to_rgb` for a field (H, W, C) over a given range, which pictures can share."""
    known = _known(field)
    values = np.where(known[..., None], field, np.float32(0))
    if values.shape[2] == 2:
        rgb = wheel_colours(values[..., 0], values[..., 1], limits.high)
    else:
        rgb = map_colours(_scalar(values), limits, cv2.COLORMAP_TURBO)
    rgb[~known] = 0
    return rgb


def stripes(height: int, width: int, side: int) -> Rgb:
    """Grey diagonal stripes (H, W, 3) of this width in px, which mark unknown pixels."""
    y, x = np.mgrid[:height, :width]
    odd = ((x + y) // max(side, 1) % 2).astype(bool)
    return np.repeat(np.where(odd, *_HATCH).astype(np.uint8)[..., None], 3, axis=2)


def error_map(error: Any, maximum: float | None = None) -> Rgb:
    """Colour an error (H, W) in px from black (0) to pale yellow (maximum, by default the 99th percentile).

    The picture (H, W, 3) is grey where the error is unknown (nan); inf has the colour of the maximum.
    """
    error = map_of("error", error)
    if error.ndim != 2:
        raise InputError(f"error must have shape (H, W), got {error.shape}")
    if maximum is not None and not 0 < maximum < np.inf:
        raise InputError(f"maximum must be a finite number above 0, got {maximum}")
    limits = FieldRange(0.0, error_limit(error) if maximum is None else maximum)
    rgb = map_colours(np.nan_to_num(error), limits, cv2.COLORMAP_INFERNO)
    rgb[np.isnan(error)] = _UNKNOWN_ERROR
    return rgb


def draw_given(
    image: Field,
    flow: Field,
    mask: npt.NDArray[np.bool_],
    limits: FieldRange | None = None,
    size: tuple[int, int] | None = None,
) -> Rgb:
    """Draw the known vectors, in the colours of `colour_field`, as dots on the dimmed grey image.

    image is (H, W), (H, W, 1) or (H, W, 3), uint8 or float in 0..1; flow is (H, W, C); mask (H, W) is bool, True where
    known. size is (width, height) of the picture, by default the image's. Fewer dots are larger, but stay small enough
    that a sparse field looks sparse.
    """
    check_alike(image, flow, mask)
    width, height = size or (mask.shape[1], mask.shape[0])
    grey = cv2.cvtColor(resized(as_rgb(image), (width, height)), cv2.COLOR_RGB2GRAY)
    return draw_dots(np.repeat(20 + np.float32(0.4) * grey[..., None], 3, axis=2), flow, mask, limits)


def draw_dots(picture: Field, flow: Field, mask: npt.NDArray[np.bool_], limits: FieldRange | None = None) -> Rgb:
    """The dots of `draw_given` on a picture (h, w, 3) with values from 0 to 255, of any size."""
    height, width = picture.shape[:2]
    given_y, given_x = np.nonzero(mask & _known(flow))
    if not given_y.size:
        return picture.astype(np.uint8)
    vectors = flow[given_y, given_x][None]
    colours = colour_field(vectors, limits or field_range(vectors))[0]
    y = ((given_y + 0.5) * height / mask.shape[0]).astype(np.intp)
    x = ((given_x + 0.5) * width / mask.shape[1]).astype(np.intp)
    away = np.ones((height, width), np.uint8)
    away[y, x] = 0
    distance, nearest = cv2.distanceTransformWithLabels(away, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    table = np.zeros((int(nearest.max()) + 1, 3), np.float32)
    table[nearest[y, x]] = colours
    spacing = np.sqrt(away.size / np.count_nonzero(away == 0))
    radius = max(0.3 * width / mask.shape[1], 0.5, min(0.2 * spacing, 1 + max(width, height) / 400))
    cover = np.clip(radius + 0.5 - np.asarray(distance, np.float32), 0, 1)[..., None]
    return np.asarray(np.round(cover * table[nearest] + (1 - cover) * picture), np.uint8)


def wheel_colours(u: Field, v: Field, high: float) -> Rgb:
    """The wheel's colours (H, W, 3) of the flow u, v (H, W), white at 0 and saturated at the magnitude high."""
    # The published code closes the wheel one colour early, with a seam at the right; here it is periodic.
    place = np.arctan2(v, u) / (2 * np.pi) % 1 * len(_WHEEL)
    first = place.astype(np.intp)
    part = (place - first)[..., None]
    hue = (1 - part) * _WHEEL[first % len(_WHEEL)] + part * _WHEEL[(first + 1) % len(_WHEEL)]
    magnitude = (np.hypot(u, v) / high)[..., None]
    colour = np.where(magnitude <= 1, 1 - magnitude * (1 - hue), _BEYOND_RANGE * hue)
    return np.round(255 * colour).astype(np.uint8)


def map_colours(values: Field, limits: FieldRange, colormap: int) -> Rgb:
    """The colours (H, W, 3) of an OpenCV colour map for values (H, W), clipped to the limits."""
    level = (np.clip(values, limits.low, limits.high) - limits.low) / (limits.high - limits.low)
    bgr = cv2.applyColorMap(np.round(255 * level).astype(np.uint8), colormap)
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8)


def error_limit(*errors: Field) -> float:
    """The error of the brightest colour: the 99th percentile, above 0."""
    values = np.concatenate([error[np.isfinite(error)] for error in errors] or [np.zeros(0)])
    return max(float(np.percentile(values, 99)) if values.size else 0.0, 1e-3)


def _scalar(field: Field) -> Field:
    """The value (H, W) of a field (H, W, 1), or the norm of a field (H, W, C)."""
    return field[..., 0] if field.shape[2] == 1 else np.linalg.norm(field, axis=2)


def resized(rgb: Rgb, size: tuple[int, int]) -> Rgb:
    """Resize to (width, height): averaged when shrinking, nearest neighbour when growing."""
    way = cv2.INTER_AREA if size[0] <= rgb.shape[1] else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(rgb, size, interpolation=way), np.uint8)


def as_rgb(image: Field) -> Rgb:
    """Convert an image (H, W), (H, W, 1) or (H, W, 3), uint8, uint16 or float in 0..1, to uint8 RGB (H, W, 3)."""
    image = plain(image)
    planes = image[..., None] if image.ndim == 2 else image
    if planes.ndim != 3 or planes.shape[2] not in (1, 3) or 0 in planes.shape:
        raise InputError(f"image must have shape (H, W), (H, W, 1) or (H, W, 3), got {image.shape}")
    if planes.dtype == np.uint16:
        planes = (planes >> 8).astype(np.uint8)
    if np.issubdtype(planes.dtype, np.floating):
        planes = np.round(255 * np.clip(np.nan_to_num(planes), 0, 1)).astype(np.uint8)
    if planes.dtype != np.uint8:
        raise InputError(f"image must be uint8, uint16 or float in 0..1, got {image.dtype}")
    return np.ascontiguousarray(np.broadcast_to(planes, (*planes.shape[:2], 3)))


def _known(field: Field) -> npt.NDArray[np.bool_]:
    """The mask (H, W) of vectors with only finite channels in a field (H, W, C)."""
    if field.ndim != 3 or 0 in field.shape or not np.issubdtype(field.dtype, np.number):
        raise InputError(f"flow must be a numeric array (H, W, C), got {field.dtype} {field.shape}")
    return np.asarray(np.isfinite(field).all(axis=2))


def check_alike(image: Field, flow: Field, mask: Field, *others: Field) -> None:
    """Raise InputError unless all have the same height and width, and the others the shape of the flow."""
    if mask.dtype != np.bool_ or mask.shape != image.shape[:2]:
        raise InputError(f"mask must be bool of the image's size {image.shape[:2]}, got {mask.dtype} {mask.shape}")
    if _known(flow).shape != mask.shape:
        raise InputError(f"flow must have the image's size {mask.shape}, got {flow.shape}")
    for other in others:
        if other.shape != flow.shape:
            raise InputError(f"results and truth must have the shape of flow, {flow.shape}, got {other.shape}")
