"""Continuing ramps into regions far from all vectors."""

import numpy as np
import pytest
import torch
from torch import Tensor

from flowinpaint.robust.points import Points
from flowinpaint.robust.trend import _LEAST_FAR, affine_trend, distance_to, ramps
from imperfect_fields import harmonic_fill, points_on, some_pixels, to_batch

H, W = 120, 160


def ramp(slope: float = 0.05) -> np.ndarray:
    y, x = np.mgrid[:H, :W]
    return np.stack([2 + slope * x, -1 + slope * y - slope / 2 * x], -1).astype(np.float32)


def half_empty(share: float = 0.1) -> np.ndarray:
    """A mask without a vector in the lower 40 % of the image."""
    mask = some_pixels(H, W, share)
    mask[int(0.6 * H) :] = False
    return mask


def ones(points: Points) -> Tensor:
    return torch.ones(len(points))


def filled(points: Points) -> Tensor:
    image = torch.full((1, 3, H, W), 0.5)
    return harmonic_fill(image, points.on_grid(points.vectors), points.on_grid(ones(points)), None).u.float()


@pytest.mark.parametrize("slope", [0.0, 0.05, -3.0])
def test_the_trend_of_an_affine_field_is_that_field(slope: float) -> None:
    field = ramp(slope)
    points = points_on(field, some_pixels(H, W, 0.05))
    found = affine_trend(points, points.vectors, ones(points))
    assert found.shape == (1, 2, H, W)
    spread = max(float(np.ptp(field)), 1.0)
    torch.testing.assert_close(found, to_batch(field), atol=0.02 * spread, rtol=0)


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("size", [(3, 3), (5, 9), (17, 33)])
def test_any_size_and_channel_count(size: tuple[int, int], C: int) -> None:
    points = points_on(np.full((*size, C), 4, np.float32), np.ones(size, np.bool_))
    found = affine_trend(points, points.vectors, ones(points))
    torch.testing.assert_close(found, torch.full((1, C, *size), 4.0))


def test_the_trend_stays_near_the_range_of_the_vectors() -> None:
    rng = np.random.default_rng(0)
    mask = np.zeros((H, W), np.bool_)
    mask[5:15, 5:15] = rng.random((10, 10)) < 0.3
    points = points_on(ramp(1.0), mask)
    found = affine_trend(points, points.vectors, ones(points))
    low, high = points.vectors.amin(0).view(1, 2, 1, 1), points.vectors.amax(0).view(1, 2, 1, 1)
    margin = 0.25 * (high - low) + 1e-3
    assert bool((found >= low - margin).all())
    assert bool((found <= high + margin).all())
    assert float(found.amax()) > float(high.amax())


def test_the_trend_of_one_channel_stays_within_the_range_of_the_vectors() -> None:
    mask = some_pixels(H, W, 0.1)
    mask[: H // 2] = False
    points = points_on(0.05 + ramp(0.01)[..., :1], mask)
    found = affine_trend(points, points.vectors, ones(points))
    assert float(found.amin()) >= float(points.vectors.amin())
    assert float(found.amax()) <= float(points.vectors.amax())


def test_only_the_ratio_of_trusts_counts_and_what_has_none_is_left_out() -> None:
    field, mask = ramp(), some_pixels(H, W, 0.1)
    wrong = some_pixels(H, W, 0.3, seed=1)
    points = points_on(np.where(wrong[..., None], field + 1, field), mask)
    trust = torch.from_numpy(~wrong[mask]).float()
    told, less = (affine_trend(points, points.vectors, t) for t in (trust, 1e-6 * trust))
    torch.testing.assert_close(told, less, atol=1e-2, rtol=0)
    torch.testing.assert_close(told, to_batch(field), atol=0.1, rtol=0)
    assert float((affine_trend(points, points.vectors, ones(points)) - to_batch(field)).abs().mean()) > 0.2


def test_a_ramp_continues_into_an_empty_region() -> None:
    field = ramp()
    points = points_on(field, half_empty())
    plain, found = filled(points), ramps(points, points.vectors, ones(points))
    assert found is not None
    truth = to_batch(field)
    empty = slice(int(0.7 * H), None)
    before, after = (float((u - truth)[..., empty, :].abs().mean()) for u in (plain, plain + found))
    assert after < 0.4 * before
    far = distance_to(points.mask) > 2 * _LEAST_FAR
    assert float((plain + found - truth)[..., far].abs().mean()) < 0.5 * float((plain - truth)[..., far].abs().mean())


def test_pixels_near_vectors_stay_almost_as_they_are() -> None:
    points = points_on(ramp(), half_empty())
    found = ramps(points, points.vectors, ones(points))
    assert found is not None
    change, distance = found.abs().amax(1)[0], distance_to(points.mask)
    assert float(change.max()) > 0.3
    assert float(change[distance <= 1.0].max()) < 0.05 * float(change.max())
    assert not change[points.mask].any()


def test_without_an_empty_region_there_are_no_ramps() -> None:
    points = points_on(ramp(), some_pixels(H, W, 0.6))
    assert ramps(points, points.vectors, ones(points)) is None
    assert ramps(points, points.vectors, 0 * ones(points)) is None


def test_points_without_trust_neither_count_as_near_nor_enter_the_fits() -> None:
    field, lower = ramp(), np.zeros((H, W), np.bool_)
    lower[int(0.6 * H) :] = True
    points = points_on(np.where(lower[..., None], 50, field).astype(np.float32), some_pixels(H, W, 0.1))
    trust = torch.from_numpy(~lower)[points.mask].float()
    found = ramps(points, points.vectors, trust)
    expected = points_on(field, half_empty())
    assert found is not None
    alone = ramps(expected, expected.vectors, ones(expected))
    assert alone is not None
    torch.testing.assert_close(found, alone)


def test_the_distance_is_that_to_the_nearest_true() -> None:
    mask = torch.zeros(5, 6, dtype=torch.bool)
    mask[1, 2] = mask[4, 5] = True
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(6), indexing="ij")
    expected = torch.stack([((rows - r) ** 2 + (columns - c) ** 2).float().sqrt() for r, c in ((1, 2), (4, 5))]).amin(0)
    torch.testing.assert_close(distance_to(mask), expected)
