"""Every range that the layered-flow generator draws from."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from flowinpaint.errors import InputError

Range = tuple[float, float]
Counts = tuple[int, int]


@dataclass(frozen=True)
class LayeredConfig:
    """Ranges (low, high), chances in [0, 1] and deviations; lengths in pixels unless said otherwise."""

    # The background.
    photo: float = 0.75
    """Chance that the background is a photo, otherwise it is a material."""
    segmented: float = 0.8
    """Chance that the segments of a photo move on their own."""
    groups: Counts = (2, 32)
    """Number of motion groups that the segments are merged into."""
    photo_scale: Range = (0.55, 1.4)
    """Pixels of a photo to one of the scene."""

    # Objects.
    most_objects: int = 13
    objects: Counts = (1, 13)
    radius: Range = (0.025, 0.32)
    """In shares of the shorter side; logarithms are uniform, and later objects, in front, are smaller."""
    aspect: float = 0.6
    """Deviation of the logarithm of the ratio of an object's axes."""
    box: float = 0.15
    ring: float = 0.07
    bar: float = 0.2
    cutout: float = 0.35
    """Chances of the shapes; what is left are blobs."""
    bar_aspect: Range = (3.3, 20.0)
    bumps: tuple[float, ...] = (0.28, 0.22, 0.16, 0.10, 0.08)
    """Deviations of the Fourier coefficients 2, 3, … of a blob's radius; a third of the blobs has none."""
    wobble: tuple[float, ...] = (6.0, 2.5, 1.5)
    """Amplitudes of the distortion of borders, with spacings of 32, 8 and 3 px; the last one is rare."""
    fuzzy: float = 0.3
    """Chance of the finest distortion, which makes borders ragged."""

    # Appearance.
    material: float = 0.6
    """Chance that an object shows a material, otherwise it shows a piece of a photo."""
    texture_scale: Range = (0.35, 1.8)
    camouflage: float = 0.06
    """Chance that an object continues the picture behind it: a flow edge without an image edge."""
    similar: float = 0.06
    """Chance that an object shows the background's picture, but another part of it."""
    contrast: float = 0.25
    tint: float = 0.12
    offset: float = 0.05
    """Deviations of a layer's brightness (logarithm), of its colours (logarithm) and of what is added to them."""
    shading: float = 0.25
    shadow: float = 0.5
    """Chance of hard shadows: image edges without a flow edge."""
    shadow_depth: Range = (0.1, 0.65)
    shadow_sharpness: Range = (3.0, 60.0)

    # Motion.
    magnitude: float = 5.0
    """Median of a scene's magnitude of motion; its logarithm is normal."""
    magnitude_spread: float = 0.9
    largest: float = 250.0
    still: float = 0.2
    """Chance of a camera that does not move."""
    driving: float = 0.25
    """Chance of a camera that drives along a ground plane."""
    parallax: float = 0.35
    """Chance that a layer stands still in the world, so that the camera alone moves it."""
    vertical: float = 0.7
    """Vertical motion, as a share of horizontal motion."""
    inverse_depth: Range = (0.2, 2.0)
    slant: float = 0.35
    """Deviation of the relative change of inverse depth over half an image."""
    roll: float = 0.01
    zoom: float = 0.35
    """Deviation of the camera's motion along its axis, beside that across it."""
    linear: float = 0.03
    linear_spread: float = 0.8
    rotation: float = 0.05
    """Deviations of a layer's linear motion and rotation, per pixel from its centre."""
    bending: float = 0.4
    """Chance of non-rigid motion."""
    bending_amplitude: Range = (0.02, 0.3)
    """In shares of the scene's magnitude, over 48 px."""
    horizon: Range = (0.2, 0.6)
    """Of a driving scene, in shares of the height."""
    ground: Range = (0.4, 1.6)

    # The camera's picture.
    defocus: float = 0.3
    """Chance that some layers are out of focus."""
    defocus_blur: Range = (0.8, 2.5)
    motion_blur: float = 0.3
    shutter: Range = (0.1, 0.5)
    longest_blur: float = 12.0
    blur: Range = (0.25, 1.2)
    gamma: float = 0.35
    noise: Range = (0.0, 0.04)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, value := tuple(value))
            self._check(field.name, str(field.type), value)
        if not 1 <= self.most_objects <= 64:
            raise InputError(f"most_objects: {self.most_objects} was given; 1 to 64 is taken.")
        if self.objects[1] > self.most_objects:
            raise InputError(f"objects: {self.objects} was given; at most most_objects = {self.most_objects} is taken.")
        if len(self.wobble) != 3:
            raise InputError(f"wobble: {self.wobble} was given; three amplitudes are taken.")
        if not 1 <= self.groups[0] <= self.groups[1] <= 256:
            raise InputError(f"groups: {self.groups} was given; a range within 1 to 256 is taken.")
        if self.box + self.ring + self.bar + self.cutout > 1 + 1e-9:
            raise InputError("box, ring, bar, cutout: their chances add up to more than 1.")
        for name in ("radius", "texture_scale", "photo_scale", "bar_aspect", "inverse_depth", "shadow_sharpness"):
            if getattr(self, name)[0] <= 0:
                raise InputError(f"{name}: {getattr(self, name)} was given; values above 0 are taken.")

    def _check(self, name: str, kind: str, value: object) -> None:
        """Raise InputError unless a field's value is of its kind, the text of its annotation."""
        numbers = value if isinstance(value, tuple) else (value,)
        whole = kind in ("int", "Counts")
        types = int if whole else int | float
        if not all(isinstance(n, types) and not isinstance(n, bool) and math.isfinite(n) for n in numbers):
            raise InputError(f"{name}: {value!r} was given; {'whole ' if whole else ''}numbers are taken.")
        if min((0, *numbers)) < 0:
            raise InputError(f"{name}: {value!r} was given; nothing below 0 is taken.")
        is_range = kind in ("Range", "Counts")
        if is_range and not (isinstance(value, tuple) and len(numbers) == 2 and numbers[0] <= numbers[1]):
            raise InputError(f"{name}: {value!r} was given; two numbers, a low and a high one, are taken.")
        if not is_range and isinstance(value, tuple) != kind.startswith("tuple"):
            form = "numbers in a list" if kind.startswith("tuple") else "a single number"
            raise InputError(f"{name}: {value!r} was given; {form} is taken.")
        if name in _CHANCES and not 0 <= numbers[0] <= 1:
            raise InputError(f"{name}: {value!r} was given; a chance from 0 to 1 is taken.")


_CHANCES = {
    *("photo", "segmented", "box", "ring", "bar", "cutout", "fuzzy", "material", "camouflage", "similar", "shadow"),
    *("still", "driving", "parallax", "bending", "defocus", "motion_blur"),
}
