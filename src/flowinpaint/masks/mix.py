"""The masks of a training run: a family for each sample, by weight, and every range of what it draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.checks import Limit, check_number, check_range
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.masks import families

Range = tuple[float, float]
_ONE = (1, 1, 1)


class Sample(NamedTuple):
    """What a mask may depend on: image (B, 3, H, W), flow (B, C, H, W) and the noise (B, 1, H, W) of `families`."""

    image: Tensor
    flow: Tensor
    noise: Tensor


@dataclass(frozen=True)
class MaskMix:
    """Weights of the families, then the ranges (low, high) that a sample's numbers are drawn from.

    A family of weight 0 costs nothing. Densities, sizes, the focal length, the spacings and the noise are
    log-uniform, all else is uniform.
    """

    bernoulli: float = 1.0
    few: float = 0.0
    lidar: float = 0.0
    corners: float = 0.0
    grid: float = 0.0
    blob_holes: float = 0.0
    rectangle_holes: float = 0.0
    occlusion: float = 0.0

    density: Range = (0.004, 0.15)
    """Share of the pixels, of bernoulli."""
    count: Range = (1, 16)
    """Pixels, of few."""
    lidar_lines: Range = (16, 64)
    lidar_spacing: Range = (1.0, 4.0)
    """Pixels from point to point along a line."""
    lidar_horizon: Range = (0.2, 0.45)
    """Share of the height above it, which is empty."""
    lidar_focal: Range = (0.6, 1.5)
    """Focal length in widths of the picture: the shorter, the more the lines are curved."""
    lidar_lost: Range = (0.0, 0.3)
    """Share of the points that do not return, one by one."""
    lidar_gaps: Range = (0.0, 0.25)
    """Share of the picture in patches that do not return."""
    corner_density: Range = (0.001, 0.01)
    corner_distance: int = 3
    """Pixels in which a corner is the only one."""
    grid_spacing: Range = (4, 16)
    grid_jitter: Range = (0.0, 1.0)
    """Share of its square in which a point lies."""
    hole_size: Range = (20.0, 120.0)
    """Diameter of blobs and sides of rectangles, in pixels."""
    hole_density: Range = (0.05, 1.0)
    """Share of the pixels that are known outside of holes and of occlusions."""
    blob_share: Range = (0.1, 0.5)
    """Share of the picture in holes."""
    rectangle_count: Range = (1, 6)
    occlusion_reach: Range = (0.25, 1.0)
    """Width of the band to either side, in pixels for each pixel of a jump."""
    occlusion_jump: float = 1.0
    """Pixels of difference between neighbours above which there is a band."""
    occlusion_widest: int = 12
    noisy: float = 0.0
    """Chance that the given vectors of a sample are noisy."""
    noise: Range = (0.003, 0.3)
    """Deviation of the noise of either component, in pixels."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _RANGES:
                value = tuple(value) if isinstance(value, list) else value  # A list is what a TOML file gives.
                check_range(field.name, value, _RANGES[field.name])
                object.__setattr__(self, field.name, value)
            else:
                check_number(field.name, value, _NUMBERS.get(field.name, Limit.WEIGHT))
        if not any(getattr(self, name) for name in _FAMILIES):
            raise InputError(f"{', '.join(_FAMILIES)} are all 0; at least one weight above 0 is taken.")

    def draw(self, draws: Draws, image: Tensor, flow: Tensor, valid: Tensor) -> Tensor:
        """Masks (B, 1, H, W), 1 where known and else 0, for an image (B, 3, H, W) and a flow (B, C, H, W).

        Only pixels of valid (B, 1, H, W) are known, and at least one of them in each sample that has any.
        """
        sample = Sample(image, flow, families.pixel_noise(draws, valid))
        first, *others = [name for name in _FAMILIES if getattr(self, name)]
        known = _FAMILIES[first](self, draws, sample)
        # A share of the samples keeps what it has, another takes the next family, and so on.
        choice = draws.uniform(_ONE, 0.0, sum(getattr(self, name) for name in _FAMILIES))
        before = getattr(self, first)
        for name in others:
            known = torch.where(choice < before, known, _FAMILIES[name](self, draws, sample))
            before += getattr(self, name)
        return families.settle(known, sample.noise).to(valid.dtype)

    def disturb(self, draws: Draws, flow: Tensor) -> Tensor:
        """The vectors (B, C, H, W) as they are given: noisy ones, now and then."""
        if not self.noisy:
            return flow
        deviation = draws.log_uniform(_ONE, *self.noise) * draws.chance(_ONE, self.noisy)
        return flow + deviation * draws.normal(tuple(flow.shape[1:]))

    def _bernoulli(self, draws: Draws, sample: Sample) -> Tensor:
        return families.bernoulli(sample.noise, draws.log_uniform(_ONE, *self.density))

    def _few(self, draws: Draws, sample: Sample) -> Tensor:
        return families.few(sample.noise, _whole(draws, self.count), int(self.count[1]))

    def _lidar(self, draws: Draws, sample: Sample) -> Tensor:
        return families.lidar(
            draws,
            sample.noise,
            lines=_whole(draws, self.lidar_lines),
            spacing=draws.log_uniform(_ONE, *self.lidar_spacing),
            horizon=draws.uniform(_ONE, *self.lidar_horizon),
            focal=draws.log_uniform(_ONE, *self.lidar_focal),
            lost=draws.uniform(_ONE, *self.lidar_lost),
            gaps=draws.uniform(_ONE, *self.lidar_gaps),
        )

    def _corners(self, draws: Draws, sample: Sample) -> Tensor:
        density = draws.log_uniform(_ONE, *self.corner_density)
        return families.corners(sample.image, sample.noise, density, self.corner_density[1], self.corner_distance)

    def _grid(self, draws: Draws, sample: Sample) -> Tensor:
        return families.grid(
            draws,
            sample.noise,
            spacing=torch.round(draws.log_uniform(_ONE, *self.grid_spacing)),
            closest=int(self.grid_spacing[0]),
            jitter=draws.uniform(_ONE, *self.grid_jitter),
            shift=draws.uniform((2, 1, 1)),
        )

    def _blob_holes(self, draws: Draws, sample: Sample) -> Tensor:
        return families.blob_holes(
            draws,
            sample.noise,
            share=draws.uniform(_ONE, *self.blob_share),
            size=draws.log_uniform(_ONE, *self.hole_size),
            density=draws.log_uniform(_ONE, *self.hole_density),
        )

    def _rectangle_holes(self, draws: Draws, sample: Sample) -> Tensor:
        return families.rectangle_holes(
            draws,
            sample.noise,
            count=_whole(draws, self.rectangle_count),
            sides=draws.log_uniform((2, int(self.rectangle_count[1]), 1), *self.hole_size),
            density=draws.log_uniform(_ONE, *self.hole_density),
        )

    def _occlusion(self, draws: Draws, sample: Sample) -> Tensor:
        return families.occlusion(
            sample.noise,
            sample.flow,
            reach=draws.uniform(_ONE, *self.occlusion_reach),
            jump=self.occlusion_jump,
            widest=self.occlusion_widest,
            density=draws.log_uniform(_ONE, *self.hole_density),
        )


