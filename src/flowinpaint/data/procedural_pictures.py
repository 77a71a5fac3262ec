"""Procedural pictures for a bank without files: materials, segmented landscapes and cut-outs.

Like photos they have image edges at the borders of segments and silhouettes, texture and shadows inside them, and
organic rather than straight borders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from flowinpaint.data.bank import (
    KINDS,
    Bytes,
    Item,
    Picture,
    PictureBank,
    cut_to_silhouette,
    fill_outside,
    in_threads,
    make_bank,
    silhouette_distance,
)
from flowinpaint.data.silhouettes import SHAPES, Array, Random
from flowinpaint.errors import InputError
from flowinpaint.opencv import cv2

COUNTS = {"photos": 24, "materials": 48, "cutouts": 48}
SIDES = {"photos": 384, "materials": 256, "cutouts": 192}

_OVERSAMPLING = 2
_MOST_OBJECTS = 6


def procedural_bank(seed: int = 0) -> PictureBank:
    """Draw a bank with all kinds of pictures."""
    return make_bank(procedural_pictures(KINDS, seed))


def procedural_pictures(kinds: Collection[str], seed: int = 0) -> dict[str, list[Picture]]:
    """Draw COUNTS[kind] pictures of some of KINDS."""
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")

    def draw(kind: str, paint: Callable[[Random, int], Item]) -> list[Item]:
        """Each picture has its own random numbers, independent of the other pictures."""
        stream = (seed, KINDS.index(kind))
        return list(in_threads(lambda i: paint(np.random.default_rng((*stream, i)), i), range(COUNTS[kind])))

    materials = draw("materials", _material)
    painters: dict[str, Callable[[Random, int], Picture]] = {
        "photos": partial(_photo, materials=materials),
        "materials": lambda _, i: Picture(materials[i], np.zeros(materials[i].shape[:2], np.uint8)),
        "cutouts": partial(_cutout, materials=materials),
    }
    return {kind: draw(kind, painters[kind]) for kind in kinds}


def _noise(
    rng: Random, side: int, cell: float, octaves: int = 1, stretch: float = 1, gain: float = 0.5, rows: int = 0
) -> Array:
    """Fractal noise (rows or side, side), mean 0, deviation 1; its largest cells are `cell` px, wider by `stretch`."""
    height = rows or side
    total: Array = np.zeros((height, side), np.float32)
    for octave in range(octaves):
        down, across = (int(n * 2**octave / c) + 4 for n, c in ((height, cell), (side, cell * stretch)))
        knots = rng.standard_normal((min(down, height), min(across, side)), dtype=np.float32)
        total += np.float32(gain**octave) * cv2.resize(knots, (side, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray((total - total.mean()) / (total.std() + 1e-6))


def _grid(rng: Random, side: int, wobble: float = 0.0) -> tuple[Array, Array]:
    """Coordinates (side, side) in px along and across a random direction, bent by up to about `wobble` px."""
    y, x = np.mgrid[:side, :side].astype(np.float32)
    angle = rng.uniform(0, np.pi)
    c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    bend = [wobble * _noise(rng, side, side / 3, 3) for _ in range(2)] if wobble else [0.0, 0.0]
    return c * x + s * y + bend[0], c * y - s * x + bend[1]


def _ramp(rng: Random, values: Array, contrast: float | None = None) -> Array:
    """Map values (H, W) to colours (H, W, 3) in 0…255, on a random scale from dark to bright of similar hues."""
    knots = 4
    centre, spread = rng.uniform(70, 190), contrast or rng.uniform(25, 110)
    light = np.clip(centre + spread * np.linspace(-1, 1, knots) + rng.normal(0, 8, knots), 4, 252)
    hue = rng.uniform(0, 180) + rng.normal(0, rng.choice([4, 12, 40]), knots)
    saturation = np.clip(rng.beta(1.5, 2.5) * 255 + rng.normal(0, 25, knots), 0, 230)
    hsv = np.stack([hue % 180, saturation, light], 1).astype(np.uint8)[None]
    colours = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0].astype(np.float32)
    low, high = np.percentile(values[::4, ::4], (2, 98))
    place = (values - low) / (high - low + 1e-6)
    table = np.stack([np.interp(np.linspace(0, knots - 1, 256), np.arange(knots), colours[:, c]) for c in range(3)], 1)
    return np.asarray(table.astype(np.float32)[np.clip(255 * place, 0, 255).astype(np.uint8)])


def _fractal(rng: Random, side: int) -> Array:
    return _ramp(rng, _noise(rng, side, rng.uniform(8, side / 2), 6, gain=rng.uniform(0.5, 0.85)))


def _clouds(rng: Random, side: int) -> Array:
    return _ramp(rng, _noise(rng, side, side / 2, 5, rng.uniform(1, 4), 0.45), rng.uniform(15, 45))


def _stripes(rng: Random, side: int) -> Array:
    along, _ = _grid(rng, side, rng.uniform(0, 6))
    wave = np.sin(2 * np.pi * along / rng.uniform(6, 48))
    return _ramp(rng, np.tanh(wave * rng.uniform(1, 8)) + 0.2 * _noise(rng, side, 8, 3))


def _checks(rng: Random, side: int) -> Array:
    along, across = _grid(rng, side, rng.uniform(0, 3))
    period = rng.uniform(10, 60)
    squares = np.floor(along / period) + np.floor(across / (period * rng.uniform(0.5, 2)))
    return _ramp(rng, squares % 2 + 0.15 * _noise(rng, side, 12, 4))


def _scatter(rng: Random, side: int, spacing: float) -> tuple[Array, Array]:
    """The distance (side, side) in px to the nearest of random points, and the number of that point."""
    away = np.ones((side, side), np.uint8)
    count = max(2, int((side / spacing) ** 2))
    away[rng.integers(0, side, count), rng.integers(0, side, count)] = 0
    distance, number = cv2.distanceTransformWithLabels(away, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    return np.asarray(distance), np.asarray(number)


def _spots(rng: Random, side: int) -> Array:
    spacing = rng.uniform(8, 40)
    distance, number = _scatter(rng, side, spacing)
    radius = spacing * rng.uniform(0.1, 0.45, int(number.max()) + 1).astype(np.float32)[number]
    return _ramp(rng, np.clip(radius - distance, -1, 1) + 0.2 * _noise(rng, side, 16, 4))


def _pebbles(rng: Random, side: int) -> Array:
    distance, number = _scatter(rng, side, rng.uniform(8, 40))
    tint = rng.normal(0, 0.6, int(number.max()) + 1).astype(np.float32)[number]
    return _ramp(rng, tint - distance / distance.max() * 3 + 0.3 * _noise(rng, side, 8, 3))


def _bricks(rng: Random, side: int) -> Array:
    along, across = _grid(rng, side, rng.uniform(0, 2))
    height = rng.uniform(8, 28)
    width, mortar = height * rng.uniform(1.2, 3), rng.uniform(1, 3)
    row = np.floor(across / height)
    shifted = along / width + 0.5 * (row % 2)
    tint = np.sin(127.1 * row + 311.7 * np.floor(shifted)) % 0.7
    joint = (across % height < mortar) | (shifted % 1 * width < mortar)
    return _ramp(rng, np.where(joint, -0.8, tint) + 0.12 * _noise(rng, side, 10, 4))


def _wood(rng: Random, side: int) -> Array:
    along, across = _grid(rng, side, rng.uniform(2, 14))
    rings = np.sin(np.hypot(along / rng.uniform(4, 12), across - rng.uniform(0, side)) / rng.uniform(1, 4))
    return _ramp(rng, rings + 0.4 * _noise(rng, side, 4, 2, 12), rng.uniform(15, 50))


def _grass(rng: Random, side: int) -> Array:
    base = _ramp(rng, _noise(rng, side, side / 4, 5), 30)
    count, length, lean = side * side // 24, rng.uniform(4, 24), rng.normal(0, 1.2)
    angle = lean + rng.normal(0, rng.uniform(0.1, 0.8), count)
    start = rng.uniform(0, side, (count, 2))
    end = start + length * np.stack([np.sin(angle), -np.cos(angle)], 1)
    shade = _ramp(rng, rng.standard_normal((1, count)).repeat(4, 0))[0]
    for (x, y), (u, v), colour in zip((16 * start).astype(int), (16 * end).astype(int), shade.tolist(), strict=True):
        cv2.line(base, (int(x), int(y)), (int(u), int(v)), colour, 1, cv2.LINE_8, 4)
    return np.asarray(cv2.GaussianBlur(base, (0, 0), 0.6))


_MATERIALS: tuple[Callable[[Random, int], Array], ...] = (
    _fractal,
    _stripes,
    _clouds,
    _grass,
    _pebbles,
    _wood,
    _bricks,
    _spots,
    _fractal,
    _checks,
    _clouds,
    _grass,
)


def _material(rng: Random, number: int) -> Bytes:
    side = SIDES["materials"]
    light = 1 + rng.uniform(0, 0.12) * _noise(rng, side, side / 2, 2)
    colours = _MATERIALS[number % len(_MATERIALS)](rng, side) * light[..., None]
    return _bytes(colours + rng.normal(0, rng.uniform(0, 5), colours.shape))


def _bytes(colours: Array) -> Bytes:
    return np.clip(np.round(colours), 0, 255).astype(np.uint8)


def _paint(rng: Random, labels: Array, materials: list[Bytes]) -> Array:
    """Paint regions (H, W), each with its own material, tint and shading, as colours (H, W, 3)."""
    canvas = np.zeros((*labels.shape, 3), np.uint8)
    # The centre x, y of a region, and the slopes of its brightness to the right and down.
    shading = np.zeros((256, 4), np.float32)
    for label in np.flatnonzero(np.bincount(labels.ravel(), minlength=256)).tolist():
        inside = (labels == label).astype(np.uint8)
        x, y, width, height = cv2.boundingRect(inside)
        texture = materials[rng.integers(len(materials))]
        place = (rng.uniform(0, texture.shape[1]), rng.uniform(0, texture.shape[0]))
        turn = cv2.getRotationMatrix2D(place, rng.uniform(0, 360), rng.uniform(1, 4))
        cloth = cv2.warpAffine(texture, turn, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        mean = texture[::4, ::4].mean((0, 1))
        tint = _ramp(rng, rng.standard_normal((8, 8)))[0, 0] if rng.random() < 0.6 else mean
        dyes = _bytes(tint + rng.uniform(0.2, 1.0) * (np.arange(256)[:, None] - mean))
        window = slice(y, y + height), slice(x, x + width)
        cv2.copyTo(cv2.LUT(cloth, dyes[:, None]), inside[window], canvas[window])
        shading[label] = x + width / 2, y + height / 2, *rng.normal(0, 0.25 / max(width, height), 2)
    row, column = np.ogrid[: labels.shape[0], : labels.shape[1]]
    centre_x, centre_y, right, down = np.moveaxis(shading, 1, 0)[:, labels]
    light = 1 + right * (column - centre_x) + down * (row - centre_y)
    return np.asarray(canvas * light.astype(np.float32)[..., None])


def _wobbled(rng: Random, labels: Array, reach: float, cell: float) -> Array:
    """Displace labels (H, W) by smooth noise with a deviation of `reach` px."""
    side = labels.shape[0]
    y, x = np.mgrid[:side, :side].astype(np.float32)
    x, y = (place + np.float32(reach) * _noise(rng, side, cell, 4) for place in (x, y))
    return np.asarray(cv2.remap(labels, x, y, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE))


def _level_sets(rng: Random, side: int) -> Array:
    field = _noise(rng, side, side / rng.uniform(1.5, 4), 5, rng.uniform(1, 3), rng.uniform(0.3, 0.55))
    steps = np.linspace(-1.2, 1.2, rng.integers(2, 6)) + rng.normal(0, 0.15)
    return np.digitize(field, steps).astype(np.uint8)


def _cells(rng: Random, side: int) -> Array:
    _, number = _scatter(rng, side, side / rng.uniform(2, 5.5))
    return _wobbled(rng, (number % 251).astype(np.uint8), rng.uniform(4, 24), side / 6)


def _hills(rng: Random, side: int) -> Array:
    labels = np.zeros((side, side), np.uint8)
    layers = rng.integers(3, 8)
    for layer in range(1, layers + 1):
        rough = rng.uniform(0.35, 0.6)
        ridge = _noise(rng, side, side / rng.uniform(1, 4), 7, gain=rough, rows=1)[0]
        height = side * (0.2 + 0.75 * layer / (layers + 1)) + side * rng.uniform(0.02, 0.1) * ridge
        labels[np.arange(side)[:, None] > height] = layer
    return labels


def _photo(rng: Random, number: int, materials: list[Bytes]) -> Picture:
    side = SIDES["photos"] * _OVERSAMPLING
    labels = (_hills, _cells, _level_sets)[number % 3](rng, side)
    for _ in range(rng.integers(0, _MOST_OBJECTS + 1)):
        extent = int(side * rng.uniform(0.15, 0.5))
        thing = SHAPES[rng.integers(len(SHAPES))](rng, extent) > 0
        top, left = rng.integers(0, side - extent, 2)
        labels[top : top + extent, left : left + extent][thing] = labels.max() + 1
    light = 1 + 0.15 * _noise(rng, side, side, 2)
    shadow = _noise(rng, side, side / 3, 4) > rng.uniform(0.3, 2.5)
    colours = _paint(rng, labels, materials) * np.where(shadow, rng.uniform(0.5, 0.85), light)[..., None]
    offset = _OVERSAMPLING // 2
    return Picture(_halved(colours), np.ascontiguousarray(labels[offset::_OVERSAMPLING, offset::_OVERSAMPLING]))


def _halved(colours: Array) -> Bytes:
    side = colours.shape[0] // _OVERSAMPLING
    return _bytes(np.asarray(cv2.resize(colours, (side, side), interpolation=cv2.INTER_AREA)))


def _cutout(rng: Random, number: int, materials: list[Bytes]) -> Picture:
    """A shape whose parts are painted separately and shaded as if it bulged towards the viewer."""
    side = SIDES["cutouts"] * _OVERSAMPLING
    shape = SHAPES[number % len(SHAPES)](rng, side)
    turn = cv2.getRotationMatrix2D((side / 2, side / 2), rng.normal(0, 12), rng.uniform(0.85, 1))
    parts = np.asarray(cv2.warpAffine(shape, turn, (side, side), flags=cv2.INTER_NEAREST))
    parts = _wobbled(rng, parts, rng.uniform(1, 5), side / 12)
    inside = parts > 0
    distance = np.maximum(silhouette_distance(inside), 0)
    slope_y, slope_x = np.gradient(cv2.GaussianBlur(np.sqrt(distance), (0, 0), side / 60))
    angle = rng.uniform(0, 2 * np.pi)
    light = 1 + rng.uniform(0, 2.5) * (np.cos(angle) * slope_x + np.sin(angle) * slope_y)
    colours = fill_outside(_bytes(_paint(rng, parts, materials) * light[..., None]), inside)
    return cut_to_silhouette(_halved(colours), _halved(255.0 * inside) > 127)
