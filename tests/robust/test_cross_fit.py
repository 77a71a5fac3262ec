"""The cross-fit: folds, and that no vector takes part in its own prediction."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.result import Solution
from flowinpaint.robust import cross_fit as cross_fit_module
from flowinpaint.robust.cross_fit import SMALLEST_BLOCK, block_side, coarse_fill, cross_fit, folds
from flowinpaint.robust.points import Points, norm
from flowinpaint.robust.training.train import fill_field
from helpers import generator, seeds
from imperfect_fields import harmonic_fill, points_on, smooth_scene, some_pixels, to_batch

HALF, FULL = (40, 50), (24, 30)
"""Sizes of which the first is filled at half the resolution."""
SIZES = pytest.mark.parametrize("size", [HALF, FULL])


def inputs(size: tuple[int, int], share: float = 0.1) -> tuple[Tensor, Tensor, Tensor]:
    """An image, a field and the mask of its good vectors."""
    image, field = smooth_scene(*size)
    mask = some_pixels(*size, share)
    return to_batch(image), to_batch(field), to_batch(mask)


class TestFolds:
    @given(H=st.integers(1, 70), W=st.integers(1, 70), side=st.integers(1, 40), seed=st.integers(0, 2**31))
    @settings(max_examples=50)
    def test_blocks_of_two_folds(self, H: int, W: int, side: int, seed: int) -> None:
        fold = folds((H, W), side, seed)
        assert fold.shape == (H, W)
        assert set(fold.flatten().tolist()) <= {0, 1}
        rows, columns = torch.meshgrid(torch.arange(H) // side * side, torch.arange(W) // side * side, indexing="ij")
        assert torch.equal(fold, fold[rows, columns])
        assert torch.equal(fold, folds((H, W), side, seed))

    def test_they_are_balanced_and_depend_on_the_seed(self) -> None:
        first, second = (folds((100, 100), 1, seed) for seed in (0, 1))
        assert float(first.float().mean()) == pytest.approx(0.5, abs=0.03)
        assert float((first == second).float().mean()) == pytest.approx(0.5, abs=0.03)

    @given(spacing=st.floats(1, 1000))
    def test_a_block_holds_several_points(self, spacing: float) -> None:
        assert block_side(spacing) >= max(SMALLEST_BLOCK, 3.9 * spacing)


def point_set(size: tuple[int, int], share: float = 0.1, constant: float | None = None) -> tuple[Tensor, Points]:
    """An image and the points of a field."""
    image, field = smooth_scene(*size)
    field = field if constant is None else np.full_like(field, constant)
    return to_batch(image), points_on(field, some_pixels(*size, share), image)


def ones(points: Points) -> Tensor:
    return torch.ones(len(points))


def fold_of(points: Points, side: int = 1) -> Tensor:
    size = (points.mask.shape[0], points.mask.shape[1])
    return folds(size, side, 0)[points.mask]


class TestCrossFit:
    @SIZES
    @pytest.mark.parametrize("method", ["harmonic", "neuroexplicit"])
    @pytest.mark.parametrize("weight", [None, 0.1])
    def test_a_vector_never_influences_its_own_prediction(
        self, size: tuple[int, int], method: str, weight: float | None
    ) -> None:
        image, points = point_set(size)
        fold, vectors = fold_of(points), points.vectors.clone()
        vectors[20] += 100
        changed = replace(points, vectors=vectors)
        u, v = (cross_fit(fill_field(method), image, x, ones(x), fold, weight).u for x in (points, changed))
        own = fold == fold[20]
        assert torch.equal(u[own], v[own])  # nor that of any other vector of its fold
        assert float((u - v)[~own].abs().max()) > 1

    @SIZES
    def test_points_without_trust_have_no_influence_and_get_the_mean_of_both_predictions(
        self, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cross_fit_module, "ramps", lambda *arguments: None)
        image, points = point_set(size, 0.3)
        bad = torch.rand(len(points), generator=generator(1)) < 0.2
        changed = replace(points, vectors=points.vectors + 1000 * bad[:, None])
        trust, fold = (~bad).float(), fold_of(points)
        u, v = (cross_fit(harmonic_fill, image, x, trust, fold, None).u for x in (points, changed))
        assert torch.equal(u, v)
        first, second = (
            points.at(coarse_fill(harmonic_fill, image, points.on_grid(rest[:, None] * points.vectors), mask, None).u)
            for rest, mask in ((rest, points.on_grid(rest)) for rest in (trust * (fold != k) for k in (0, 1)))
        )
        torch.testing.assert_close(u[bad], ((first + second) / 2)[bad])

    @SIZES
    @pytest.mark.parametrize("weight", [None, 0.1])
    def test_a_constant_field_is_predicted(self, size: tuple[int, int], weight: float | None) -> None:
        image, points = point_set(size, constant=3)
        found = cross_fit(harmonic_fill, image, points, ones(points), fold_of(points, 16), weight)
        torch.testing.assert_close(found.u, points.vectors, atol=1e-3, rtol=0)
        assert found.error is None

    def test_ramps_continue_across_a_block(self) -> None:
        """At the border of an image a block is predicted from one side only, where diffusion would stay constant."""
        size = (96, 120)
        y = np.mgrid[: size[0], : size[1]][0]
        points = points_on(np.stack([0.5 * y, -0.2 * y], -1).astype(np.float32), some_pixels(*size, 0.2))
        fold = (points.place[:, 0] >= 66).long()
        found = cross_fit(harmonic_fill, torch.full((1, 3, *size), 0.5), points, ones(points), fold, None).u
        off, flat = (
            norm(x - points.vectors)[points.place[:, 0] > 80].mean() for x in (found, points.vectors[fold == 0].amax(0))
        )
        assert float(off) < 0.3 * float(flat)

    def test_small_weights_smooth_noise(self) -> None:
        image, points = point_set(HALF, 0.3, constant=3)
        noise = torch.randn(points.vectors.shape, generator=generator(0))
        noisy = replace(points, vectors=points.vectors + noise)
        sharp, smooth = (
            cross_fit(harmonic_fill, image, noisy, ones(points), fold_of(points), w).u for w in (None, 0.1)
        )
        assert float((smooth - 3).abs().mean()) < 0.8 * float((sharp - 3).abs().mean())

    def test_the_flagship_tells_the_error_it_expects(self) -> None:
        image, points = point_set(HALF)
        error = cross_fit(fill_field("neuroexplicit"), image, points, ones(points), fold_of(points), None).error
        assert error is not None
        assert error.shape == (len(points),)
        assert bool((error >= 0).all())
        assert float((error > 0).float().mean()) > 0.95  # 0 between exact neighbours at half the resolution

    @SIZES
    def test_no_error_that_it_expects_is_nan_even_if_all_vectors_are_equal(self, size: tuple[int, int]) -> None:
        image, points = point_set(size, constant=3)
        found = cross_fit(fill_field("neuroexplicit"), image, points, ones(points), fold_of(points), None)
        assert found.error is not None
        assert not found.error.isnan().any()

    def test_if_a_fold_has_no_trusted_point_all_of_them_predict(self) -> None:
        image, points = point_set(FULL)
        everyone = torch.zeros(len(points), dtype=torch.int64)
        found = cross_fit(harmonic_fill, image, points, ones(points), everyone, None).u
        expected = coarse_fill(
            harmonic_fill, image, points.on_grid(points.vectors), points.on_grid(ones(points)), None
        ).u
        torch.testing.assert_close(found, points.at(expected))


class TestCoarseFill:
    @given(H=st.integers(1, 70), W=st.integers(1, 70), C=st.integers(1, 3), seed=seeds)
    @settings(max_examples=20)
    def test_any_size(self, H: int, W: int, C: int, seed: int) -> None:
        f = torch.full((1, C, H, W), 2.5)
        mask = to_batch(some_pixels(H, W, 0.1, seed))
        found = coarse_fill(harmonic_fill, torch.rand(1, 3, H, W), f * mask, mask, None).u
        torch.testing.assert_close(found, f, atol=1e-3, rtol=0)

    def test_it_is_close_to_a_fill_at_full_resolution(self) -> None:
        image, f, good = inputs((64, 80))
        sizes: list[tuple[int, int]] = []

        def fill(image: Tensor, f: Tensor, mask: Tensor, weight: Tensor | None) -> Solution:
            sizes.append((f.shape[-2], f.shape[-1]))
            return harmonic_fill(image, f, mask, weight)

        found = coarse_fill(fill, image, f * good, good, None).u
        assert sizes == [(32, 40)]
        spread = float((f - f.mean((2, 3), keepdim=True)).abs().mean())
        assert float((found - f).abs().mean()) < 0.1 * spread
