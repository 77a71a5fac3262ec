"""The networks of the assessor, its verdict, and its weights."""

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.networks.weights import CHECKSUMS, read_checksums
from flowinpaint.robust import assessor as module
from flowinpaint.robust.assessor import OUTPUTS, WEIGHTS, Assessor, PointNetwork, shipped_assessor, verdict_of
from flowinpaint.robust.features import (
    CROSS_FIT_PAIR,
    CROSS_FIT_POINT,
    HINTS,
    PAIR,
    PAIR_HINTS,
    POINT,
    Candidates,
    Features,
)
from flowinpaint.robust.training.train import save_assessor
from helpers import generator, seeds

N, K, M, C = 30, 12, len(Candidates._fields), 2


def features(own: int, pair: int, seed: int = 0) -> Features:
    g = generator(seed)
    return Features(torch.randn(N, own, generator=g), torch.randn(N, K, pair, generator=g))


def neighbours(seed: int = 0) -> Tensor:
    return torch.randint(N, (N, K), generator=generator(seed))


def untrained(seed: int = 0) -> Assessor:
    torch.manual_seed(seed)
    return Assessor().eval()


def candidates(seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(N, M, C, generator=generator(seed))


def outputs(seed: int = 0) -> Tensor:
    return 2 * torch.randn(N, OUTPUTS, generator=generator(seed))


class TestPointNetwork:
    @property
    def network(self) -> PointNetwork:
        torch.manual_seed(0)
        return PointNetwork(5, 3, 2, hints=4, pair_hints=2, width=32)

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Features]:
        own, near = features(5, 3), neighbours()
        return own.point, own.point[near], own.pair, features(4, 2, seed=1)

    def test_the_order_of_neighbours_and_points_does_not_matter(self) -> None:
        own, near, pair, hints = self.inputs()
        expected = self.network(own, near, pair, hints)
        assert expected.shape == (N, 2)
        turned = torch.randperm(K, generator=generator(0))
        told = Features(hints.point, hints.pair[:, turned])
        torch.testing.assert_close(self.network(own, near[:, turned], pair[:, turned], told), expected)
        order = torch.randperm(N, generator=generator(1))
        told = Features(hints.point[order], hints.pair[order])
        found = self.network(own[order], near[order], pair[order], told)
        torch.testing.assert_close(found, expected[order])

    @pytest.mark.parametrize("k", [1, 3])
    def test_any_number_of_neighbours_and_points(self, k: int) -> None:
        own, near, pair, hints = self.inputs()
        few = Features(hints.point[:2], hints.pair[:2, :k])
        found = self.network(own[:2], near[:2, :k], pair[:2, :k], few)
        assert found.shape == (2, 2)
        assert found.isfinite().all()

    def test_it_sees_points_neighbours_pairs_hints_and_the_whole_input(self) -> None:
        own, near, pair, hints = self.inputs()
        expected = self.network(own, near, pair, hints)[0]
        for i in range(5):
            changed = [x.clone() for x in (own, near, pair, hints.point, hints.pair)]
            changed[i][0] += 1
            assert not torch.equal(self.network(*changed[:3], Features(*changed[3:]))[0], expected)
        others = own.clone()
        others[1:] += 1
        assert not torch.equal(self.network(others, near, pair, hints)[0], expected)

    def test_features_are_standardised_and_clipped(self) -> None:
        network = PointNetwork(5, 3, 2, width=8)
        own, near, pair, _ = self.inputs()
        plain = network(own, near, pair)
        network.standardise(7 * torch.randn(500, 5) + 3, torch.randn(500, 3) / 9 - 2)
        torch.testing.assert_close(
            network(own * network.point_scale + network.point_mean, near * network.point_scale + network.point_mean,
                    pair * network.pair_scale + network.pair_mean),
            plain,
        )  # fmt: skip
        far, farther = (network(own + 1e3 * s, near, pair) for s in (1, 2))
        torch.testing.assert_close(far, farther)


class TestAssessor:
    def test_parts_of_the_points_are_assessed_like_all_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assessor, near = untrained(), neighbours()
        alone, crossed = features(POINT, PAIR), features(CROSS_FIT_POINT, CROSS_FIT_PAIR)
        hints, vectors = features(HINTS, PAIR_HINTS, 1), Candidates(*candidates().unbind(1))
        whole = assessor.first_logit(alone, near), assessor.judge(crossed, hints, vectors, near, 2.0)
        monkeypatch.setattr(module, "_CHUNK", 7)
        parts = assessor.first_logit(alone, near), assessor.judge(crossed, hints, vectors, near, 2.0)
        assert whole[0].shape == (N,)
        torch.testing.assert_close(parts[0], whole[0])
        torch.testing.assert_close(tuple(parts[1]), tuple(whole[1]))

    def test_its_file_holds_all_of_it(self, tmp_path: Path) -> None:
        assessor = untrained(3)
        assessor.verdict.point_mean += 1
        save_assessor(assessor, tmp_path / "a.safetensors")
        other = Assessor()
        other.load_state_dict(load_file(tmp_path / "a.safetensors"))
        for name, value in assessor.state_dict().items():
            assert torch.equal(other.state_dict()[name], value)