def _whole(draws: Draws, limits: Range) -> Tensor:
    low, high = int(limits[0]), int(limits[1])
    return low + draws.integers(_ONE, high - low + 1)


_FAMILIES: dict[str, Callable[[MaskMix, Draws, Sample], Tensor]] = {
    "bernoulli": MaskMix._bernoulli,
    "few": MaskMix._few,
    "lidar": MaskMix._lidar,
    "corners": MaskMix._corners,
    "grid": MaskMix._grid,
    "blob_holes": MaskMix._blob_holes,
    "rectangle_holes": MaskMix._rectangle_holes,
    "occlusion": MaskMix._occlusion,
}
_RANGES = {
    "density": Limit.SHARE,
    "count": Limit.COUNT,
    "lidar_lines": Limit.COUNT,
    "lidar_spacing": Limit.LENGTH,
    "lidar_horizon": Limit.PART,
    "lidar_focal": Limit.POSITIVE,
    "lidar_lost": Limit.PART,
    "lidar_gaps": Limit.PART,
    "corner_density": Limit.SHARE,
    "grid_spacing": Limit.COUNT,
    "grid_jitter": Limit.CHANCE,
    "hole_size": Limit.LENGTH,
    "hole_density": Limit.SHARE,
    "blob_share": Limit.PART,
    "rectangle_count": Limit.COUNT,
    "occlusion_reach": Limit.WEIGHT,
    "noise": Limit.POSITIVE,
}
_NUMBERS = {
    "corner_distance": Limit.COUNT,
    "occlusion_jump": Limit.POSITIVE,
    "occlusion_widest": Limit.COUNT,
    "noisy": Limit.CHANCE,
}
