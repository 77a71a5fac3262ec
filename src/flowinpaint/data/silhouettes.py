"""Organic silhouettes: blobs, flowers, leaves, twigs, trees, animals and figures, drawn with polygons and capsules.

A shape is (side, side) uint8: 0 outside, and inside the number of the part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.opencv import cv2

Array = npt.NDArray[Any]
Random = np.random.Generator
Point = tuple[float, float]

_FRACTION_BITS = 4  # cv2 positions are in sixteenths of a pixel


class _Sketch:
    """A canvas (side, side) with places in units of its side, y down."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.parts: Array = np.zeros((side, side), np.uint8)

    def polygon(self, points: Array, part: int) -> None:
        """Fill a polygon of places (n, 2)."""
        fixed = np.round(points * self.side * 2**_FRACTION_BITS).astype(np.int32)
        cv2.fillPoly(self.parts, [fixed], part, cv2.LINE_8, _FRACTION_BITS)

    def capsule(self, start: Point, end: Point, first: float, last: float, part: int) -> None:
        """Draw a limb from start to end whose radius changes from first to last."""
        a, b = np.array(start), np.array(end)
        across = (b - a)[::-1] * (1, -1) / max(float(np.hypot(*(b - a))), 1e-6)
        self.polygon(np.stack([a + first * across, b + last * across, b - last * across, a - first * across]), part)
        self.ellipse(start, (first, first), 0, part)
        self.ellipse(end, (last, last), 0, part)

    def ellipse(self, centre: Point, radii: Point, angle: float, part: int) -> None:
        """Fill an ellipse turned by an angle."""
        t = np.linspace(0, 2 * np.pi, 64)
        x, y = radii[0] * np.cos(t), radii[1] * np.sin(t)
        c, s = np.cos(angle), np.sin(angle)
        self.polygon(np.stack([centre[0] + c * x - s * y, centre[1] + s * x + c * y], 1), part)


def _towards(start: Point, angle: float, length: float) -> Point:
    """The point at a distance and angle from the start; an angle of 0 points up."""
    return start[0] + length * np.sin(angle), start[1] - length * np.cos(angle)


def blob(rng: Random, side: int) -> Array:
    """A round shape with smooth lobes."""
    sketch, t = _Sketch(side), np.linspace(0, 2 * np.pi, 256)
    lobes = np.arange(1, 9)
    heights = rng.normal(0, 0.22, lobes.size) / lobes**0.8
    radius = 1 + (heights * np.cos(lobes * t[:, None] + rng.uniform(0, 2 * np.pi, lobes.size))).sum(1)
    radius = 0.45 * np.maximum(radius, 0.2) / radius.max()
    flat = rng.uniform(0.5, 1)
    sketch.polygon(0.5 + np.stack([radius * np.cos(t), flat * radius * np.sin(t)], 1), 1)
    y, x = np.mgrid[:side, :side] / side
    distance = np.hypot(x - rng.uniform(0.3, 0.7), y - rng.uniform(0.3, 0.7))
    sketch.parts[(sketch.parts > 0) & (distance < rng.uniform(0, 0.2))] = 2
    return sketch.parts


def flower(rng: Random, side: int) -> Array:
    """Petals around a centre."""
    sketch, petals = _Sketch(side), int(rng.integers(4, 13))
    length, breadth = rng.uniform(0.15, 0.22), rng.uniform(0.04, 0.12)
    for angle in 2 * np.pi * np.arange(petals) / petals + rng.normal(0, 0.1, petals):
        centre = _towards((0.5, 0.5), float(angle), 0.24)
        sketch.ellipse(centre, (breadth, length), float(angle), 1)
    sketch.ellipse((0.5, 0.5), (0.1, 0.1), 0, 2)
    return sketch.parts


def leaf(rng: Random, side: int) -> Array:
    """A toothed leaf with a rib and a stalk."""
    sketch, t = _Sketch(side), np.linspace(0, 1, 128)
    width, teeth = rng.uniform(0.12, 0.3), rng.integers(5, 16)
    half = width * np.sin(np.pi * t ** rng.uniform(0.6, 1.4)) * (1 - rng.uniform(0, 0.35) * (teeth * t % 1))
    bend = rng.normal(0, 0.08) * np.sin(np.pi * t)
    y = 0.06 + 0.7 * t
    sketch.polygon(np.concatenate([np.stack([0.5 + bend + half, y], 1), np.stack([0.5 + bend - half, y], 1)[::-1]]), 1)
    sketch.capsule((0.5, 0.2), (0.5 + rng.normal(0, 0.04), 0.94), 0.004, 0.014, 2)
    return sketch.parts


