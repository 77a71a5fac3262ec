"""Every range that the layered-flow generator draws from."""

from __future__ import annotations

from dataclasses import dataclass, fields

from flowinpaint.checks import Limit, check_number, check_range
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
    place: Range = (-0.05, 1.05)
    """Of an object's centre, in shares of width and height."""
    radius: Range = (0.025, 0.32)
    """In shares of the shorter side; logarithms are uniform, and later objects, in front, are smaller."""
    aspect: float = 0.6
    """Deviation of the logarithm of the ratio of an object's axes."""
    box: float = 0.12
    ring: float = 0.12
    bar: float = 0.33
    cutout: float = 0.33
    """Chances of the shapes; what is left are blobs."""
    cutout_scale: float = 1.5
    """How much larger than other objects cut-outs are."""
    upright: float = 0.7
    """Chance that a cut-out stands upright."""
    tilt: float = 0.3
    """The most that one that does is turned, as a share of half a turn."""
    bar_aspect: Range = (3.3, 250.0)
    """Logarithms are uniform, down to bars of less than a pixel."""
    ring_width: Range = (0.03, 0.45)
    """In shares of the radius; logarithms are uniform."""
    bumps: tuple[float, ...] = (0.28, 0.22, 0.16, 0.10, 0.08)
    """Deviations of the Fourier coefficients 2, 3, … of a blob's radius."""
    ellipse: float = 1 / 3
    """Chance that a blob has none of them."""
    wobble: tuple[float, ...] = (6.0, 2.5, 1.5)
    """Amplitudes of the distortion of borders, with spacings of 32, 8 and 3 px; the last one is rare."""
    fuzzy: float = 0.3
    """Chance of the finest distortion, which makes borders ragged."""

    # Appearance.
    material: float = 0.6
    """Chance that an object shows a material, otherwise it shows a piece of a photo."""
    texture_scale: Range = (0.35, 1.8)
    mirror: float = 0.5
    """Chance that a layer's picture is mirrored."""
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
    shadow_level: Range = (0.3, 1.3)
    """Height of the smooth field, in deviations, above which there is shadow: the higher, the less of it."""
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
    turn: float = 0.5
    """Turning of the camera, as a share of its motion across."""
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
    ground: Range = (1.6, 6.4)
    """Inverse depth that the ground gains over half of the longer side."""
    beyond: float = 0.05
    """Inverse depth at the horizon and above it."""
    flat: float = 0.5
    """Chance that a segment of the background lies on the ground; the others stand upright."""
    driving_speed: Range = (1.0, 2.0)
    """Motion of a driving camera along its axis, in shares of the scene's magnitude."""
    driving_sideways: float = 0.3
    """Its motion across, as a share of that of other cameras."""
    driving_parallax: float = 0.7
    """Chance that a layer which would move on its own does not in a driving scene."""

    # The camera's picture.
    defocus: float = 0.3
    """Chance that some layers are out of focus."""
    unsharp: float = 0.5
    """Chance that a layer is one of them."""
    defocus_blur: Range = (0.8, 2.5)
    motion_blur: float = 0.3
    shutter: Range = (0.1, 0.5)
    exposure_shift: float = 0.25
    """The most that the middle of the exposure lies before or after the instant of the flow, as a share of it."""
    longest_blur: float = 12.0
    blur: Range = (0.25, 1.2)
    gamma: float = 0.35
    noise: Range = (0.0, 0.04)

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, str(field.type))
        if self.most_objects > 64:
            raise InputError(f"most_objects is {self.most_objects}; up to 64 are taken.")
        if self.objects[1] > self.most_objects:
            raise InputError(f"objects is {self.objects}; at most most_objects = {self.most_objects} are taken.")
        if len(self.wobble) != 3:
            raise InputError(f"wobble is {self.wobble}; three amplitudes are taken.")
        if self.groups[1] > 256:
            raise InputError(f"groups is {self.groups}; up to 256 are taken.")
        if self.exposure_shift > 0.5:
            raise InputError(f"exposure_shift is {self.exposure_shift}; up to 0.5, the ends of the exposure, is taken.")
        if self.box + self.ring + self.bar + self.cutout > 1 + 1e-9:
            raise InputError("box, ring, bar, cutout: their chances add up to more than 1.")

    def _check(self, name: str, kind: str) -> None:
        """Raise InputError unless a field's value is of its kind, the text of its annotation; lists become tuples."""
        value, limit = getattr(self, name), _LIMITS.get(name, Limit.WEIGHT)
        if isinstance(value, list):
            value = tuple(value)
        if kind in ("Range", "Counts"):
            check_range(name, value, limit)
        elif kind.startswith("tuple"):
            for number in value if isinstance(value, tuple) else (value,):
                check_number(name, number, limit)
        else:
            check_number(name, value, limit)
        if kind == "int":
            value = int(value)
        elif kind == "Counts":
            value = tuple(map(int, value))
        object.__setattr__(self, name, value)


_LIMITS = {
    **dict.fromkeys(
        ("photo", "segmented", "box", "ring", "bar", "cutout", "ellipse", "upright", "fuzzy"), Limit.CHANCE
    ),
    **dict.fromkeys(("material", "mirror", "camouflage", "similar", "shadow", "still", "driving"), Limit.CHANCE),
    **dict.fromkeys(("parallax", "driving_parallax", "flat", "bending", "defocus", "unsharp"), Limit.CHANCE),
    "motion_blur": Limit.CHANCE,
    **dict.fromkeys(
        ("radius", "texture_scale", "photo_scale", "bar_aspect", "ring_width", "inverse_depth"), Limit.POSITIVE
    ),
    **dict.fromkeys(("shadow_sharpness", "cutout_scale", "longest_blur"), Limit.POSITIVE),
    **dict.fromkeys(("place", "shadow_level"), Limit.ANY),
    "most_objects": Limit.COUNT,
    "objects": Limit.WHOLE,
    "groups": Limit.COUNT,
}
"""Of the fields that take not just any number of at least 0."""
