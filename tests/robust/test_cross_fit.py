"""The cross-fit: folds, and that no vector takes part in its own prediction."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.result import Solution
from flowinpaint.robust.cross_fit import SMALLEST_BLOCK, block_side, coarse_fill, cross_fit, folds
from flowinpaint.robust.training.train import fill_field
from helpers import seeds
from imperfect_fields import harmonic_fill, smooth_scene, some_pixels, to_batch

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


class TestCrossFit:
    @SIZES
    @pytest.mark.parametrize("method", ["harmonic", "neuroexplicit"])
    @pytest.mark.parametrize("weight", [None, 0.1])
    def test_a_vector_never_influences_its_own_prediction(
        self, size: tuple[int, int], method: str, weight: float | None
    ) -> None:
        image, f, good = inputs(size)
        fold = folds(size, 1, 0)
        changed = f.clone()
        row, column = good[0, 0].nonzero()[20].tolist()
        changed[..., row, column] += 100
        u, v = (cross_fit(fill_field(method), image, x, good, fold, weight).u for x in (f, changed))
        assert torch.equal(u[..., row, column], v[..., row, column])
        own = fold == fold[row, column]
        same = (good[0, 0] > 0) & own
        assert torch.equal(u[..., same], v[..., same])  # nor that of any other vector of its fold
        assert float((u - v)[..., (good[0, 0] > 0) & ~own].abs().max()) > 1

    @SIZES
    def test_what_is_not_good_has_no_influence_and_gets_the_mean_of_both_predictions(
        self, size: tuple[int, int]
    ) -> None:
        image, f, good = inputs(size, 0.3)
        bad = to_batch(some_pixels(*size, 0.2, seed=1)) * good
        fold = folds(size, 1, 0)
        u, v = (cross_fit(harmonic_fill, image, x, good - bad, fold, None).u for x in (f, f + 1000 * bad))
        assert torch.equal(u, v)
        first, second = (
            coarse_fill(harmonic_fill, image, f * rest, rest, None).u
            for rest in ((good - bad) * (fold != k) for k in (0, 1))
        )
        torch.testing.assert_close(u[..., bad[0, 0] > 0], ((first + second) / 2)[..., bad[0, 0] > 0])

    @SIZES
    @pytest.mark.parametrize("weight", [None, 0.1])
    def test_a_constant_field_is_predicted(self, size: tuple[int, int], weight: float | None) -> None:
        image, f, good = inputs(size)
        constant = torch.full_like(f, 3)
        found = cross_fit(harmonic_fill, image, constant, good, folds(size, 16, 0), weight)
        torch.testing.assert_close(found.u, constant, atol=1e-3, rtol=0)
        assert found.error is None

    def test_small_weights_smooth_noise(self) -> None:
        image, f, good = inputs(HALF, 0.3)
        f = torch.full_like(f, 3)
        noisy = f + torch.from_numpy(np.random.default_rng(0).normal(0, 1, f.shape)).float()
        fold, at = folds(HALF, 1, 0), good[0, 0] > 0
        sharp, smooth = (cross_fit(harmonic_fill, image, noisy, good, fold, w).u for w in (None, 0.1))
        assert float((smooth - f)[..., at].abs().mean()) < 0.8 * float((sharp - f)[..., at].abs().mean())

    def test_the_flagship_tells_the_error_it_expects(self) -> None:
        image, f, good = inputs(HALF)
        error = cross_fit(fill_field("neuroexplicit"), image, f, good, folds(HALF, 1, 0), None).error
        assert error is not None
        assert error.shape == good.shape
        assert bool((error >= 0).all())
        assert float((error[good > 0] > 0).float().mean()) > 0.95  # 0 between exact neighbours at half the resolution

    @SIZES
    def test_no_error_that_it_expects_is_nan_even_if_all_vectors_are_equal(self, size: tuple[int, int]) -> None:
        image, f, good = inputs(size)
        found = cross_fit(fill_field("neuroexplicit"), image, torch.full_like(f, 3), good, folds(size, 1, 0), None)
        assert found.error is not None
        assert not found.error.isnan().any()

    def test_if_a_fold_has_no_good_vector_all_of_them_predict(self) -> None:
        image, f, good = inputs(FULL)
        everyone = torch.zeros(FULL, dtype=torch.int64)
        found = cross_fit(harmonic_fill, image, f, good, everyone, None).u
        expected = coarse_fill(harmonic_fill, image, f, good, None).u
        torch.testing.assert_close(found[..., good[0, 0] > 0], expected[..., good[0, 0] > 0])


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
