"""Points, their neighbours, thinning, and local affine fits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.robust import points as module
from flowinpaint.robust.points import NEIGHBOURS, SURROUNDINGS, local_affine, norm, points_of, thinned
from helpers import generator, seeds
from imperfect_fields import points_on, smooth_scene, some_pixels, to_batch

masks = st.builds(
    lambda H, W, share, seed: torch.rand(H, W, generator=generator(seed)) < share,
    st.integers(1, 60),
    st.integers(1, 60),
    st.floats(0.02, 1),
    seeds,
)


def affine_field(H: int, W: int) -> np.ndarray:
    y, x = np.mgrid[:H, :W].astype(np.float32)
    return np.stack([1 + 0.3 * x - 0.1 * y, -2 + 0.05 * x + 0.2 * y], -1).astype(np.float32)


class TestThinned:
    @given(given=masks, most=st.integers(1, 400))
    def test_a_subset_that_is_the_same_each_time(self, given: Tensor, most: int) -> None:
        kept = thinned(given, most)
        assert not (kept & ~given).any()
        assert torch.equal(kept, thinned(given, most))
        assert bool(kept.any()) == bool(given.any())
        if int(given.sum()) <= most:
            assert torch.equal(kept, given)

    @pytest.mark.parametrize("share", [1.0, 0.5, 0.05, 0.01])
    @pytest.mark.parametrize("most", [50, 400])
    def test_about_as_many_as_wanted_however_sparse_the_field_is(self, share: float, most: int) -> None:
        given = torch.rand(300, 300, generator=generator(0)) < share
        assert 0.4 * most < int(thinned(given, most).sum()) < 1.2 * most

    def test_of_a_dense_field_the_middle_of_each_block(self) -> None:
        kept = thinned(torch.ones(9, 12, dtype=torch.bool), 12)
        expected = torch.zeros(9, 12, dtype=torch.bool)
        expected[1::3, 1::3] = True
        assert torch.equal(kept, expected)


class TestPointsOf:
    def test_a_point_per_given_pixel_in_their_order(self) -> None:
        image, field = smooth_scene(20, 30)
        mask = some_pixels(20, 30, 0.2)
        points = points_on(field, mask, image)
        assert len(points) == mask.sum()
        assert np.array_equal(points.mask.numpy(), mask)
        assert np.array_equal(points.place.numpy(), np.argwhere(mask))
        assert np.array_equal(points.vectors.numpy(), field[mask])
        assert torch.equal(points.at(points.on_grid(points.vectors)), points.vectors)
        assert not points.on_grid(points.vectors)[..., ~points.mask].any()
        assert points.surroundings.shape == (len(points), SURROUNDINGS)
        assert points.surroundings.isfinite().all()

    @given(count=st.integers(2, 40), seed=seeds)
    @settings(max_examples=30)
    def test_the_neighbours_are_the_nearest_other_points(self, count: int, seed: int) -> None:
        mask = np.zeros((13, 17), np.bool_)
        mask.flat[np.random.default_rng(seed).permutation(mask.size)[:count]] = True
        points = points_on(np.zeros((13, 17, 1), np.float32), mask)
        k = min(NEIGHBOURS, count - 1)
        assert points.neighbours.shape == points.distances.shape == (count, k)
        assert not (points.neighbours == torch.arange(count)[:, None]).any()
        d = torch.cdist(points.place, points.place)
        torch.testing.assert_close(d.gather(1, points.neighbours), points.distances)
        nearest = d.fill_diagonal_(torch.inf).sort(1).values[:, :k]
        torch.testing.assert_close(points.distances, nearest)

    @given(H=st.integers(1, 12), W=st.integers(1, 12), C=st.integers(1, 3), seed=seeds)
    @settings(max_examples=40)
    def test_any_size(self, H: int, W: int, C: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mask = rng.random((H, W)) < 0.7
        if mask.sum() < 2:
            return
        image = rng.integers(0, 256, (H, W, 3), np.uint8)
        points = points_on(rng.normal(size=(H, W, C)).astype(np.float32), mask, image)
        assert points.vectors.shape == (mask.sum(), C)
        for x in (points.surroundings, points.colours, points.distances):
            assert x.isfinite().all()

    def test_a_dense_field_is_thinned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_POINTS", 100)
        image, field = smooth_scene(40, 50)
        everything = np.ones((40, 50), np.bool_)
        points = points_of(to_batch(image), to_batch(field), to_batch(everything))
        assert len(points) <= 100
        assert np.array_equal(points.vectors.numpy(), field[points.mask.numpy()])


class TestScale:
    @pytest.mark.parametrize("factor", [1e-3, 10.0, 1e6])
    def test_it_has_the_unit_of_the_field(self, factor: float) -> None:
        image, field = smooth_scene()
        mask = some_pixels(64, 80, 0.1)
        points, scaled = (points_on(np.float32(s) * field, mask, image) for s in (1, factor))
        assert scaled.scale == pytest.approx(factor * points.scale, rel=1e-4)
        assert scaled.spread == pytest.approx(factor * points.spread, rel=1e-4)

    @pytest.mark.parametrize("value", [0.0, 3.0, -1e5])
    def test_it_is_positive_even_if_all_vectors_agree(self, value: float) -> None:
        assert points_on(np.full((8, 9, 2), value, np.float32), some_pixels(8, 9, 0.4)).scale > 0

    @given(C=st.integers(1, 5), c=st.floats(-100, 100))
    def test_the_norm_does_not_depend_on_the_number_of_equal_channels(self, C: int, c: float) -> None:
        assert float(norm(torch.full((C,), c))) == pytest.approx(float(norm(torch.full((2,), c))), rel=1e-5)

    def test_the_norm_of_flow_is_its_length(self) -> None:
        assert float(norm(torch.tensor([3.0, 4.0]))) == pytest.approx(5)


class TestLocalAffine:
    def test_an_affine_field_is_reproduced_up_to_the_penalty_of_slopes(self) -> None:
        mask = np.zeros((40, 40), np.bool_)
        mask[2::4, 2::4] = True
        points = points_on(affine_field(40, 40), mask)
        found, _ = local_affine(points, torch.ones(len(points)))
        inside = ((points.place > 8) & (points.place < 32)).all(1)
        error = norm(found - points.vectors) / points.scale
        assert inside.sum() > 20
        assert float(error[inside].max()) < 0.1
        mean = points.vectors[points.neighbours].mean(1)
        nearest_mean = norm(mean - points.vectors)[~inside] / points.scale
        assert float(error[~inside].mean()) < 0.8 * float(nearest_mean.mean())

    def test_a_constant_field_is_reproduced(self) -> None:
        points = points_on(np.full((20, 20, 3), -7, np.float32), some_pixels(20, 20, 0.2))
        found, residual = local_affine(points, torch.ones(len(points)))
        torch.testing.assert_close(found, points.vectors)
        assert float(residual.max()) < 1e-5

    def test_a_vector_has_no_influence_on_its_own_prediction(self) -> None:
        image, field = smooth_scene()
        mask = some_pixels(64, 80, 0.05)
        i = 17
        place = tuple(np.argwhere(mask)[i])
        changed = field.copy()
        changed[place] += 1e4
        found = [local_affine(p, torch.ones(len(p)))[0] for p in (points_on(f, mask, image) for f in (field, changed))]
        assert torch.equal(found[0][i], found[1][i])
        assert not torch.equal(found[0], found[1])

    def test_outliers_among_the_neighbours_hardly_matter(self) -> None:
        image, field = smooth_scene()
        mask = some_pixels(64, 80, 0.1)
        wrong = field.copy()
        wrong[some_pixels(64, 80, 0.1, seed=1)] += 50
        clean, dirty = (points_on(f, mask, image) for f in (field, wrong))
        found = [local_affine(p, torch.ones(len(p)))[0] for p in (clean, dirty)]
        assert float(norm(found[0] - found[1]).median()) < 0.05
        assert float(norm(found[1] - clean.vectors).quantile(0.9)) < 1

    def test_what_is_not_trusted_hardly_matters(self) -> None:
        image, field = smooth_scene()
        mask = some_pixels(64, 80, 0.1)
        other = some_pixels(64, 80, 0.4, seed=1)
        wrong = np.where(other[..., None], field + 50, field)
        points = points_on(wrong, mask, image)
        trust = torch.from_numpy(~other[mask]).float()
        told, untold = (norm(local_affine(points, t)[0] - points.at(to_batch(field))) for t in (trust, 0 * trust + 1))
        assert float(told.mean()) < 0.2 * float(untold.mean())
