"""Demo scene: a procedural landscape with exact dense flow, for examples without a data set.

The scene is a stack of layers painted back to front. Each has a shape, a colour and a nearly affine motion, so the
flow is smooth inside a layer and jumps at its border. Training scenes come from `data.generator` instead.
"""

from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.data.generator.smooth_noise import spline_weights
from flowinpaint.errors import InputError

_Array = npt.NDArray[Any]
_Pair = tuple[float, float]

# Odd, so that the middle sample of a pixel lies at its centre, where the flow is read.
_SAMPLES = 3
_BAND_SAMPLES = 1 << 20
_MIN_SIZE = 8
# Compensates the averaging by the B-spline, so that the noise has a deviation of about 1.
_NOISE_GAIN = 2.1


class Scene(NamedTuple):
    """An image (H, W, 3) uint8 RGB and its exact flow (H, W, 2) float32 in px, x right and y down."""

    image: npt.NDArray[np.uint8]
    flow: npt.NDArray[np.float32]


def sample_scene(height: int = 320, width: int = 480, seed: int = 0) -> Scene:
    """Paint a landscape of height x width px; the seed varies its hills, objects and motions.

    Flow magnitudes are about 0.5 to 15 px at every size. The image is anti-aliased; the flow is that of the
    topmost layer at the pixel's centre and never mixes two layers.
    """
    if min(height, width) < _MIN_SIZE:
        raise InputError(f"height and width must be at least {_MIN_SIZE} px, got {height} and {width}")
    # Bands of rows bound the memory. Each band restarts the generator, so that all show the same scene.
    rows = max(1, _BAND_SAMPLES // (width * _SAMPLES**2))
    bands = []
    for top in range(0, height, rows):
        camera, *streams = np.random.default_rng(seed).spawn(1 + len(_LAYERS))
        canvas = _Canvas(height, width, top, min(top + rows, height), camera)
        for painter, rng in zip(_LAYERS, streams, strict=True):
            painter(canvas, rng)
        bands.append(canvas.develop())
    return Scene(np.concatenate([b.image for b in bands]), np.concatenate([b.flow for b in bands]))


class _Canvas:
    """The samples of the rows top to bottom: positions (px), colour and flow, with methods to paint them."""

    def __init__(self, height: int, width: int, top: int, bottom: int, rng: np.random.Generator) -> None:
        self.height, self.width = height, width
        self.x = ((np.arange(width * _SAMPLES) + 0.5) / _SAMPLES - 0.5).astype(np.float32)
        self.y = ((np.arange(top * _SAMPLES, bottom * _SAMPLES) + 0.5) / _SAMPLES - 0.5).astype(np.float32)
        # Objects keep their shape and fit into any format; noise cells scale with the longer side.
        self.unit = min(height, width / 1.5)
        self.noise_unit = max(height, width / 1.5)
        self.colour: _Array = np.zeros((self.y.size, self.x.size, 3), np.float32)
        self.flow: _Array = np.zeros((self.y.size, self.x.size, 2), np.float32)
        # The camera pans to the right, so that the world drifts left, and approaches slowly.
        self.pan = (rng.uniform(-2.2, -1.8), rng.uniform(0.1, 0.4))
        self.zoom = rng.uniform(1.0, 1.5)
        self.focus = (rng.uniform(0.4, 0.7), rng.uniform(0.35, 0.5))

    def local(self, fx: float, fy: float) -> tuple[_Array, _Array]:
        """Coordinates (1, w) and (h, 1) in object units, from the point at the fractions fx, fy of the picture."""
        x, y = self.x[None, :] - fx * self.width, self.y[:, None] - fy * self.height
        return x / self.unit, y / self.unit

    def window(self, place: _Pair, reach: tuple[float, ...]) -> tuple["_Canvas", _Array, _Array]:
        """A view of the part within reach (left, up, right, down) of a point, and its `local` coordinates."""
        x, y = self.local(*place)
        columns = slice(*np.searchsorted(x[0], [-reach[0], reach[2]]))
        rows = slice(*np.searchsorted(y[:, 0], [-reach[1], reach[3]]))
        part = copy(self)
        part.x, part.y = self.x[columns], self.y[rows]
        part.colour, part.flow = self.colour[rows, columns], self.flow[rows, columns]
        return part, x[:, columns], y[rows]

    def noise(self, rng: np.random.Generator, cell_x: float, cell_y: float, octaves: int) -> _Array:
        """Fractal noise (h, w) of deviation about 1, its largest cells being cell_x by cell_y noise units."""
        total = np.zeros((self.y.size, self.x.size), np.float32)
        for octave in range(octaves):
            cell = np.array([cell_y, cell_x]) * self.noise_unit / 2**octave
            if cell.min() * _SAMPLES < 1:
                break  # finer than the samples
            # All knots of the picture are drawn, for every part of it, and only those near the part are used.
            grid = (np.array([self.height, self.width]) / cell).astype(int) + 5
            knots = rng.standard_normal(grid, dtype=np.float32) * np.float32(_NOISE_GAIN * 0.5**octave)
            first_x, weights_x = spline_weights(self.x, cell[1].item())
            first_y, weights_y = spline_weights(self.y, cell[0].item())
            near = knots[first_y : first_y + weights_y.shape[1], first_x : first_x + weights_x.shape[1]]
            total += weights_y @ near @ weights_x.T
        return total

    def camera_flow(self, nearness: float | _Array) -> _Array:
        """The flow (h, w, 2) of static objects at a nearness (inverse depth), caused by the camera."""
        # Measured along the longer side, so that the flow stays bounded at the ends of a panorama.
        x, y = (part * (self.unit / self.noise_unit) for part in self.local(*self.focus))
        parts = nearness * (self.pan[0] + self.zoom * x), nearness * (self.pan[1] + self.zoom * y)
        return np.stack(np.broadcast_arrays(*parts), axis=-1)

    def own_flow(self, place: _Pair, shift: _Pair, spin: float, growth: float) -> _Array:
        """An object's affine flow (h, w, 2): shift in px, spin and growth in px per object unit."""
        x, y = self.local(*place)
        return np.stack([shift[0] + growth * x - spin * y, shift[1] + spin * x + growth * y], axis=-1)

    def paint(self, inside: npt.NDArray[np.bool_], colour: _Array, flow: _Array) -> None:
        """Cover the samples inside (h, w) with a colour (h, w, 3) in 0..1 and a flow (h, w, 2)."""
        np.copyto(self.colour, colour, where=inside[..., None])
        np.copyto(self.flow, flow, where=inside[..., None])

    def shade(self, amount: _Array) -> None:
        """Cast a shadow of the amount (h, w) in 0..1: an edge of the image that the flow does not have."""
        self.colour *= 1 - amount[..., None] * np.array([0.62, 0.55, 0.42], np.float32)

    def develop(self) -> Scene:
        """Average the samples of each pixel to its colour and take the flow at its centre."""
        cells = np.clip(self.colour, 0, 1).reshape(-1, _SAMPLES, self.width, _SAMPLES, 3)
        centre = slice(_SAMPLES // 2, None, _SAMPLES)
        image = np.round(255 * cells.mean(axis=(1, 3))).astype(np.uint8)
        return Scene(image, self.flow[centre, centre].copy())


def _mix(a: npt.ArrayLike, b: npt.ArrayLike, amount: _Array) -> _Array:
    """Interpolate from colour a (amount 0) to colour b (amount 1); the amount (h, w) is clipped to [0, 1]."""
    start, end = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return start + np.clip(amount, 0, 1).astype(np.float32)[..., None] * (end - start)


def _smooth_step(low: float, high: float, value: _Array) -> _Array:
    t = np.clip((value - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def _turn(x: _Array, y: _Array, angle: float) -> tuple[_Array, _Array]:
    c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    return c * x + s * y, c * y - s * x


def _sky(canvas: _Canvas, rng: np.random.Generator) -> None:
    low = canvas.y[:, None] / (0.6 * canvas.height) + 0 * canvas.x
    sky = _mix((0.27, 0.49, 0.78), (0.98, 0.87, 0.72), _smooth_step(-0.1, 1.0, low))
    sun_x, sun_y = canvas.local(rng.uniform(0.68, 0.8), 0.3)
    glow = np.exp(-6 * np.hypot(sun_x, sun_y))[..., None] * np.array([0.3, 0.22, 0.1], np.float32)
    clouds = _smooth_step(0.2, 2.2, canvas.noise(rng, 0.5, 0.14, 5)) * (1 - 0.5 * low)
    canvas.paint(low < np.inf, _mix(sky, (1.0, 0.98, 0.95), 0.85 * clouds) + glow, canvas.camera_flow(0.5))


def _mountains(canvas: _Canvas, rng: np.random.Generator) -> None:
    _, y = canvas.local(0.0, 0.42)
    crest = canvas.noise(rng, 0.25, np.inf, 6)
    below = y - 0.055 * crest
    # Each crest lights its right flank and shades its left one, more broken further down.
    crags = canvas.noise(rng, 0.05, 0.09, 5)
    flank = np.clip(-0.02 * canvas.noise_unit * np.gradient(crest, axis=1) + 0.35 * crags, -1, 1)
    rock = _mix((0.30, 0.34, 0.50), (0.66, 0.62, 0.68), 0.5 + 0.45 * flank)
    snow = _mix((0.70, 0.76, 0.90), (1.0, 0.98, 0.96), 0.55 + 0.6 * flank)
    peaks = _mix(rock, snow, _smooth_step(-0.15, 0.15, 0.75 - 9 * below + 0.28 * crags))
    canvas.paint(below > 0, _mix(peaks, (0.82, 0.80, 0.82), 5 * below), canvas.camera_flow(0.8))


def _far_hills(canvas: _Canvas, rng: np.random.Generator) -> None:
    canvas, _, y = canvas.window((0.0, 0.52), (np.inf, 0.25, np.inf, np.inf))
    below = y - 0.035 * canvas.noise(rng, 0.5, np.inf, 3) - 0.003 * canvas.noise(rng, 0.02, np.inf, 2)
    trees = canvas.noise(rng, 0.02, 0.02, 4) + 0.7 * canvas.noise(rng, 0.25, 0.12, 2)
    colour = _mix((0.18, 0.34, 0.34), (0.45, 0.56, 0.40), 0.5 + 0.28 * trees)
    canvas.paint(below > 0, _mix(colour, (0.66, 0.70, 0.66), 0.5 - 5 * below), canvas.camera_flow(1.25))


def _near_hill(canvas: _Canvas, rng: np.random.Generator) -> None:
    canvas, x, y = canvas.window((0.5, 0.62), (np.inf, 0.25, np.inf, np.inf))
    below = y - rng.choice([-0.09, 0.09]).item() * x - 0.025 * canvas.noise(rng, 0.6, np.inf, 2)
    furrows = np.sin(150 * below / (0.45 + 2.2 * np.abs(below)) + 2 * canvas.noise(rng, 0.3, 0.15, 2))
    wheat = 0.5 + 0.20 * furrows + 0.16 * canvas.noise(rng, 0.015, 0.012, 3)
    canvas.paint(below > 0, _mix((0.50, 0.53, 0.20), (0.88, 0.80, 0.40), wheat), canvas.camera_flow(1.8))


def _meadow(canvas: _Canvas, rng: np.random.Generator) -> None:
    canvas, _, y = canvas.window((0.0, 0.73), (np.inf, 0.25, np.inf, np.inf))
    below = y - 0.015 * canvas.noise(rng, 0.5, np.inf, 2) - 0.003 * canvas.noise(rng, 0.012, np.inf, 2)
    blades = canvas.noise(rng, 0.010, 0.025, 3) + 0.9 * canvas.noise(rng, 0.3, 0.08, 3)
    grass = _mix((0.16, 0.34, 0.10), (0.50, 0.66, 0.22), 0.5 + 0.24 * blades)
    flowers = canvas.noise(rng, 0.011, 0.008, 1) > 2.8 - 2.5 * np.clip(below, 0, 0.3)
    # The ground comes nearer towards the viewer's feet.
    flow = canvas.camera_flow(2.2 + 3.5 * np.clip(below, 0, 0.5))
    canvas.paint(below > 0, _mix(grass, (0.98, 0.93, 0.75), 0.9 * flowers), flow)


def _balloon(canvas: _Canvas, rng: np.random.Generator) -> None:
    place, radius = (rng.uniform(0.44, 0.56), rng.uniform(0.22, 0.27)), 0.145
    canvas, x, y = canvas.window(place, (0.15, 0.15, 0.15, 0.27))
    flow = canvas.own_flow(place, (rng.uniform(1.5, 3.0), rng.uniform(-6.5, -5.0)), rng.uniform(-1, 1), 4.0)
    # An egg: the lower half narrows towards the basket.
    half_width = radius * np.sqrt(np.clip(1 - (y / (radius * np.where(y > 0, 1.35, 1.0))) ** 2, 1e-6, None))
    across = np.clip(x / half_width, -1, 1)
    gores = np.sin(6 * np.arcsin(across) + 0.6)
    belt = np.abs(y - 0.03 + 0.012 * np.cos(12 * np.arcsin(across))) < 0.018
    stripes = _mix((0.84, 0.20, 0.18), (0.98, 0.86, 0.55), _smooth_step(-0.15, 0.15, gores))
    light = 0.55 + 0.5 * np.sqrt(1 - across**2) * (1 - 0.25 * y / radius) + 0.25 * across
    light *= 1 + 0.04 * canvas.noise(rng, 0.012, 0.012, 2)
    cloth = (np.abs(x) < half_width) & (y > -radius) & (y < 1.22 * radius)
    canvas.paint(cloth, _mix(stripes, (0.13, 0.24, 0.48), belt) * light[..., None], flow)
    ropes = (np.abs(np.abs(x) - 0.024 + 0.25 * (y - 0.19)) < 0.0022) & (y > 0.17) & (y < 0.225)
    basket = (np.abs(x) < 0.022) & (np.abs(y - 0.238) < 0.018)
    wicker = 0.5 + 0.5 * np.sin(900 * x) * np.sin(900 * y)
    canvas.paint(ropes | basket, _mix((0.30, 0.18, 0.08), (0.62, 0.42, 0.2), wicker), flow)


def _tree(canvas: _Canvas, rng: np.random.Generator) -> None:
    place = (rng.uniform(0.84, 0.9), 0.86)
    canvas, x, y = canvas.window(place, (0.45, 0.85, 0.4, 0.06))
    canvas.shade(0.8 * (1 - _smooth_step(0.5, 1.1, np.hypot((x + 0.16) / 0.24, (y - 0.012) / 0.035))))
    flow = canvas.camera_flow(3.0)
    width = 0.021 + 0.02 * np.exp(22 * np.minimum(y, 0)) - 0.012 * y
    across = (x - 0.012 * np.sin(9 * y + rng.uniform(0, 6))) / width
    light = (0.75 + 0.4 * across) * (1 + 0.16 * canvas.noise(rng, 0.012, 0.09, 4))
    trunk = (np.abs(across) < 1) & (y < 0.0) & (y > -0.5)
    canvas.paint(trunk, np.array([0.50, 0.36, 0.25], np.float32) * light[..., None], flow)
    leaves, clumps = canvas.noise(rng, 0.016, 0.016, 3), canvas.noise(rng, 0.09, 0.08, 2)
    crown = 1 - np.hypot(x / 0.25, (y + 0.47) / 0.24) ** 2 + 0.22 * clumps + 0.10 * leaves > 0
    lit = 0.42 + 0.12 * clumps + 0.20 * leaves - 0.7 * (y + 0.47) + 0.6 * x
    colour = _mix((0.07, 0.20, 0.07), (0.66, 0.74, 0.24), 0.5 + 0.5 * np.tanh(2 * lit - 1))
    # The wind's sway vanishes at the foot of the trunk.
    canvas.paint(crown, colour, flow + y[..., None] * np.array([3.0, 0.0], np.float32))


def _fence(canvas: _Canvas, rng: np.random.Generator) -> None:
    place, spacing = (rng.uniform(0.02, 0.05), 0.86), 0.105
    canvas, x, y = canvas.window(place, (0.3, 0.2, 0.5, 0.2))
    y = y - 0.06 * x + 0.05
    beside = x - spacing * np.round(x / spacing)
    ends = x < 4.4 * spacing
    canvas.shade(0.6 * (ends & (np.abs(y + 0.35 * beside - 0.14) < 0.012)))
    posts = (np.abs(beside) < 0.0125) & (y > -0.13 + 0.9 * np.abs(beside)) & (y < 0.13)
    rails = (np.abs(y + 0.075) < 0.011) | (np.abs(y - 0.015) < 0.011)
    grain = np.where(posts, canvas.noise(rng, 0.01, 0.08, 3), canvas.noise(rng, 0.08, 0.01, 3))
    light = 0.82 + 0.12 * grain + np.where(posts, 9 * beside, -0.22)
    colour = np.array([0.86, 0.80, 0.70], np.float32) * light[..., None]
    canvas.paint(ends & (posts | rails), colour, canvas.camera_flow(4.2))


def _ball(canvas: _Canvas, rng: np.random.Generator) -> None:
    place, radius = (rng.uniform(0.52, 0.6), rng.uniform(0.78, 0.82)), 0.115
    canvas, x, y = canvas.window(place, (0.32, 0.12, 0.12, 0.14))
    canvas.shade(0.95 * (1 - _smooth_step(0.45, 1.1, np.hypot((x + 0.10) / 0.19, (y - 0.088) / 0.04))))
    px, py = np.broadcast_arrays(x / radius, y / radius)
    pz = np.sqrt(np.clip(1 - px**2 - py**2, 0, None))
    turned_x, turned_y = _turn(px, py, rng.uniform(0, 6.3))
    longitude = np.arctan2(turned_x, 0.8 * pz + 0.6 * turned_y)
    panel = np.floor((longitude / (2 * np.pi) + 0.5) * 6).astype(np.int64) % 3
    colour = np.array([[0.95, 0.95, 0.92], [0.10, 0.42, 0.72], [0.97, 0.62, 0.10]], np.float32)[panel]
    light = 0.38 + 0.72 * np.clip(0.5 * px - 0.6 * py + 0.62 * pz, 0, 1)
    light += 0.02 * canvas.noise(rng, 0.01, 0.01, 2)
    shine = np.clip(0.28 * px - 0.45 * py + 0.85 * pz, 0, 1) ** 60
    flow = canvas.own_flow(place, (rng.uniform(9.0, 11.0), rng.uniform(-1.0, 1.0)), rng.uniform(22, 30), 0.0)
    canvas.paint(px**2 + py**2 < 1, colour * light[..., None] + 0.6 * shine[..., None], flow)


def _leaf(canvas: _Canvas, rng: np.random.Generator) -> None:
    place = (rng.uniform(0.2, 0.28), rng.uniform(0.34, 0.42))
    canvas, x, y = canvas.window(place, (0.24, 0.24, 0.24, 0.24))
    x, y = _turn(x, y, rng.uniform(0.4, 0.8))
    along = np.clip((x / 0.17 + 1) / 2, 0, 1)
    blade = np.abs(y) < 0.17 * along**0.6 * (1 - along) * (1 + 0.05 * np.sin(60 * along))
    stem = (np.abs(y) < 0.004) & (x > -0.23) & (x < 0.0)
    veins = (np.abs(y) < 0.0035) | (np.abs(np.sin(28 * (along - 1.6 * np.abs(y)))) < 0.13)
    tone = 0.5 + 0.2 * canvas.noise(rng, 0.05, 0.05, 4) + 1.5 * y + 0.8 * (along - 0.5)
    colour = _mix((0.66, 0.14, 0.05), (0.98, 0.66, 0.14), tone)
    flow = canvas.own_flow(place, (rng.uniform(3.5, 5.0), rng.uniform(6.0, 8.0)), rng.uniform(-16, -11), 3.0)
    canvas.paint(blade | stem, _mix(colour, (1.0, 0.88, 0.55), 0.55 * veins), flow)


_LAYERS = (_sky, _mountains, _far_hills, _near_hill, _meadow, _balloon, _tree, _fence, _ball, _leaf)
