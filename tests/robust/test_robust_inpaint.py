"""`fi.inpaint` with `robust`, `noise`, `confidence` and `second`, with the weights of the package."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.data.matchers import lucas_kanade
from flowinpaint.evaluation.given_vectors import roc_auc
from flowinpaint.methods.registry import get_method
from flowinpaint.robust import fill as fill_module
from flowinpaint.robust.training.second_image import second_image
from helpers import random_field, seeds
from imperfect_fields import smooth_scene, some_pixels, to_batch, with_gross_outliers, with_noise

H, W = 96, 128
IMAGE, TRUTH = smooth_scene(H, W)
MASK = some_pixels(H, W, 0.1)
ACCEPTED = ["neuroexplicit", "neuroexplicit-paper", "eed", "laplace-beltrami", "harmonic"]
METHODS = pytest.mark.parametrize("method", ACCEPTED)
SOME = pytest.mark.parametrize("method", ["neuroexplicit", "laplace-beltrami"])


def inpaint(field: Any, method: str = "neuroexplicit", mask: Any = MASK, **keywords: Any) -> fi.Result:
    return fi.inpaint(IMAGE, field, mask, method, "cpu", **keywords)


def judged(result: fi.Result, mask: Any = MASK) -> Any:
    """The inlier probabilities (N,) of the given vectors."""
    assert result.inliers is not None
    assert result.inliers.dtype == np.float32
    return result.inliers[mask]


def equal(a: fi.Result, b: fi.Result) -> bool:
    """Whether two results are the same bit by bit."""
    pairs = ((a.flow, b.flow), (a.inliers, b.inliers), (a.expected_error, b.expected_error))
    same = [x is y or (x is not None and y is not None and x.tobytes() == y.tobytes()) for x, y in pairs]
    return all(same) and a.info["noise"] == b.info["noise"]


class TestWithoutTheArguments:
    @METHODS
    def test_nothing_is_judged_and_the_result_is_that_of_the_fill_function(
        self, method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fill_module, "robust_fill", None)
        for keywords in ({}, {"robust": False, "noise": None, "confidence": None, "second": None}):
            result = inpaint(TRUTH, method, **keywords)
            assert result.inliers is None
            assert result.info["noise"] is None
            solution = get_method(method).fill(to_batch(IMAGE), to_batch(TRUTH * MASK[..., None]), to_batch(MASK))
            expected = np.where(MASK[..., None], TRUTH, solution.u[0].permute(1, 2, 0).float().numpy())
            assert result.flow.tobytes() == expected.tobytes()
            assert (result.expected_error is None) == (solution.expected_error is None)


class TestQuality:
    @METHODS
    def test_gross_outliers_are_found_and_left_out(self, method: str) -> None:
        field, wrong = with_gross_outliers(TRUTH)
        plain, robust = inpaint(field, method), inpaint(field, method, robust=True)
        assert fi.epe(robust.flow, TRUTH) < 0.35 * fi.epe(plain.flow, TRUTH)
        auc = roc_auc(judged(robust), ~wrong[MASK])
        assert auc is not None
        assert auc > 0.9
        assert np.median(judged(robust)[wrong[MASK]]) < 0.2
        assert np.median(judged(robust)[~wrong[MASK]]) > 0.8

    @METHODS
    def test_clean_vectors_lose_nothing(self, method: str) -> None:
        plain, robust = inpaint(TRUTH, method), inpaint(TRUTH, method, robust=True)
        assert fi.epe(robust.flow, TRUTH) <= 1.05 * fi.epe(plain.flow, TRUTH)
        assert np.mean(judged(robust) > 0.5) > 0.95

    scene = sample_scene(128, 192, seed=1)

    @SOME
    @pytest.mark.parametrize("sigma", [0.5, 2.0])
    def test_noise_is_estimated_and_smoothed(self, method: str, sigma: float) -> None:
        image, truth = self.scene
        mask = some_pixels(128, 192, 0.1)
        field = with_noise(truth, sigma)
        plain, robust = (fi.inpaint(image, field, mask, method, "cpu", robust=r) for r in (False, True))
        assert robust.info["noise"] == pytest.approx(sigma, rel=0.25)
        assert fi.epe(robust.flow, truth) < 0.9 * fi.epe(plain.flow, truth)
        assert fi.epe(robust.flow, truth, mask) < 0.9 * fi.epe(field, truth, mask)

    def test_noise_and_confidence_help_if_they_are_known(self) -> None:
        field, wrong = with_gross_outliers(with_noise(TRUTH, 1.0), 0.3)
        right = np.where(wrong, 0.02, 0.98)
        told = inpaint(field, noise=1.0, confidence=right)
        assert fi.epe(told.flow, TRUTH) < 0.5 * fi.epe(inpaint(field).flow, TRUTH)
        assert np.allclose(judged(told), right[MASK], atol=1e-4)
        assert told.info["noise"] == pytest.approx(1.0, rel=1e-3)
        informed, alone = inpaint(field, robust=True, confidence=right), inpaint(field, robust=True)
        assert fi.epe(informed.flow, TRUTH) < 1.05 * fi.epe(alone.flow, TRUTH)

    def test_a_second_image_helps_to_tell_right_from_wrong_tracks(self) -> None:
        image, truth = sample_scene(160, 240, seed=3)
        second = second_image((image / 255).astype(np.float32), truth, np.random.default_rng(0))
        tracks = lucas_kanade(*(np.asarray(255 * x.mean(2), np.uint8) for x in (image / 255, second)), limit=np.inf)
        known = np.isfinite(tracks[..., 0])
        right = np.linalg.norm((tracks - truth)[known], axis=1) < 3
        with_it, without = (
            fi.inpaint(image, tracks, None, "neuroexplicit", "cpu", robust=True, second=x) for x in (second, None)
        )
        aucs = [roc_auc(judged(result, known), right) or 0 for result in (with_it, without)]
        assert aucs[0] > max(aucs[1] + 0.02, 0.85)
        assert fi.epe(with_it.flow, truth) < 1.02 * fi.epe(without.flow, truth)
        assert equal(with_it, fi.inpaint(image, tracks, None, "neuroexplicit", "cpu", second=second))

    def test_errors_are_expected_at_given_vectors_too_and_about_as_large_as_they_are(self) -> None:
        result = inpaint(with_noise(TRUTH, 1.0), robust=True)
        assert result.expected_error is not None
        assert result.confidence is not None
        assert (result.expected_error > 0).all()
        assert (result.confidence < 1).all()
        assert 0.4 < result.expected_error.mean() / fi.epe(result.flow, TRUTH) < 2.5
        given = fi.epe(result.flow, TRUTH, MASK)
        assert 0.4 < result.expected_error[MASK].mean() / given < 2.5


class TestInvariance:
    @SOME
    def test_the_unit_does_not_matter(self, method: str) -> None:
        field, _ = with_gross_outliers(with_noise(TRUTH, 0.3))
        one, ten = (inpaint(np.float32(s) * field, method, robust=True) for s in (1, 10))
        # Rounding moves a vector of the flagship by up to 0.1 px, also without `robust`.
        assert np.abs(ten.flow / 10 - one.flow).max() < 0.2
        assert np.abs(ten.flow / 10 - one.flow).mean() < 2e-3
        np.testing.assert_allclose(judged(ten), judged(one), atol=0.02)
        assert ten.info["noise"] == pytest.approx(10 * (one.info["noise"] or 0), rel=0.01)
        if one.expected_error is not None and ten.expected_error is not None:
            np.testing.assert_allclose(ten.expected_error, 10 * one.expected_error, rtol=0.05)

    @SOME
    def test_the_same_seed_gives_the_same_result(self, method: str) -> None:
        field, _ = with_gross_outliers(with_noise(TRUTH, 0.5))
        first, again, other = (inpaint(field, method, robust=True, seed=seed) for seed in (0, 0, 1))
        assert equal(first, again)
        assert equal(first, inpaint(field, method, robust=True))
        assert np.abs(other.flow - first.flow).mean() < 0.2  # it only selects folds

    @SOME
    @pytest.mark.parametrize("robust", [False, True])
    def test_vectors_of_confidence_zero_have_no_influence(self, method: str, robust: bool) -> None:
        useless = some_pixels(H, W, 0.3, seed=3)
        confidence = np.where(useless, 0, 0.8)
        wild = np.where(useless[..., None], np.float32(1e5), TRUTH)
        a, b = (inpaint(x, method, robust=robust, confidence=confidence) for x in (TRUTH, wild))
        assert equal(a, b)
        assert a.inliers is not None
        assert np.array_equal(np.isnan(a.inliers), ~MASK)
        assert not a.inliers[MASK & useless].any()
        b = inpaint(TRUTH, method, MASK & ~useless, robust=robust, confidence=confidence)
        assert a.flow.tobytes() == b.flow.tobytes()

    @SOME
    @pytest.mark.parametrize("C", [1, 3])
    def test_other_channel_counts(self, method: str, C: int) -> None:
        image, truth = smooth_scene(H, W, C)
        field, wrong = with_gross_outliers(truth)
        plain, robust = (fi.inpaint(image, field, MASK, method, "cpu", robust=r) for r in (False, True))
        assert fi.epe(robust.flow, truth) < 0.5 * fi.epe(plain.flow, truth)
        auc = roc_auc(judged(robust), ~wrong[MASK])
        assert auc is not None
        assert auc > 0.9

    @METHODS
    def test_exact_vectors_come_back_unchanged(self, method: str) -> None:
        plain, exact = inpaint(TRUTH, method), inpaint(TRUTH, method, noise=0)
        assert exact.flow[MASK].tobytes() == TRUTH[MASK].tobytes()
        assert fi.epe(exact.flow, plain.flow) < 0.05
        assert (judged(exact) == 1).all()


@pytest.mark.parametrize("method", ["neuroexplicit", "harmonic"])
@given(
    H=st.integers(1, 12), W=st.integers(1, 12), C=st.integers(1, 3), count=st.integers(1, 144), seed=seeds,
    hints=st.sets(st.sampled_from(["robust", "noise", "confidence", "second"]), min_size=1),
    spread=st.sampled_from([0, 1e-3, 1, 100]),
)  # fmt: skip
@settings(max_examples=40)
def test_any_size_and_any_number_of_vectors(
    method: str, H: int, W: int, C: int, count: int, seed: int, hints: set[str], spread: float
) -> None:
    rng = np.random.default_rng(seed)
    mask = np.zeros((H, W), np.bool_)
    mask.flat[rng.permutation(H * W)[:count]] = True
    image, second = (rng.integers(0, 256, (H, W, 3), np.uint8) for _ in range(2))
    C = 2 if "second" in hints else C
    field = (3 + spread * rng.normal(size=(H, W, C))).astype(np.float32)
    told: dict[str, Any] = {
        "robust": True, "noise": rng.random((H, W)), "confidence": 1 - rng.random((H, W)), "second": second
    }  # fmt: skip
    result = fi.inpaint(image, field, mask, method, "cpu", **{name: told[name] for name in hints})
    assert result.flow.shape == (H, W, C)
    assert np.isfinite(result.flow).all()
    assert result.inliers is not None
    assert np.array_equal(np.isnan(result.inliers), ~mask)
    assert ((judged(result, mask) >= 0) & (judged(result, mask) <= 1)).all()
    assert result.info["noise"] is None or result.info["noise"] >= 0
    if result.expected_error is not None:
        assert (result.expected_error >= 0).all()


def test_a_warning_names_the_line_of_the_caller() -> None:
    image, flow, mask = random_field(40, 40)
    for robust in (False, True):
        with pytest.warns(UserWarning, match="eed stopped after") as caught:
            fi.inpaint(image, flow, mask, "eed", "cpu", robust=robust, max_iterations=1)
        assert {w.filename for w in caught} == {__file__}


@pytest.mark.parametrize("factor", [1e7, 1e-9])
def test_very_large_and_small_units(factor: float) -> None:
    field, wrong = with_gross_outliers(TRUTH)
    result = inpaint(np.float32(factor) * field, "harmonic", robust=True)
    assert fi.epe(result.flow / factor, TRUTH) < 0.35 * fi.epe(inpaint(field, "harmonic").flow, TRUTH)
    assert np.median(judged(result)[wrong[MASK]]) < 0.2


@pytest.mark.gpu
@METHODS
@pytest.mark.parametrize("matched", [False, True])
def test_a_gpu_finds_almost_the_same(method: str, matched: bool) -> None:
    image, truth = sample_scene(160, 240, seed=3)
    second = second_image((image / 255).astype(np.float32), truth, np.random.default_rng(0)) if matched else None
    damaged, _ = with_gross_outliers(with_noise(truth, 0.3))
    mask = some_pixels(160, 240, 0.05)
    cpu, gpu = (fi.inpaint(image, damaged, mask, method, d, robust=True, second=second) for d in ("cpu", "cuda"))
    assert cpu.inliers is not None
    assert gpu.inliers is not None
    assert float(np.abs(cpu.inliers - gpu.inliers)[mask].mean()) < 0.02
    assert fi.epe(gpu.flow, truth) < 1.1 * fi.epe(cpu.flow, truth)
    assert gpu.info["noise"] == pytest.approx(cpu.info["noise"], rel=0.05)


@pytest.mark.parametrize("factor", [2.0**-70, 2.0**-20, 2.0**25])
def test_judged_results_scale_with_tiny_and_huge_fields(factor: float) -> None:
    """Thresholds with an absolute unit would show."""
    one, other = (inpaint(np.float32(s) * TRUTH, "harmonic", robust=True, noise=s * 0.1) for s in (1.0, factor))
    for x, y in ((one.flow, other.flow), (one.expected_error, other.expected_error)):
        np.testing.assert_allclose(y / np.float32(factor), x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(judged(other), judged(one), atol=1e-4)
    assert other.info["noise"] == pytest.approx(factor * (one.info["noise"] or 0), rel=1e-5)