def twig(rng: Random, side: int) -> Array:
    """A forking branch, with or without leaves at its ends."""
    sketch, leafy = _Sketch(side), rng.random() < 0.6

    def grow(start: Point, angle: float, length: float, radius: float, depth: int) -> None:
        end = _towards(start, angle, length)
        sketch.capsule(start, end, radius, 0.7 * radius, 1)
        if depth == 0:
            if leafy:
                sketch.ellipse(_towards(end, angle, 0.04), (0.02, 0.05), angle, 2)
            return
        for sign in (-1, 1):
            turn = sign * rng.uniform(0.25, 0.7)
            grow(end, angle + turn, length * rng.uniform(0.6, 0.85), 0.65 * radius, depth - 1)

    angle, length, radius = float(rng.normal(0, 0.1)), rng.uniform(0.22, 0.28), rng.uniform(0.015, 0.035)
    grow((0.5, 0.96), angle, length, radius, depth=int(rng.integers(3, 6)))
    return sketch.parts


def tree(rng: Random, side: int) -> Array:
    """A trunk with a crown of many round tufts."""
    sketch = _Sketch(side)
    sketch.capsule((0.5, 0.95), (0.5 + rng.normal(0, 0.04), 0.4), rng.uniform(0.03, 0.06), 0.015, 1)
    reach = rng.uniform(0.1, 0.2, 2)
    for _ in range(int(rng.integers(6, 28))):
        x, y = rng.normal(0, 1, 2).clip(-1.5, 1.5) * reach
        sketch.capsule((0.5, 0.5), (0.5 + x, 0.35 + y), 0.015, 0.008, 1)
        sketch.ellipse((0.5 + x, 0.35 + y), (rng.uniform(0.05, 0.13), rng.uniform(0.05, 0.1)), 0, 2)
    return sketch.parts


def beast(rng: Random, side: int) -> Array:
    """A four-legged animal from the side."""
    sketch = _Sketch(side)
    length, girth, hip = rng.uniform(0.18, 0.26), rng.uniform(0.07, 0.14), rng.uniform(0.4, 0.55)
    tail = _towards((0.5 - length, hip), float(rng.uniform(-2.5, -0.8)), rng.uniform(0.08, 0.2))
    sketch.capsule((0.5 - 0.9 * length, hip), tail, 0.02, 0.008, 1)
    for place in (-0.85, -0.65, 0.6, 0.8):
        hock = (0.5 + place * length + rng.normal(0, 0.03), hip + rng.uniform(0.14, 0.2))
        sketch.capsule((0.5 + place * length, hip), hock, 0.4 * girth, 0.022, 1)
        sketch.capsule(hock, (hock[0] + rng.normal(0, 0.02), rng.uniform(0.85, 0.95)), 0.022, 0.016, 1)
    sketch.ellipse((0.5, hip), (length * 1.1, girth), float(rng.normal(0, 0.08)), 2)
    head = _towards((0.5 + length, hip), float(rng.uniform(0.1, 1.0)), rng.uniform(0.1, 0.25))
    sketch.capsule((0.5 + 0.85 * length, hip), head, 0.6 * girth, 0.045, 2)
    sketch.ellipse(head, (0.09, 0.05), float(rng.normal(0.3, 0.2)), 3)
    sketch.capsule(head, _towards(head, float(rng.normal(-0.3, 0.3)), 0.09), 0.018, 0.006, 3)
    return sketch.parts


def figure(rng: Random, side: int) -> Array:
    """A person in a random pose."""
    sketch = _Sketch(side)
    neck, hip = (0.5, 0.25), (0.5 + rng.normal(0, 0.04), 0.55)
    for sign in (-1, 1):
        knee = _towards(hip, np.pi + sign * rng.uniform(-0.1, 0.6), 0.2)
        sketch.capsule(hip, knee, 0.05, 0.035, 1)
        sketch.capsule(knee, _towards(knee, np.pi + rng.normal(0, 0.35), 0.2), 0.035, 0.025, 1)
        elbow = _towards((0.5 + 0.07 * sign, 0.29), np.pi - sign * rng.uniform(0.2, 2.2), 0.15)
        sketch.capsule((0.5 + 0.07 * sign, 0.29), elbow, 0.03, 0.024, 3)
        sketch.capsule(elbow, _towards(elbow, rng.uniform(0, 2 * np.pi), 0.14), 0.024, 0.016, 3)
    sketch.capsule((0.5, 0.31), hip, 0.085, 0.06, 2)
    sketch.capsule(neck, (0.5, 0.2), 0.025, 0.025, 4)
    sketch.ellipse((0.5 + rng.normal(0, 0.015), 0.14), (0.055, 0.07), float(rng.normal(0, 0.2)), 4)
    return sketch.parts


SHAPES: tuple[Callable[[Random, int], Array], ...] = (blob, leaf, beast, twig, figure, tree, flower, blob)
