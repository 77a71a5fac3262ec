"""`robust_fill`, with assessors of which a test knows the verdict."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flowinpaint.methods.method import Fill
from flowinpaint.methods.registry import get_method
from flowinpaint.result import Progress, Solution
from flowinpaint.robust import fill as fill_module
from flowinpaint.robust import points as points_module
from flowinpaint.robust.assessor import Assessor, Verdict
from flowinpaint.robust.estimate import FEWEST, FILLS
from flowinpaint.robust.fill import LEAST_EXACT, RobustSolution, _are_exact, robust_fill
from flowinpaint.robust.hints import Hints
from imperfect_fields import smooth_scene, some_pixels, to_batch, with_gross_outliers

H, W = 40, 50
IMAGE, FIELD = smooth_scene(H, W)
MASK = some_pixels(H, W, 0.2)
METHODS = pytest.mark.parametrize("method", ["harmonic", "neuroexplicit"])


@pytest.fixture
def no_ramps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill without continuing ramps."""
    monkeypatch.setattr(fill_module, "ramps", lambda *arguments: None)


def constant_assessor(log_noise: float, log_errors: float, logit: float) -> Assessor:
    """An assessor with the same outputs for every vector."""
    torch.manual_seed(0)
    assessor = Assessor().eval()
    last = assessor.verdict.head[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(log_errors)
        last.bias[0], last.bias[-1] = log_noise, logit
    return assessor


CLEAN = constant_assessor(-6, 2, 6)
"""It finds every vector exact and correct."""
WRONG = constant_assessor(2, -2, -8)
"""It finds every vector wrong."""


def untrained() -> Assessor:
    torch.manual_seed(0)
    return Assessor().eval()


def filled(
    field: Any = FIELD, mask: Any = MASK, hints: Hints | None = None, method: str = "harmonic", **keywords: Any
) -> RobustSolution:
    told = {"assessor": untrained()} | keywords
    f = to_batch(field * mask[..., None])
    return robust_fill(get_method(method).fill, to_batch(IMAGE), f, to_batch(mask), hints or Hints(), **told)


def plain(method: str, mask: Any = MASK, field: Any = FIELD) -> Tensor:
    f = to_batch(field * mask[..., None])
    u = get_method(method).fill(to_batch(IMAGE), f, to_batch(mask)).u.float()
    return torch.where(to_batch(mask) > 0, f, u)


def same(a: RobustSolution, b: RobustSolution) -> bool:
    """Whether two solutions are equal bit by bit."""
    errors = a.solution.expected_error, b.solution.expected_error
    alike = errors[0] is errors[1] or (
        errors[0] is not None and errors[1] is not None and torch.equal(errors[0], errors[1])
    )
    return (
        alike
        and torch.equal(a.solution.u, b.solution.u)
        and torch.equal(a.inliers.nan_to_num(-1), b.inliers.nan_to_num(-1))
        and a.noise == b.noise
    )


class TestVerdicts:
    @METHODS
    def test_clean_vectors_are_kept_bit_by_bit_and_the_rest_is_the_plain_fill(
        self, method: str, no_ramps: None
    ) -> None:
        found = filled(method=method, assessor=CLEAN)
        assert torch.equal(found.solution.u.float(), plain(method))
        assert bool((found.inliers[to_batch(MASK) > 0] > 0.99).all())
        assert found.noise is not None
        assert found.noise < 0.01

    @METHODS
    def test_wrong_vectors_are_replaced(self, method: str) -> None:
        damaged, wrong = with_gross_outliers(FIELD)
        found = filled(damaged, method=method, assessor=WRONG)
        known = to_batch(MASK) > 0
        assert bool((found.inliers[known] < 0.01).all())
        at = (known & (to_batch(wrong) > 0)).expand(-1, 2, -1, -1)
        change = (found.solution.u - to_batch(damaged))[at].abs().mean()
        assert float(change) > 3
        assert float((found.solution.u - to_batch(FIELD))[at].abs().mean()) < 0.5 * float(change)

    def test_the_inliers_are_nan_exactly_where_nothing_is_given(self) -> None:
        for assessor in (untrained(), CLEAN, WRONG):
            found = filled(assessor=assessor).inliers
            assert found.shape == (1, 1, H, W)
            assert torch.equal(found.isnan(), to_batch(MASK) == 0)

    @METHODS
    def test_errors_are_expected_also_of_given_vectors(self, method: str) -> None:
        for assessor in (untrained(), CLEAN):
            error = filled(method=method, assessor=assessor).solution.expected_error
            assert error is not None
            assert error.shape == (1, 1, H, W)
            assert bool((error > 0).all())
            known = to_batch(MASK) > 0
            assert float(error[known].mean()) < float(error[~known].mean())

    def test_the_seed_decides(self) -> None:
        first, again, other = (filled(seed=seed) for seed in (3, 3, 4))
        assert same(first, again)
        assert not same(first, other)

    def test_the_inputs_are_left_alone(self) -> None:
        image, f, mask = to_batch(IMAGE), to_batch(FIELD * MASK[..., None]), to_batch(MASK)
        hints = Hints(0.5 * mask, 0.5 * mask, image.flip(-1), True)
        inputs = image, f, mask, hints.noise, hints.confidence, hints.second
        copies = [x.clone() for x in inputs if x is not None]
        robust_fill(get_method("harmonic").fill, image, f, mask, hints, assessor=untrained())
        assert all(x is not None and torch.equal(x, y) for x, y in zip(inputs, copies, strict=True))


class TestHints:
    @METHODS
    @pytest.mark.parametrize("estimate", [False, True])
    @pytest.mark.parametrize("assessor", ["untrained", "clean"])
    def test_vectors_of_confidence_zero_have_no_influence(self, method: str, estimate: bool, assessor: str) -> None:
        useless = some_pixels(H, W, 0.3, seed=1) & MASK
        confidence = to_batch(np.where(useless, 0, 0.9) * MASK)
        wild = np.where(useless[..., None], np.float32(-1e4) * FIELD, FIELD)
        told: dict[str, Any] = {"method": method, "assessor": CLEAN if assessor == "clean" else untrained()}
        hints = Hints(confidence=confidence, estimate=estimate)
        assert same(filled(FIELD, hints=hints, **told), filled(wild, hints=hints, **told))

    @METHODS
    @pytest.mark.parametrize("estimate", [False, True])
    def test_a_vector_of_confidence_zero_counts_as_not_given_but_is_judged(self, method: str, estimate: bool) -> None:
        useless = some_pixels(H, W, 0.3, seed=1) & MASK
        hints = Hints(confidence=to_batch(np.where(useless, 0, 0.9) * MASK), estimate=estimate)
        found = filled(hints=hints, method=method)
        assert torch.equal(found.inliers.isnan(), to_batch(MASK) == 0)
        assert not found.inliers[to_batch(useless) > 0].any()
        without = filled(mask=MASK & ~useless, hints=hints, method=method)
        assert torch.equal(found.solution.u, without.solution.u)
        assert found.noise == without.noise

    @METHODS
    def test_no_noise_means_exact_vectors(self, method: str, no_ramps: None) -> None:
        found = filled(hints=Hints(noise=to_batch(0.0 * MASK), estimate=False), method=method)
        assert torch.equal(found.solution.u.float(), plain(method))
        assert bool((found.inliers[to_batch(MASK) > 0] == 1).all())

    def test_final_values_are_returned(self) -> None:
        rng = np.random.default_rng(0)
        p, sigma = rng.uniform(0.01, 0.99, (H, W)) * MASK, rng.uniform(0.5, 2, (H, W)) * MASK
        found = filled(hints=Hints(to_batch(sigma), to_batch(p), estimate=False))
        known = to_batch(MASK) > 0
        torch.testing.assert_close(found.inliers[known], to_batch(p)[known])
        assert found.noise == pytest.approx(np.exp((p * np.log(np.where(MASK, sigma, 1))).sum() / p.sum()), rel=1e-4)

    def test_as_priors_they_change_the_features_only(self) -> None:
        p = to_batch(np.where(MASK, 0.3, 0))
        told, untold = (filled(hints=Hints(confidence=x, estimate=True)) for x in (p, None))
        known = to_batch(MASK) > 0
        assert not torch.equal(told.inliers[known], untold.inliers[known])
        assert not torch.allclose(told.inliers[known], p[known], atol=0.01)

    def test_those_of_low_confidence_are_left_out_of_a_clean_field(self, no_ramps: None) -> None:
        mask, few = MASK, some_pixels(H, W, 0.04, seed=2)
        damaged = np.where(few[..., None], FIELD + 10, FIELD)
        p = to_batch(np.where(few, LEAST_EXACT[0] / 2, 1) * mask)
        hints = Hints(to_batch(0.0 * mask), p, estimate=False)
        found = filled(damaged, mask, hints, assessor=CLEAN)
        assert torch.equal(found.solution.u.float(), plain("harmonic", mask & ~few))

    def test_a_second_image_changes_the_verdict(self) -> None:
        second = to_batch(np.roll(IMAGE, (-3, 5), (0, 1)))
        known = to_batch(MASK) > 0
        with_it, without = (filled(hints=Hints(second=x)).inliers[known] for x in (second, None))
        assert not torch.allclose(with_it, without, atol=1e-4)


class TestFewVectors:
    @METHODS
    @pytest.mark.parametrize("count", [1, 2, FEWEST - 1])
    def test_they_are_as_good_as_the_caller_says(self, method: str, count: int) -> None:
        mask = np.zeros((H, W), np.bool_)
        mask.flat[np.random.default_rng(0).permutation(H * W)[:count]] = True
        hints = Hints(to_batch(0.25 * mask), to_batch(0.75 * mask), estimate=True)
        found = filled(mask=mask, hints=hints, method=method)
        assert torch.equal(found.solution.u, plain(method, mask))
        assert found.noise == pytest.approx(0.25)
        known = to_batch(mask) > 0
        assert torch.equal(found.inliers.isnan(), ~known)
        assert bool((found.inliers[known] == 0.75).all())
        assert filled(mask=mask, method=method).noise is None
        assert bool((filled(mask=mask, method=method).inliers[known] == 1).all())

    def test_their_noise_is_part_of_the_expected_error(self) -> None:
        mask = np.zeros((H, W), np.bool_)
        mask[[3, 20, 33], [4, 30, 44]] = True
        quiet, noisy = (
            filled(mask=mask, hints=Hints(to_batch(s * mask)), method="neuroexplicit").solution.expected_error
            for s in (0.0, 2.0)
        )
        assert quiet is not None
        assert noisy is not None
        assert not quiet[to_batch(mask) > 0].any()
        torch.testing.assert_close(noisy[to_batch(mask) > 0], torch.full((3,), 2 * 2**0.5))
        assert bool((noisy >= quiet).all())


class TestDenseFields:
    @pytest.fixture(autouse=True)
    def few_points(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(points_module, "MOST_POINTS", 300)

    everywhere = np.ones((H, W), np.bool_)

    def test_vectors_that_are_no_points_are_judged_too(self) -> None:
        damaged, wrong = with_gross_outliers(FIELD, 0.05)
        found = filled(damaged, self.everywhere, assessor=constant_assessor(-2, 0, 3)).inliers[0, 0].numpy()
        assert np.isfinite(found).all()
        thinned = points_module.thinned(torch.from_numpy(self.everywhere), 300).numpy()
        assert np.median(found[~thinned & ~wrong]) > 0.9
        assert np.median(found[~thinned & wrong]) < 0.1

    @pytest.mark.parametrize("estimate", [True, False])
    def test_known_probabilities_hold_at_every_vector(self, estimate: bool) -> None:
        p = np.random.default_rng(0).uniform(0.01, 0.99, (H, W)).astype(np.float32)
        found = filled(mask=self.everywhere, hints=Hints(confidence=to_batch(p), estimate=estimate)).inliers
        if not estimate:
            torch.testing.assert_close(found, to_batch(p))
        assert bool(((found >= 0) & (found <= 1)).all())


class TestEqualVectors:
    """The flagship expects infinite errors of a fill from equal vectors: their variation is unknown."""

    @METHODS
    @pytest.mark.parametrize("value", [0.0, 3.0, -1e5])
    @pytest.mark.parametrize("noise", [None, 0.0, 1.0])
    def test_a_constant_field_is_filled(self, method: str, value: float, noise: float | None) -> None:
        sigma = None if noise is None else to_batch(noise * MASK)
        found = filled(np.full_like(FIELD, value), hints=Hints(sigma, estimate=noise is None), method=method)
        torch.testing.assert_close(found.solution.u.float(), torch.full((1, 2, H, W), value), atol=1e-4, rtol=1e-5)
        assert found.inliers[to_batch(MASK) > 0].isfinite().all()
        error = found.solution.expected_error
        assert error is None or not error.isnan().any()

    @METHODS
    def test_one_that_differs(self, method: str) -> None:
        field = np.full_like(FIELD, 3)
        field[tuple(np.argwhere(MASK)[7])] = 50
        found = filled(field, method=method)
        assert found.solution.u.isfinite().all()
        assert float((found.solution.u - 3).abs().median()) < 1


class TestFills:
    def counted(self, shapes: list[tuple[int, ...]]) -> Fill:
        def fill(image: Tensor, f: Tensor, mask: Tensor, weight: Tensor | None = None) -> Solution:
            shapes.append(tuple(f.shape[-2:]))
            return get_method("harmonic").fill(image, f, mask, weight=weight)

        return fill

    def test_six_at_half_the_resolution_and_one_at_full(self) -> None:
        shapes: list[tuple[int, ...]] = []
        robust_fill(
            self.counted(shapes), to_batch(IMAGE), to_batch(FIELD), to_batch(MASK), Hints(), assessor=untrained()
        )
        assert shapes == [(H // 2, W // 2)] * FILLS + [(H, W)]

    def test_progress_is_the_share_of_all_fills(self) -> None:
        seen: list[Progress] = []
        filled(progress=seen.append)
        shares = [p.share or 0.0 for p in seen]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0, 1)
        assert {p.level for p in seen} == set(range(1, FILLS + 2))
        assert {p.levels for p in seen[1:]} == {FILLS + 1}
        starts = [min(p.share or 0.0 for p in seen[1:] if p.level == k) for k in range(1, FILLS + 2)]
        assert starts == pytest.approx([i * 0.25 / (FILLS * 0.25 + 1) for i in range(FILLS + 1)])


class TestExactness:
    def verdict(self, error: float, wrong: float) -> Verdict:
        """100 vectors of noise 1, a share of them surely wrong."""
        one = torch.ones(100)
        logit = torch.where(torch.arange(100) < 100 * wrong, -9.0, 5.0)
        return Verdict(torch.zeros(100, 2), error * one, one, logit)

    @pytest.mark.parametrize(
        ("noise", "error", "wrong", "exact"),
        [
            (0.1, 0.1, 0.0, True),  # hardly any noise
            (0.1, 0.1, 0.9, True),
            (0.4, 0.5, 0.0, False),  # estimates are better than the vectors
            (0.4, 3.0, 0.0, True),  # they are worse
            (0.4, 3.0, 0.1, False),  # but some vectors are wrong
            (0.9, 3.0, 0.05, False),  # or the noise is large
            (0.9, 3.0, 0.0, True),  # nothing to gain
            (0.9, 1.0, 0.0, False),
            (0.4, 3.0, 1.0, False),
        ],
    )
    def test_vectors_are_kept_if_that_is_better(self, noise: float, error: float, wrong: float, exact: bool) -> None:
        assert _are_exact(self.verdict(error, wrong), noise) is exact

    def test_exact_vectors_are_not_compared_with_a_second_image(self) -> None:
        second = to_batch(np.roll(IMAGE, (-3, 5), (0, 1)))
        with_it, without = (filled(hints=Hints(second=x), assessor=CLEAN) for x in (second, None))
        assert same(with_it, without)
