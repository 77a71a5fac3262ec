"""The training of the assessor, on tiny scenes in this process."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.robust.assessor import OUTPUTS, Assessor, PointNetwork, overall_log_noise
from flowinpaint.robust.features import CROSS_FIT_PAIR, CROSS_FIT_POINT, HINTS, PAIR, PAIR_HINTS, PHOTO_HINT, POINT
from flowinpaint.robust.points import NEIGHBOURS
from flowinpaint.robust.training import examples as examples_module
from flowinpaint.robust.training import simulated_inputs
from flowinpaint.robust.training import train as module
from flowinpaint.robust.training.examples import Examples, examples_of_scene, join
from flowinpaint.robust.training.losses import alone_loss, drawn_hints, verdict_loss
from flowinpaint.robust.training.train import Settings, fill_field, fit, save_assessor, train
from helpers import generator

SIZE, POINTS = (72, 96), 60
SETTINGS = Settings(scenes=6, steps=24, batch=2, jobs=1)


@lru_cache
def scenes() -> LayeredFlow:
    return LayeredFlow(size=SIZE)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points of small scenes, cross-fitted by a cheap method, in a thread instead of a process."""

    def pool(jobs: int, mp_context: Any) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(jobs)

    monkeypatch.setattr(examples_module, "POINTS", POINTS)
    monkeypatch.setattr(simulated_inputs, "CORRUPTED_PER_SCENE", 3)
    monkeypatch.setattr(module, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(module, "_tools", lambda settings: (scenes(), Assessor().eval()))
    monkeypatch.setattr(module, "METHODS", ("harmonic", "laplace-beltrami", "harmonic"))


@torch.no_grad()
def scene_examples(number: int = 0, cross_fit: bool = True) -> Examples:
    torch.manual_seed(0)
    fill = fill_field("harmonic") if cross_fit else None
    return join(list(examples_of_scene(scenes(), number, 0, fill, Assessor().eval())))


class TestExamples:
    @pytest.mark.parametrize(
        ("cross_fit", "own", "pair"), [(False, POINT, PAIR), (True, CROSS_FIT_POINT, CROSS_FIT_PAIR)]
    )
    def test_their_form(self, cross_fit: bool, own: int, pair: int) -> None:
        found = scene_examples(cross_fit=cross_fit)
        E = len(found)
        assert E > 5
        shapes = {f.name: tuple(getattr(found, f.name).shape) for f in fields(found)}
        assert shapes == {
            "own": (E, POINTS, own),
            "near": (E, POINTS, NEIGHBOURS, own),
            "pair": (E, POINTS, NEIGHBOURS, pair),
            "photo": (E, POINTS, PHOTO_HINT),
            "photo_pair": (E, POINTS, NEIGHBOURS, PAIR_HINTS),
            "candidates": (E, POINTS, 5, 2),
            "truth": (E, POINTS, 2),
            "correct": (E, POINTS),
            "noise": (E,),
            "matched": (E,),
        }
        for f in fields(found):
            value = getattr(found, f.name)
            assert f.name == "noise" or value.isfinite().all(), f.name
        assert 0.3 < float(found.correct.mean()) < 1
        assert float(found.noise.isnan().float().mean()) < 0.7
        assert bool(found.matched.any()) == cross_fit
        assert not found.photo[~found.matched].any()

    def test_they_are_the_same_each_time_and_scenes_differ(self) -> None:
        first, again, other = scene_examples(0), scene_examples(0), scene_examples(1)
        for f in fields(first):
            assert torch.equal(getattr(first, f.name).nan_to_num(-1), getattr(again, f.name).nan_to_num(-1)), f.name
        assert not torch.equal(first.truth[0], other.truth[0])

    def test_correct_vectors_are_near_the_truth(self) -> None:
        x = scene_examples()
        off = torch.linalg.vector_norm(x.candidates[:, :, 0] - x.truth, dim=-1)
        assert float(off[x.correct > 0].max()) < float(off[x.correct == 0].quantile(0.9))
        assert float(off[x.correct > 0].median()) < 0.5 * float(off[x.correct == 0].median())


class TestLosses:
    def test_gradients_are_finite_for_every_parameter_even_of_outrageous_examples(self) -> None:
        x = scene_examples().at(torch.arange(4))
        wild = replace(x, candidates=1e6 * x.candidates, truth=-1e6 * x.truth)
        for examples in (x, wild):
            torch.manual_seed(0)
            network = PointNetwork(
                CROSS_FIT_POINT, CROSS_FIT_PAIR, OUTPUTS, hints=HINTS, pair_hints=PAIR_HINTS, width=8
            )
            loss = verdict_loss(network, examples, generator(0))
            loss.backward()  # type: ignore[no-untyped-call]
            assert loss.isfinite()
            for name, p in network.named_parameters():
                assert p.grad is not None, name
                assert p.grad.isfinite().all(), name

    def test_a_better_verdict_has_a_smaller_loss(self) -> None:
        x = scene_examples().at(torch.arange(4))
        network = PointNetwork(CROSS_FIT_POINT, CROSS_FIT_PAIR, OUTPUTS, hints=HINTS, pair_hints=PAIR_HINTS, width=8)
        exact = replace(x, truth=x.candidates.mean(2))
        far = replace(x, truth=x.candidates.mean(2) + 5)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.zero_()
            small, large = (float(verdict_loss(network, e, generator(0))) for e in (exact, far))
        assert small < large

    def test_hints_are_drawn_with_their_flags(self) -> None:
        x = scene_examples()
        many = x.at(torch.arange(len(x)).repeat(60))
        told = drawn_hints(many, generator(0))
        E, P = many.correct.shape
        assert told.features.point.shape == (E, P, HINTS)
        flags = told.features.point[:, 0, [1, 3]]
        known = ~many.noise.isnan()
        assert float(flags[known, 0].mean()) == pytest.approx(0.15, abs=0.06)
        assert not flags[~known, 0].any()
        assert float(flags[:, 1].mean()) == pytest.approx(0.15, abs=0.06)
        assert not told.features.point[flags[:, 0] == 0][..., 0].any()
        fixed = ~told.noise.isnan()
        assert bool((fixed.all(1) | ~fixed.any(1)).all())
        assert bool((flags[fixed[:, 0], 0] == 1).all())
        assert 0 < float(fixed[:, 0].float().mean()) < float(flags[:, 0].mean())
        second = told.features.point[:, 0, -1] > 0
        assert not second[~many.matched.bool()].any()
        p = told.confidence[~told.confidence.isnan()]
        assert bool(((p > 0) & (p < 1)).all())

    def test_the_overall_noise_is_that_of_the_correct_vectors(self) -> None:
        log_noise, logit = torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([[9.0, 9.0, -9.0]])
        assert float(overall_log_noise(log_noise, logit)) == pytest.approx(0, abs=1e-2)


class TestFit:
    def test_the_first_network_learns_to_find_wrong_vectors(self) -> None:
        x = join([scene_examples(number, cross_fit=False) for number in range(3)])
        torch.manual_seed(0)
        network = PointNetwork(POINT, PAIR, 1, width=16)
        settings = replace(SETTINGS, rate=1e-2, batch=4)
        lines: list[str] = []
        every = x.at(torch.arange(len(x)))
        fit(network, x, settings, 150, alone_loss, lines.append)
        with torch.no_grad():
            logit = network(every.own, every.near, every.pair)[..., 0]
        right, wrong = logit[every.correct > 0], logit[every.correct == 0]
        assert float((right[:, None] > wrong).float().mean()) > 0.85
        assert len(lines) == 10
        losses = [float(line.rpartition(" ")[2]) for line in lines]
        assert losses[-1] < losses[0]

    def test_the_same_seed_gives_the_same_network(self) -> None:
        x = scene_examples()
        networks = []
        for seed in (0, 0, 1):
            torch.manual_seed(0)
            networks.append(Assessor().verdict)
            fit(networks[-1], x, replace(SETTINGS, seed=seed), 6, verdict_loss, lambda line: None)
        first, again, other = (torch.cat([p.detach().flatten() for p in n.parameters()]) for n in networks)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_a_step_with_a_gradient_that_is_not_finite_is_left_out(self) -> None:
        x = scene_examples(cross_fit=False)
        network = PointNetwork(POINT, PAIR, 1, width=4)
        seen: list[list[torch.Tensor]] = []

        def loss(network: PointNetwork, x: Examples, random: torch.Generator) -> torch.Tensor:
            seen.append([p.detach().clone() for p in network.parameters()])
            value: torch.Tensor = network(x.own, x.near, x.pair).sum()
            return value * (torch.nan if len(seen) == 2 else 1)

        fit(network, x, SETTINGS, 4, loss, lambda line: None)
        same = [
            all(torch.equal(p, q) for p, q in pairwise)
            for pairwise in (zip(*seen[i : i + 2], strict=True) for i in range(3))
        ]
        assert same == [False, True, False]


class TestTrain:
    def test_a_tiny_training_changes_all_weights(self, tmp_path: Path) -> None:
        lines: list[str] = []
        found = train(SETTINGS, lines.append)
        assert not found.training
        assert sum(line.startswith("step ") for line in lines) == 24
        torch.manual_seed(SETTINGS.seed)
        untrained = Assessor().state_dict()
        for name, value in found.state_dict().items():
            assert value.isfinite().all(), name
            assert not torch.equal(value, untrained[name]), name
        save_assessor(found, tmp_path / "a.safetensors")
        assert load_file(tmp_path / "a.safetensors").keys() == untrained.keys()

    def test_one_scene_is_enough(self) -> None:
        assert len(train(replace(SETTINGS, scenes=1, steps=8), lambda line: None).state_dict()) > 0

    def test_it_ends_when_the_time_is_over(self) -> None:
        lines: list[str] = []
        found = module.generate(replace(SETTINGS, scenes=1000), 1000, 0.0, None, lines.append)
        assert 0 < len(found) < 50
        assert lines[0].startswith("1 of 1000 scenes")

    def test_scenes_come_in_order_whoever_is_first(self) -> None:
        two, one = (module.generate(replace(SETTINGS, jobs=jobs), 3, 10.0, None, lambda line: None) for jobs in (2, 1))
        assert torch.equal(two.truth, one.truth)

    def test_some_scenes_are_cross_fitted_by_other_methods(self, monkeypatch: pytest.MonkeyPatch) -> None:
        used: list[str] = []

        def record(method: str) -> Any:
            used.append(method)
            raise InterruptedError

        methods = ("first", "second", "third")
        monkeypatch.setattr(module, "METHODS", methods)
        monkeypatch.setattr(module, "fill_field", record)
        weights = {name: value.numpy() for name, value in Assessor().state_dict().items()}
        for number in range(24):
            with pytest.raises(InterruptedError):
                module._scene(SETTINGS, weights, number)
        assert [used.count(name) for name in methods] == [21, 2, 1]
