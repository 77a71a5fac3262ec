"""Masks of a training run: a family for each sample, by weight, and the ranges of its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from flowinpaint.checks import Limit, Range, check_fields
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.masks import families

FAMILIES = ("bernoulli", "few", "lidar", "corners", "grid", "blob_holes", "rectangle_holes", "occlusion")
_ONE = (1, 1, 1)


@dataclass(frozen=True)
class MaskMix:
    """Weights of the FAMILIES, then the ranges (low, high) of a sample's numbers.

    A family of weight 0 costs nothing. Densities, sizes, focal lengths, spacings and the noise are log-uniform, all
    others are uniform.
    """

    bernoulli: float = 1.0
    few: float = 0.0
    lidar: float = 0.0
    corners: float = 0.0
    grid: float = 0.0
    blob_holes: float = 0.0
    rectangle_holes: float = 0.0
    occlusion: float = 0.0

    density: Annotated[Range, Limit.SHARE] = (0.004, 0.15)
    """Fraction of the pixels, for bernoulli."""
    count: Annotated[Range, Limit.COUNT] = (1, 16)
    """Number of pixels, for few."""
    lidar_lines: Annotated[Range, Limit.COUNT] = (16, 64)
    lidar_spacing: Annotated[Range, Limit.LENGTH] = (1.0, 4.0)
    """Pixels between the points of a line."""
    lidar_horizon: Annotated[Range, Limit.PART] = (0.2, 0.45)
    """Height of the horizon, above which there are no points, as a fraction of the picture's."""
    lidar_focal: Annotated[Range, Limit.POSITIVE] = (0.6, 1.5)
    """Focal length in widths of the picture; a shorter one curves the lines more."""
    lidar_lost: Annotated[Range, Limit.PART] = (0.0, 0.3)
    """Fraction of single points without a return."""
    lidar_gaps: Annotated[Range, Limit.PART] = (0.0, 0.25)
    """Fraction of the picture in patches without returns."""
    corner_density: Annotated[Range, Limit.SHARE] = (0.001, 0.01)
    corner_distance: Annotated[int, Limit.COUNT] = 3
    """Least distance between two corners, in pixels."""
    grid_spacing: Annotated[Range, Limit.COUNT] = (4, 16)
    grid_jitter: Annotated[Range, Limit.CHANCE] = (0.0, 1.0)
    """Fraction of its square over which a point is placed."""
    hole_size: Annotated[Range, Limit.LENGTH] = (20.0, 120.0)
    """Diameter of blobs and sides of rectangles, in pixels."""
    hole_density: Annotated[Range, Limit.SHARE] = (0.05, 1.0)
    """Fraction of known pixels outside holes and occlusions."""
    blob_share: Annotated[Range, Limit.PART] = (0.1, 0.5)
    """Fraction of the picture in holes."""
    rectangle_count: Annotated[Range, Limit.COUNT] = (1, 6)
    occlusion_reach: Annotated[Range, Limit.WEIGHT] = (0.25, 1.0)
    """Width of the band to either side, in pixels per pixel of the jump."""
    occlusion_jump: Annotated[float, Limit.POSITIVE] = 1.0
    """Difference between neighbours, in pixels, above which there is a band."""
    occlusion_widest: Annotated[int, Limit.COUNT] = 12
    noisy: Annotated[float, Limit.CHANCE] = 0.0
    """Probability that the known vectors of a sample are noisy."""
    noise: Annotated[Range, Limit.POSITIVE] = (0.003, 0.3)
    """Standard deviation of the noise of each component, in pixels."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self._weights():
            raise InputError(f"at least one of {', '.join(FAMILIES)} must be above 0, got none")

    def _weights(self) -> dict[str, float]:
        return {name: weight for name in FAMILIES if (weight := getattr(self, name))}

    def draw(self, draws: Draws, image: Tensor, flow: Tensor, valid: Tensor) -> Tensor:
        """Draw masks (B, 1, H, W), 1 where known and else 0, for an image (B, 3, H, W) and a flow (B, C, H, W).

        Only pixels of valid (B, 1, H, W) are known, and at least one of them in each sample that has any.
        """
        noise = families.pixel_noise(draws, valid)
        (first, before), *others = self._weights().items()
        known = self._family(first, draws, image, flow, noise)
        # Each sample keeps its current mask or gets the next family's, with the probabilities of the weights.
        choice = draws.uniform(_ONE, 0.0, sum(self._weights().values()))
        for name, weight in others:
            known = torch.where(choice < before, known, self._family(name, draws, image, flow, noise))
            before += weight
        return families.settle(known, noise).to(valid.dtype)

    def disturb(self, draws: Draws, flow: Tensor) -> Tensor:
        """Add noise to the vectors (B, C, H, W) of some samples."""
        if not self.noisy:
            return flow
        deviation = draws.log_uniform(_ONE, *self.noise) * draws.chance(_ONE, self.noisy)
        return flow + deviation * draws.normal(tuple(flow.shape[1:]))

    def _family(self, name: str, draws: Draws, image: Tensor, flow: Tensor, noise: Tensor) -> Tensor:
        """Draw masks of one family, with its numbers from the ranges; the order of the draws determines the masks."""

        def uniform(limits: Range) -> Tensor:
            return draws.uniform(_ONE, *limits)

        def scale(limits: Range) -> Tensor:
            return draws.log_uniform(_ONE, *limits)

        def whole(limits: Range) -> Tensor:
            return draws.integers(_ONE, *map(int, limits))

        match name:
            case "bernoulli":
                return families.bernoulli(noise, scale(self.density))
            case "few":
                return families.few(noise, whole(self.count), int(self.count[1]))
            case "lidar":
                lines, spacing = whole(self.lidar_lines), scale(self.lidar_spacing)
                horizon, focal = uniform(self.lidar_horizon), scale(self.lidar_focal)
                lost, gaps = uniform(self.lidar_lost), uniform(self.lidar_gaps)
                return families.lidar(draws, noise, lines, spacing, horizon, focal, lost, gaps)
            case "corners":
                density, most = scale(self.corner_density), self.corner_density[1]
                return families.corners(image, noise, density, most, self.corner_distance)
            case "grid":
                spacing, jitter = torch.round(scale(self.grid_spacing)), uniform(self.grid_jitter)
                closest, shift = int(self.grid_spacing[0]), draws.uniform((2, 1, 1))
                return families.grid(draws, noise, spacing, closest, jitter, shift)
            case "blob_holes":
                share, size, density = uniform(self.blob_share), scale(self.hole_size), scale(self.hole_density)
                return families.blob_holes(draws, noise, share, size, density)
            case "rectangle_holes":
                count = whole(self.rectangle_count)
                sides = draws.log_uniform((2, int(self.rectangle_count[1]), 1), *self.hole_size)
                return families.rectangle_holes(draws, noise, count, sides, scale(self.hole_density))
            case _:
                reach, density = uniform(self.occlusion_reach), scale(self.hole_density)
                return families.occlusion(noise, flow, reach, self.occlusion_jump, self.occlusion_widest, density)
