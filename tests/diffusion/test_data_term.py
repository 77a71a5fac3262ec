"""The soft data term: its limits, its pooling, and rejected inputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.diffusion.data_term import (
    EXACT,
    DataTerm,
    bind,
    block_sum,
    data_term,
    freedom,
    pool,
    statistics,
)
from flowinpaint.diffusion.pyramid import pull, push, refine
from flowinpaint.errors import InputError
from helpers import generator, seeds, sizes


def soft(seed: int, H: int, W: int, scale: float = 1.0, density: float = 0.4) -> DataTerm:
    """Random vectors with weights over four decades."""
    g = generator(seed)
    f = torch.randn(2, 3, H, W, generator=g, dtype=torch.float64)
    mask = torch.rand(2, 1, H, W, generator=g) < density
    weight = scale * 10 ** (4 * torch.rand(2, 1, H, W, generator=g, dtype=torch.float64) - 2)
    return data_term(f, mask, weight)


def test_zero_weights_are_unknown_and_huge_ones_are_exact() -> None:
    f, mask = torch.arange(1.0, 5.0).view(1, 1, 1, 4), torch.tensor([True, True, True, False]).view(1, 1, 1, 4)
    data = data_term(f, mask, torch.tensor([0.0, 2.0, EXACT, 7.0]).view(1, 1, 1, 4))
    assert data.known.flatten().tolist() == [False, True, True, False]
    assert data.exact.flatten().tolist() == [False, False, True, False]
    assert data.f.flatten().tolist() == [0, 2, 3, 0]
    assert data.weight is not None
    assert data.weight.flatten().tolist() == [0, 2, torch.inf, 0]


@given(seeds, sizes, st.floats(0.01, 10))
def test_binding_lies_between_the_field_and_the_data(seed: int, size: tuple[int, int], tau: float) -> None:
    data = soft(seed, *size)
    u = torch.randn(data.f.shape, generator=generator(seed + 1), dtype=torch.float64)
    bound = bind(u, data, tau)
    low, high = torch.minimum(u, data.f), torch.maximum(u, data.f)
    known = data.known.expand_as(u)
    assert (bound[known] >= low[known] - 1e-12).all()
    assert (bound[known] <= high[known] + 1e-12).all()
    assert torch.equal(bound[~known], u[~known])
    torch.testing.assert_close(bound, u + data.binding(tau) * (data.f - u))


def test_infinite_weights_bind_to_the_bit() -> None:
    hard = soft(0, 6, 7)
    exact = DataTerm(hard.f, hard.known, torch.where(hard.known, torch.inf, 0))
    u = torch.randn(hard.f.shape, generator=generator(1), dtype=torch.float64)
    assert torch.equal(bind(u, exact), bind(u, DataTerm(hard.f, hard.known)))
    assert data_term(hard.f, hard.known, torch.full(hard.known.shape, torch.inf)).weight is None  # the fast path


@given(seeds, sizes)
def test_pooling_adds_weights_and_averages_by_binding(seed: int, size: tuple[int, int]) -> None:
    data = soft(seed, *size)
    coarse = pool(data)
    assert data.weight is not None
    assert coarse.weight is not None
    torch.testing.assert_close(coarse.weight.sum((2, 3)), data.weight.sum((2, 3)))
    b = data.binding()
    torch.testing.assert_close(block_sum(b) * coarse.f, block_sum(b * data.f), rtol=1e-9, atol=1e-12)
    assert torch.equal(coarse.known, block_sum(data.known.double()) > 0)


def test_the_variance_of_a_mean_shrinks_as_vectors_are_pooled() -> None:
    f = torch.ones(1, 1, 4, 4)
    data = data_term(f, torch.ones(1, 1, 4, 4), torch.full((1, 1, 4, 4), 0.25))  # σ = 2
    weights = [level.weight for level in push(data, 3)]
    assert [float((1 / w.flatten()[0]).sqrt()) for w in weights if w is not None] == [2.0, 1.0, 0.5]


def test_a_block_with_an_exact_vector_is_exact() -> None:
    f = torch.tensor([1.0, 2.0, 9.0, 0.0]).view(1, 1, 2, 2)
    coarse = pool(data_term(f, f > 0, torch.tensor([torch.inf, torch.inf, 4e-6, 0]).view(1, 1, 2, 2)))
    assert bool(coarse.exact)
    assert float(coarse.f) == pytest.approx(1.5, abs=1e-5)


def test_weights_too_small_for_rounding_still_count() -> None:
    f = torch.tensor([1.0, 2.0, 0.0, 0.0]).view(1, 1, 2, 2)
    coarse = pool(data_term(f, f > 0, torch.full((1, 1, 2, 2), 1e-20)))
    assert (float(coarse.f), bool(coarse.known)) == (1.5, True)


@pytest.mark.parametrize("step", [pull, lambda data: push(data, 4)[-1].f], ids=["pull", "push"])
def test_equal_weights_converge_to_the_exact_pyramid(step: object) -> None:
    assert callable(step)
    data = soft(3, 11, 14)
    expected = step(DataTerm(data.f, data.known))
    errors = []
    for weight in (1e2, 1e4, 1e6):
        equal = data_term(data.f, data.known, torch.full(data.known.shape, weight).double())
        errors.append(float((step(equal) - expected).abs().max()))
    assert errors[2] < 1e-4
    assert errors[2] <= errors[1] <= errors[0]


def test_a_vector_of_vanishing_weight_has_no_influence() -> None:
    data = soft(4, 9, 12)
    assert data.weight is not None
    first = torch.zeros_like(data.known)
    first[:, :, 0, 0] = True
    faint = data_term(data.f + 1, data.known | first, torch.where(first, 1e-12, data.weight))
    without = data_term(data.f + 1, data.known & ~first, data.weight)
    torch.testing.assert_close(pull(faint), pull(without), rtol=0, atol=1e-9)


@given(seeds)
def test_the_pyramid_is_linear_in_the_vectors(seed: int) -> None:
    a, b = soft(seed, 7, 10), soft(seed, 7, 10)._replace(f=torch.zeros(1))
    other = torch.where(a.known, torch.randn(a.f.shape, generator=generator(seed + 1), dtype=torch.float64), 0)
    combined = pull(a._replace(f=2 * a.f - 3 * other))
    torch.testing.assert_close(combined, 2 * pull(a) - 3 * pull(b._replace(f=other)))


def test_statistics_are_weighted() -> None:
    f, c = torch.tensor([1.0, 3.0, 99.0]).view(1, 1, 1, 3), torch.tensor([0.5, 0.5, 0.0]).view(1, 1, 1, 3)
    mean, deviation = statistics(f, c)
    assert (float(mean), float(deviation)) == (2.0, 1.0)


def gradient_inputs() -> tuple[Tensor, Tensor, Tensor]:
    data = soft(5, 5, 6)
    assert data.weight is not None
    u = torch.randn(2, 3, 3, 3, generator=generator(6), dtype=torch.float64)
    return u.requires_grad_(), data.f.requires_grad_(), torch.where(data.known, data.weight, 1.0).requires_grad_()


def test_gradcheck_of_refine_and_pull() -> None:
    u, f, weight = gradient_inputs()
    mask = soft(5, 5, 6).known
    assert torch.autograd.gradcheck(lambda u, f, w: refine(u, data_term(f, mask, w)), (u, f, weight))
    assert torch.autograd.gradcheck(lambda f, w: pull(data_term(f, mask, w)), (f, weight))


def test_an_infinite_weight_gives_no_nan_gradient() -> None:
    weight = torch.tensor([torch.inf, 2.0, 0.0]).requires_grad_()
    tau = torch.tensor(0.2).requires_grad_()
    freedom(weight, tau).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert tau.grad is not None
    assert weight.grad.isfinite().all()
    assert tau.grad.isfinite()


@pytest.mark.parametrize(
    "weight",
    [
        torch.full((1, 1, 2, 3), -1.0),
        torch.full((1, 1, 2, 3), torch.nan),
        torch.ones(1, 1, 2, 3, dtype=torch.int64),
        torch.ones(1, 1, 3, 2),
        torch.ones(1, 2, 2, 3),
    ],
    ids=["negative", "nan", "integer", "size", "channels"],
)
def test_bad_weights_are_refused(weight: Tensor) -> None:
    with pytest.raises(InputError, match=r"^weight must .*, got "):
        data_term(torch.zeros(1, 2, 2, 3), torch.ones(1, 1, 2, 3), weight)


def test_a_number_is_no_weight() -> None:
    with pytest.raises(InputError, match=r"^weight must be a floating-point tensor .*, got float"):
        data_term(torch.zeros(1, 2, 2, 3), torch.ones(1, 1, 2, 3), 1.0)  # type: ignore[arg-type]
