"""Configuration of the layered-scene generator: every range it draws from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from flowinpaint.checks import Counts, Limit, Range, check_fields
from flowinpaint.errors import InputError


@dataclass(frozen=True)
class LayeredConfig:
    """Ranges (low, high), probabilities and standard deviations; lengths are in pixels unless stated otherwise."""

    # The background.
    photo: Annotated[float, Limit.CHANCE] = 0.75
    """Probability that the background is a photo instead of a material."""
    segmented: Annotated[float, Limit.CHANCE] = 0.8
    """Probability that the segments of a photo move on their own."""
    groups: Annotated[Counts, Limit.COUNT] = (2, 32)
    """Number of motion groups that the segments are merged into."""
    photo_scale: Annotated[Range, Limit.POSITIVE] = (0.55, 1.4)
    """Photo pixels per scene pixel."""

    # Objects.
    most_objects: Annotated[int, Limit.COUNT] = 13
    objects: Annotated[Counts, Limit.WHOLE] = (1, 13)
    place: Annotated[Range, Limit.ANY] = (-0.05, 1.05)
    """Position of an object's centre as a fraction of width and height."""
    radius: Annotated[Range, Limit.POSITIVE] = (0.025, 0.32)
    """Fraction of the shorter side, log-uniform; objects further in front are smaller."""
    aspect: float = 0.6
    """Deviation of the log ratio of an object's axes."""
    box: Annotated[float, Limit.CHANCE] = 0.12
    ring: Annotated[float, Limit.CHANCE] = 0.12
    bar: Annotated[float, Limit.CHANCE] = 0.33
    cutout: Annotated[float, Limit.CHANCE] = 0.33
    """Probabilities of the shapes; all others are blobs."""
    cutout_scale: Annotated[float, Limit.POSITIVE] = 1.5
    """Size of cut-outs relative to other objects."""
    upright: Annotated[float, Limit.CHANCE] = 0.7
    """Probability that a cut-out stands upright."""
    tilt: float = 0.3
    """Largest rotation of an upright cut-out, as a fraction of half a turn."""
    bar_aspect: Annotated[Range, Limit.POSITIVE] = (3.3, 250.0)
    """Log-uniform; the thinnest bars are narrower than a pixel."""
    ring_width: Annotated[Range, Limit.POSITIVE] = (0.03, 0.45)
    """Fraction of the radius, log-uniform."""
    bumps: tuple[float, ...] = (0.28, 0.22, 0.16, 0.10, 0.08)
    """Deviations of the Fourier coefficients 2, 3, … of a blob's radius."""
    ellipse: Annotated[float, Limit.CHANCE] = 1 / 3
    """Probability that a blob is an ellipse."""
    wobble: tuple[float, ...] = (6.0, 2.5, 1.5)
    """Amplitudes of border distortion at spacings of 32, 8 and 3 px; the last one is rare."""
    fuzzy: Annotated[float, Limit.CHANCE] = 0.3
    """Probability of the finest distortion, which makes borders ragged."""

    # Appearance.
    material: Annotated[float, Limit.CHANCE] = 0.6
    """Probability that an object shows a material instead of a piece of a photo."""
    texture_scale: Annotated[Range, Limit.POSITIVE] = (0.35, 1.8)
    mirror: Annotated[float, Limit.CHANCE] = 0.5
    """Probability that a layer's picture is mirrored."""
    camouflage: Annotated[float, Limit.CHANCE] = 0.06
    """Probability that an object continues the picture behind it: a flow edge without an image edge."""
    similar: Annotated[float, Limit.CHANCE] = 0.06
    """Probability that an object shows another part of the background's picture."""
    contrast: float = 0.25
    tint: float = 0.12
    offset: float = 0.05
    """Deviations of a layer's log brightness, log colours and additive offset."""
    shading: float = 0.25
    shadow: Annotated[float, Limit.CHANCE] = 0.5
    """Probability of hard shadows: image edges without a flow edge."""
    shadow_level: Annotated[Range, Limit.ANY] = (0.3, 1.3)
    """Threshold of the smooth field, in deviations, above which there is shadow."""
    shadow_depth: Range = (0.1, 0.65)
    shadow_sharpness: Annotated[Range, Limit.POSITIVE] = (3.0, 60.0)

    # Motion.
    magnitude: float = 5.0
    """Median of a scene's motion magnitude, which is log-normal."""
    magnitude_spread: float = 0.9
    largest: float = 250.0
    still: Annotated[float, Limit.CHANCE] = 0.2
    """Probability of a static camera."""
    driving: Annotated[float, Limit.CHANCE] = 0.25
    """Probability of a camera that drives along a ground plane."""
    parallax: Annotated[float, Limit.CHANCE] = 0.35
    """Probability that a layer is static in the world, so that only the camera moves it."""
    vertical: float = 0.7
    """Vertical motion as a fraction of horizontal motion."""
    turn: float = 0.5
    """Rotation of the camera as a fraction of its sideways motion."""
    inverse_depth: Annotated[Range, Limit.POSITIVE] = (0.2, 2.0)
    slant: float = 0.35
    """Deviation of the relative change of inverse depth over half an image."""
    roll: float = 0.01
    zoom: float = 0.35
    """Deviation of the camera's motion along its axis, relative to its sideways motion."""
    linear: float = 0.03
    linear_spread: float = 0.8
    rotation: float = 0.05
    """Deviations of a layer's linear motion and rotation, per pixel from its centre."""
    bending: Annotated[float, Limit.CHANCE] = 0.4
    """Probability of non-rigid motion."""
    bending_amplitude: Range = (0.02, 0.3)
    """Fraction of the scene's magnitude, over 48 px."""
    horizon: Range = (0.2, 0.6)
    """Horizon of a driving scene as a fraction of the height."""
    ground: Range = (1.6, 6.4)
    """Increase of the ground's inverse depth over half of the longer side."""
    beyond: float = 0.05
    """Inverse depth at and above the horizon."""
    flat: Annotated[float, Limit.CHANCE] = 0.5
    """Probability that a background segment lies on the ground; the others stand upright."""
    driving_speed: Range = (1.0, 2.0)
    """Motion of a driving camera along its axis, as a fraction of the scene's magnitude."""
    driving_sideways: float = 0.3
    """Sideways motion of a driving camera, as a fraction of that of other cameras."""
    driving_parallax: Annotated[float, Limit.CHANCE] = 0.7
    """Probability that a layer with its own motion is static in a driving scene."""

    # Camera.
    defocus: Annotated[float, Limit.CHANCE] = 0.3
    """Probability that some layers are out of focus."""
    unsharp: Annotated[float, Limit.CHANCE] = 0.5
    """Probability that a layer is one of them."""
    defocus_blur: Range = (0.8, 2.5)
    motion_blur: Annotated[float, Limit.CHANCE] = 0.3
    shutter: Range = (0.1, 0.5)
    exposure_shift: float = 0.25
    """Largest offset of the middle of the exposure from the instant of the flow, as a fraction of the exposure."""
    longest_blur: Annotated[float, Limit.POSITIVE] = 12.0
    blur: Range = (0.25, 1.2)
    gamma: float = 0.35
    noise: Range = (0.0, 0.04)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.most_objects > 64:
            raise InputError(f"most_objects must be at most 64, got {self.most_objects}")
        if self.objects[1] > self.most_objects:
            raise InputError(f"objects must be at most most_objects = {self.most_objects}, got {self.objects}")
        if len(self.wobble) != 3:
            raise InputError(f"wobble must have three amplitudes, got {self.wobble}")
        if self.groups[1] > 256:
            raise InputError(f"groups must be at most 256, got {self.groups}")
        if self.exposure_shift > 0.5:
            raise InputError(f"exposure_shift must be at most 0.5, the end of the exposure, got {self.exposure_shift}")
        if (total := self.box + self.ring + self.bar + self.cutout) > 1 + 1e-9:
            raise InputError(f"box, ring, bar and cutout must add up to at most 1, got {total:g}")
