import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.counter_rng import Draws, _hash, check_seed, normal_field

NUMBERS = torch.arange(400)


def test_hash_gives_the_published_values_of_splitmix64() -> None:
    golden, words = 0x9E3779B97F4A7C15, [6457827717110365317, 3203168211198807973, 9817491932198370423]
    states = [(1234567 + (i + 1) * golden) % 2**64 for i in range(3)]
    signed = torch.tensor([s - 2**64 if s >= 2**63 else s for s in states])
    assert [int(h) % 2**64 for h in _hash(signed)] == words


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=5), st.integers(-(2**70), 2**70))
def test_a_sample_does_not_depend_on_its_batch(numbers: list[int], seed: int) -> None:
    together = Draws(torch.tensor(numbers), seed)
    first, second = together.normal((3, 2)), together.uniform((4,))
    for i, n in enumerate(numbers):
        alone = Draws(torch.tensor([n]), seed)
        assert torch.equal(alone.normal((3, 2))[0], first[i])
        assert torch.equal(alone.uniform((4,))[0], second[i])


def test_calls_samples_and_seeds_differ() -> None:
    draws = Draws(NUMBERS)
    streams = torch.stack(
        [
            draws.uniform((300,)).flatten(),
            draws.uniform((300,)).flatten(),
            Draws(NUMBERS, 1).uniform((300,)).flatten(),
            Draws(NUMBERS + 400).uniform((300,)).flatten(),
        ]
    )
    assert (torch.corrcoef(streams) - torch.eye(4)).abs().max() < 0.012  # 4 / √120000
    rows = Draws(NUMBERS).uniform((300,))
    off_diagonal = torch.corrcoef(rows) - torch.eye(400)
    assert off_diagonal.abs().max() < 6 / math.sqrt(300)
    assert off_diagonal.std() == pytest.approx(1 / math.sqrt(300), rel=0.05)


def test_the_next_seed_is_not_the_next_sample() -> None:
    for seed, sample in ((1, 4), (2, 3), (-1, 6)):
        assert not torch.equal(
            Draws(torch.tensor([5]), 0).normal((3,)), Draws(torch.tensor([sample]), seed).normal((3,))
        )


def test_uniform_numbers_fill_their_range_evenly() -> None:
    x = Draws(NUMBERS).uniform((2500,), -2, 3)
    assert x.min() >= -2
    assert x.max() < 3
    counts = torch.histc(x, 100, -2, 3)
    chi_squared = ((counts - 1e4) ** 2 / 1e4).sum()
    assert 50 < chi_squared < 160  # 99 degrees of freedom


def test_log_uniform_numbers() -> None:
    x = Draws(NUMBERS).log_uniform((250,), 0.01, 10)
    assert 0.01 <= x.min() < 0.0101
    assert 9.9 < x.max() <= 10.001
    assert x.log10().mean() == pytest.approx(-0.5, abs=0.01)


def test_normal_numbers_have_the_moments_of_the_normal_distribution() -> None:
    x = Draws(NUMBERS).normal((2500,)).double()
    assert torch.isfinite(x).all()
    for power, moment, tolerance in ((1, 0, 0.004), (2, 1, 0.006), (3, 0, 0.016), (4, 3, 0.04), (6, 15, 0.5)):
        assert (x**power).mean() == pytest.approx(moment, abs=tolerance)


@given(st.integers(1, 1 << 31))
def test_integers_stay_below_their_count(count: int) -> None:
    x = Draws(NUMBERS[:20]).integers((60,), 0, count - 1)
    assert x.dtype == torch.int64
    assert 0 <= x.min() <= x.max() < count


def test_integers_and_chances_are_even() -> None:
    draws = Draws(NUMBERS)
    counts = torch.bincount(draws.integers((250,), 0, 7).flatten())
    assert ((counts - 12500).abs() < 5 * math.sqrt(12500)).all()
    assert draws.chance((250,), 0.2).float().mean() == pytest.approx(0.2, abs=0.006)
    assert set(draws.integers((250,), 3, 5).flatten().tolist()) == {3, 4, 5}


@given(st.integers(0, 2**40), st.integers(0, 200), st.sampled_from([64, 65, 300]))
def test_short_streams_are_the_beginning_of_long_ones(sample: int, skipped: int, count: int) -> None:
    """Numbers do not depend on how many are requested, or on whether streams are computed in blocks."""

    def after_skipping(shape: tuple[int, ...]) -> torch.Tensor:
        draws = Draws(torch.tensor([sample]))
        for _ in range(skipped):
            draws.uniform()
        return draws.uniform(shape)

    assert torch.equal(after_skipping((5,))[0], after_skipping((count,))[0, :5])
    assert torch.equal(after_skipping(())[0], after_skipping((2, 3))[0, 0, 0])


def test_a_key_is_the_stream_itself() -> None:
    direct, keyed = Draws(NUMBERS), Draws(NUMBERS)
    direct.uniform(), keyed.uniform()
    expected, key = direct.normal((7, 20)), keyed.key()
    assert torch.equal(normal_field(key, (7, 20)), expected)
    assert torch.equal(direct.uniform((3,)), keyed.uniform((3,)))


def test_seeds_may_be_whole_numbers_of_any_library() -> None:
    assert [check_seed(seed) for seed in (0, 2**63 - 1, np.int64(7))] == [0, 2**63 - 1, 7]
    assert type(check_seed(np.uint8(3))) is int
