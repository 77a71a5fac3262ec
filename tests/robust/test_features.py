"""Features of given vectors: their form, and what they must not depend on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.robust.features import (
    CROSS_FIT_PAIR,
    CROSS_FIT_POINT,
    DIRECTION,
    HINTS,
    PAIR,
    PAIR_HINTS,
    PHOTO_HINT,
    POINT,
    Candidates,
    Features,
    cross_fit_features,
    hint_features,
    log_ratio,
    point_features,
)
from flowinpaint.robust.points import Points, local_affine
from helpers import generator, seeds
from imperfect_fields import points_on, smooth_scene, some_pixels

LENGTH = 2
"""The feature of a pair that compares lengths."""


def alone(points: Points) -> Features:
    return point_features(points, *local_affine(points, torch.ones(len(points))))


def crossed(points: Points, unit: float = 1.0, errors: bool = True) -> Features:
    """The features with candidates that differ from the vectors by random amounts in this unit."""
    g = generator(0)
    N, C = points.vectors.shape
    candidates = Candidates(points.vectors, *(points.vectors + unit * torch.randn(N, C, generator=g) for _ in range(4)))
    expected = unit * torch.rand(N, generator=g) if errors else None
    return cross_fit_features(points, alone(points), torch.randn(N, generator=g), candidates, (expected, expected))


@given(
    H=st.integers(3, 12), W=st.integers(3, 12), C=st.integers(1, 3), share=st.floats(0.2, 1), flat=st.booleans(),
    seed=seeds, errors=st.booleans(),
)  # fmt: skip
@settings(max_examples=40)
def test_the_form_and_finite_values(H: int, W: int, C: int, share: float, flat: bool, seed: int, errors: bool) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((H, W)) < share
    mask[0, 0] = mask[-1, -1] = True
    field = np.zeros((H, W, C)) if flat else rng.normal(0, 5, (H, W, C))
    points = points_on(field.astype(np.float32), mask, rng.integers(0, 256, (H, W, 3), np.uint8))
    N, k = points.neighbours.shape
    for features, own, pair in (
        (alone(points), POINT, PAIR),
        (crossed(points, 1, errors), CROSS_FIT_POINT, CROSS_FIT_PAIR),
    ):
        assert features.point.shape == (N, own)
        assert features.pair.shape == (N, k, pair)
        assert features.point.isfinite().all()
        assert features.pair.isfinite().all()


@pytest.mark.parametrize("errors", [True, False])
def test_they_do_not_depend_on_the_unit_and_hardly_on_the_origin_of_the_field(errors: bool) -> None:
    """Only the differences in length between neighbours depend on the origin."""
    image, field = smooth_scene(40, 50)
    mask = some_pixels(40, 50, 0.1)
    expected = crossed(points_on(field, mask, image), 1.0, errors)
    for factor, offset in ((8, 0), (1 / 64, 0), (1, 16), (10, -30)):
        found = crossed(points_on(np.float32(factor) * field + np.float32(offset), mask, image), factor, errors)
        torch.testing.assert_close(found.point, expected.point, rtol=1e-2, atol=1e-2)
        free = [i for i in range(CROSS_FIT_PAIR) if i != LENGTH or offset == 0]
        torch.testing.assert_close(found.pair[..., free], expected.pair[..., free], rtol=1e-2, atol=1e-2)


def test_one_channel_looks_like_the_same_in_two() -> None:
    image, field = smooth_scene(40, 50, 1)
    mask = some_pixels(40, 50, 0.1)
    one = alone(points_on(field, mask, image))
    two = alone(points_on(np.repeat(field, 2, axis=2), mask, image))
    torch.testing.assert_close(one.point, two.point, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(one.pair, two.pair, rtol=1e-3, atol=1e-3)


def test_an_expected_error_is_compared_per_two_components() -> None:
    """In one channel an expected error e stands for (e, e) in two, of length √2 e, as `norm` counts it."""
    image, field = smooth_scene(40, 50, 1)
    mask = some_pixels(40, 50, 0.1)
    one, two = (points_on(f, mask, image) for f in (field, np.repeat(field, 2, axis=2)))
    error = torch.rand(len(one), generator=generator(0))
    found = []
    for points, e in ((one, error), (two, error * 2**0.5)):
        candidates = Candidates(*[points.vectors] * len(Candidates._fields))
        found.append(cross_fit_features(points, alone(points), error, candidates, (e, e)).point)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_the_direction_to_a_neighbour_and_whether_its_vector_is_longer() -> None:
    y, x = np.mgrid[:20, :20]
    points = points_on((100 + 4 * x + 0 * y).astype(np.float32)[..., None], np.ones((20, 20), np.bool_))
    pair = alone(points).pair
    step = points.place[points.neighbours] - points.place[:, None]
    torch.testing.assert_close(pair[..., DIRECTION], step)  # the spacing is 1
    assert bool((pair[..., LENGTH].sign() == step[..., 1].sign()).all())


def test_a_wrong_vector_stands_out() -> None:
    image, field = smooth_scene(40, 50)
    mask = some_pixels(40, 50, 0.1)
    i = 40
    field[tuple(np.argwhere(mask)[i])] += 10
    point = alone(points_on(field, mask, image)).point
    deviation = point[:, 6]  # after the six ranks
    assert int(deviation.argmax()) == i
    assert bool((point[i, :6] > point[:, :6].median(0).values + 1).all())


@given(x=st.lists(st.floats(0, 1e30), min_size=2, max_size=9), scale=st.floats(1e-6, 1e6))
def test_the_logarithm_of_a_ratio_is_finite_and_never_falls(x: list[float], scale: float) -> None:
    found = log_ratio(torch.tensor(sorted(x)), scale)
    assert found.isfinite().all()
    assert bool((found.diff() >= 0).all())
    torch.testing.assert_close(log_ratio(torch.tensor([scale]), scale), torch.tensor([0.00995]), atol=1e-3, rtol=0)


class TestHints:
    points = points_on(smooth_scene(20, 30)[1], some_pixels(20, 30, 0.1))

    def flagged(self, **known: Tensor) -> tuple[Tensor, Tensor]:
        """Which hints of the points, and of the pairs, are not zero at some point."""
        features = hint_features(self.points, **known)
        N, k = self.points.neighbours.shape
        assert features.point.shape == (N, HINTS)
        assert features.pair.shape == (N, k, PAIR_HINTS)
        return features.point.any(0), features.pair.flatten(0, 1).any(0)

    def test_nothing_known_is_zero(self) -> None:
        point, pair = self.flagged()
        assert not point.any()
        assert not pair.any()

    def test_each_hint_has_its_own_place_and_a_flag(self) -> None:
        N = len(self.points)
        noise, confidence = torch.full((N,), 0.3), torch.linspace(0, 1, N)
        photo = torch.rand(N, PHOTO_HINT - 1, generator=generator(0)) + 0.1
        places = [self.flagged(noise=noise)[0], self.flagged(confidence=confidence)[0], self.flagged(photo=photo)[0]]
        assert torch.stack(places).sum(0).tolist() == [1] * HINTS
        assert [int(p.sum()) for p in places] == [2, 2, PHOTO_HINT]
        features = hint_features(self.points, noise, confidence, photo)
        assert bool((features.point[:, [1, 3, -1]] == 1).all())
        assert features.point.isfinite().all()
        assert self.flagged(photo=photo)[1].all()

    def test_the_hint_of_a_pair_is_that_of_the_neighbour(self) -> None:
        photo = torch.rand(len(self.points), PHOTO_HINT - 1, generator=generator(0))
        pair = hint_features(self.points, photo=photo).pair
        near = int(self.points.neighbours[3, 5])
        assert pair[3, 5].tolist() == pytest.approx([*photo[near, [0, 5, 10]].tolist(), 1.0])

    def test_a_hint_about_noise_is_relative_to_the_scale(self) -> None:
        scale = self.points.scale
        small, large = (
            hint_features(self.points, torch.full((len(self.points),), s * scale)).point[0, 0] for s in (0.1, 1.0)
        )
        assert float(large - small) == pytest.approx(np.log(1.01 / 0.11), rel=1e-4)
