"""Simulated imperfect inputs."""

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.robust.training import simulated_inputs as module
from flowinpaint.robust.training.second_image import second_image
from flowinpaint.robust.training.simulated_inputs import (
    CLEAN_PER_SCENE,
    CORRUPTED_PER_SCENE,
    SimulatedInput,
    simulated_inputs,
)

H, W = 96, 128
SEEDS = range(5)


@lru_cache
def scene() -> tuple[Any, Any, Any]:
    """Two images and the flow between them."""
    image, flow = sample_scene(H, W, seed=0)
    first = (image / 255).astype(np.float32)
    return first, second_image(first, flow, np.random.default_rng(0)), flow


@lru_cache
def made(seed: int) -> list[SimulatedInput]:
    return list(simulated_inputs(*scene(), np.random.default_rng(seed)))


def errors_of(given: SimulatedInput) -> Any:
    known = np.isfinite(given.vectors[..., 0])
    return np.linalg.norm((given.vectors - given.truth)[known], axis=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_their_form(seed: int) -> None:
    inputs = made(seed)
    matched = [x for x in inputs if np.isnan(x.noise)]
    assert len(matched) in (4, 5)
    assert len(inputs) == len(matched) + CORRUPTED_PER_SCENE + CLEAN_PER_SCENE
    for given in inputs:
        C = given.truth.shape[2]
        assert given.vectors.shape == given.truth.shape == (H, W, C)
        assert C in (1, 2)
        assert given.vectors.dtype == given.truth.dtype == np.float32
        assert np.isfinite(given.truth).all()
        known = np.isfinite(given.vectors)
        assert np.array_equal(known.all(2), known.any(2))
        assert given.tolerance(errors_of(given)) >= 1


def test_the_same_seed_makes_the_same_inputs() -> None:
    again = list(simulated_inputs(*scene(), np.random.default_rng(0)))
    for a, b in zip(made(0), again, strict=True):
        assert np.array_equal(a.vectors, b.vectors, equal_nan=True)
        assert np.array_equal(a.truth, b.truth)
    assert not np.array_equal(made(0)[-1].truth, made(1)[-1].truth)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_are_exact_and_matches_have_the_truth_of_the_scene(seed: int) -> None:
    for clean in made(seed)[-CLEAN_PER_SCENE:]:
        assert clean.noise == 0
        assert not errors_of(clean).any()
        assert len(errors_of(clean)) > 0
    assert all(given.truth is scene()[2] for given in made(seed)[:4])
    for tracked in made(seed)[1:3]:
        assert np.quantile(errors_of(tracked), 0.3) < 1


def test_most_vectors_are_correct_and_some_inputs_have_wrong_ones() -> None:
    corrupted = [x for seed in SEEDS for x in made(seed) if not np.isnan(x.noise)]
    shares = np.array([np.mean(errors_of(x) <= x.tolerance(errors_of(x))) for x in corrupted])
    assert np.median(shares) > 0.8
    assert shares.min() < 0.9
    assert shares.max() == 1
    noises = np.array([x.noise for x in corrupted])
    assert (noises == 0).any()
    assert (noises > 0.1).any()
    assert {x.truth.shape[2] for x in corrupted} == {1, 2}


def test_the_noise_is_the_deviation_of_the_correct_vectors() -> None:
    found = []
    for x in (x for seed in SEEDS for x in made(seed)):
        errors = errors_of(x) / np.sqrt(x.truth.shape[2])
        if x.noise > 0.1 and len(errors) > 100:
            found.append(np.median(errors) / x.noise)
    assert len(found) > 5
    assert 0.5 < np.median(found) < 1.2


def test_an_inverse_depth_is_positive_and_follows_the_flow() -> None:
    flow = scene()[2]
    rng = np.random.default_rng(0)
    fields = [module._one_channel(flow, rng) for _ in range(20)]
    assert {x.shape for x in fields} == {(H, W, 1)}
    positive = [x for x in fields if (x > 0).all()]
    assert 5 < len(positive) < 20
    assert all(np.abs(np.corrcoef(x.ravel(), flow.reshape(-1, 2).T)[0, 1:]).max() > 0.5 for x in positive)


def test_some_matches_are_lost() -> None:
    rng = np.random.default_rng(0)
    kept = np.array([np.isfinite(module._some(scene()[2], rng)).all(2).mean() for _ in range(80)])
    assert 0.1 < (kept < 1).mean() < 0.5
    assert 0.02 < kept.min() < 0.2


def test_the_tolerance_of_a_matcher_is_within_limits() -> None:
    vectors = np.zeros((2, 2, 2), np.float32)
    for error, expected in ((0.01, 1), (0.5, 2), (100, 3)):
        assert SimulatedInput(vectors, vectors, np.nan).tolerance(np.full(9, error)) == pytest.approx(expected)
    for noise, expected in ((0.0, 1), (0.1, 1), (2.0, 7)):
        assert SimulatedInput(vectors, vectors, noise).tolerance(np.full(9, 50.0)) == pytest.approx(expected)


@pytest.mark.parametrize("C", [1, 2])
def test_noise_of_every_kind_has_deviation_one(C: int) -> None:
    rng = np.random.default_rng(0)
    deviations = np.array([module._noise((H, W, C), rng).std() for _ in range(30)])
    assert deviations.mean() == pytest.approx(1, abs=0.1)


def test_masks_of_every_kind_have_some_pixels() -> None:
    rng = np.random.default_rng(0)
    shares = np.array([module._mask((200, 300), rng).mean() for _ in range(60)])
    assert shares.min() > 0.001
    assert shares.max() < 0.6


def test_wrong_vectors_are_few_and_the_others_untouched() -> None:
    rng = np.random.default_rng(0)
    truth = scene()[2]
    field = truth + np.float32(0.01)
    shares = []
    for _ in range(40):
        found = module._with_outliers(field, truth, rng)
        changed = (found != field).any(2)
        shares.append(changed.mean())
    assert 0 < min(shares) < 0.02
    assert 0.1 < max(shares) < 0.5


def test_a_view_from_beside_moves_vectors_but_does_not_change_them() -> None:
    rng = np.random.default_rng(0)
    flow = scene()[2]
    mask = module._mask((H, W), rng)
    field, seen = module._seen_from_beside(flow, flow[..., 0], mask, rng)
    values = {tuple(v) for v in flow[mask].tolist()}
    assert 0.3 * mask.sum() < seen.sum() <= mask.sum()
    assert all(tuple(v) in values for v in field[seen].tolist())
    assert (field[seen] != flow[seen]).any()