class TestVerdict:
    @given(seed=seeds, scale=st.floats(1e-3, 1e3))
    @settings(max_examples=30)
    def test_an_estimate_lies_among_the_candidates(self, seed: int, scale: float) -> None:
        given = candidates(seed, scale)
        verdict = verdict_of(outputs(seed), given, scale)
        assert bool((verdict.vectors >= given.amin(1) - 1e-4 * scale).all())
        assert bool((verdict.vectors <= given.amax(1) + 1e-4 * scale).all())
        assert bool((verdict.error > 0).all())
        assert bool((verdict.noise > 0).all())

    def test_lengths_have_the_scale_of_the_points(self) -> None:
        one, ten = (verdict_of(outputs(), candidates(scale=s), s) for s in (1.0, 10.0))
        for x, y in zip(ten[:3], one[:3], strict=True):
            torch.testing.assert_close(x, 10 * y)
        assert torch.equal(ten.logit, one.logit)

    @pytest.mark.parametrize("best", range(M))
    def test_the_candidate_of_the_smallest_error_wins(self, best: int) -> None:
        output = torch.full((N, OUTPUTS), 4.0)  # noise, then the errors of all but the given vector, then the estimate
        output[:, best] = -5
        verdict = verdict_of(output, candidates(), 1.0)
        torch.testing.assert_close(verdict.vectors, candidates()[:, best], atol=1e-3, rtol=0)

    def test_known_noise_and_confidence_replace_the_predicted_ones(self) -> None:
        noise, p = torch.linspace(0.1, 5, N), torch.linspace(0.01, 0.99, N)
        noise[0] = p[1] = torch.nan
        free, told = verdict_of(outputs(), candidates(), 2.0), verdict_of(outputs(), candidates(), 2.0, noise, p)
        torch.testing.assert_close(told.noise[1:], noise[1:])
        assert told.noise[0] == free.noise[0]
        known = ~p.isnan()
        torch.testing.assert_close(told.logit.sigmoid()[known], p[known])
        assert told.logit[1] == free.logit[1]

    def test_no_noise_means_the_vector_itself_and_no_confidence_another(self) -> None:
        zero, one = torch.zeros(N), torch.ones(N)
        exact = verdict_of(outputs(), candidates(), 1.0, noise=zero, confidence=one)
        torch.testing.assert_close(exact.vectors, candidates()[:, 0], atol=1e-4, rtol=0)
        wild = candidates()
        wild[:, 0] += 100
        found = [verdict_of(0.1 * outputs(), x, 1.0, noise=one, confidence=zero) for x in (candidates(), wild)]
        torch.testing.assert_close(found[0].vectors, found[1].vectors, atol=1e-4, rtol=0)

    @given(noise=st.floats(0, 3e38), confidence=st.floats(0, 1), factor=st.floats(0, 1e30))
    def test_extreme_values_stay_finite(self, noise: float, confidence: float, factor: float) -> None:
        told = torch.full((N,), noise), torch.full((N,), confidence)
        verdict = verdict_of(factor * outputs(), candidates(), 1.0, *told)
        assert verdict.vectors.isfinite().all()
        assert verdict.error.isfinite().all()


class TestShippedWeights:
    def test_they_are_part_of_the_package_and_undamaged(self) -> None:
        assert (
            read_checksums(WEIGHTS.with_name(CHECKSUMS))[WEIGHTS.name]
            == hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
        )
        assessor = shipped_assessor()
        assert assessor is shipped_assessor()
        assert not assessor.training
        assert all(value.isfinite().all() for value in assessor.state_dict().values())
        assert not torch.equal(assessor.verdict.point_scale, torch.ones(CROSS_FIT_POINT))
        assert WEIGHTS.stat().st_size < 600_000

    @pytest.mark.parametrize(("damage", "error"), [(True, FileFormatError), (False, MissingFileError)])
    def test_a_damaged_or_missing_file_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bool, error: type[Exception]
    ) -> None:
        path = tmp_path / WEIGHTS.name
        if damage:
            path.write_bytes(b"0" * 1000)
            (tmp_path / CHECKSUMS).write_text("0" * 64 + f"  {path.name}\n")
        monkeypatch.setattr(module, "WEIGHTS", path)
        with pytest.raises(error, match=r"assessor\.safetensors: .*; install flowinpaint again"):
            shipped_assessor.__wrapped__()
