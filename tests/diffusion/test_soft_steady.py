"""The steady-state solver with a soft data term: against a sparse direct solve, its limits, and gradients."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.kernels import multigrid_reference as reference
from flowinpaint.diffusion.steady import solve_steady, steady_state
from flowinpaint.diffusion.stencil import pure_divergence
from helpers import dense_matrix, generator, random_graph

Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def problem(
    H: int, W: int, seed: int = 0, B: int = 1, C: int = 2, negative: bool = False, decades: float = 8
) -> Problem:
    """f, c, k and edge weights; k over some decades around one, a fifth of the vectors exact."""
    weights, known = random_graph(B, H, W, seed, density=0.3, negative=negative)
    g = generator(seed + 1)
    f = 10 * torch.randn(B, C, H, W, generator=g, dtype=torch.float64)
    k = 10 ** (decades * (torch.rand(B, 1, H, W, generator=g, dtype=torch.float64) - 0.5))
    return f, known.double(), torch.where(torch.rand(B, 1, H, W, generator=g) < 0.2, torch.inf, k), weights


def direct(f: Tensor, c: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """The minimiser of one image's energy by scipy's factorisation of the same system."""
    data = data_term(f, c, k)
    assert data.weight is not None
    exact = data.exact.numpy().ravel()
    soft = np.where(exact, 0, data.weight.numpy().ravel())
    system = (scipy.sparse.diags(soft) - scipy.sparse.csr_matrix(dense_matrix(weights).numpy())).tocsc()
    u = data.f[0].flatten(1).numpy().T.copy()
    right = soft[:, None] * u - (system[:, exact] @ u[exact])
    u[~exact] = scipy.sparse.linalg.splu(system[~exact][:, ~exact].tocsc()).solve(right[~exact])
    return torch.from_numpy(u.T.reshape(f[0].shape))[None]


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("size", [(2, 2), (2, 30), (17, 23), (30, 26)])
def test_agrees_with_a_factorisation(size: tuple[int, int], negative: bool) -> None:
    f, c, k, weights = problem(*size, seed=1, negative=negative)
    u = solve_steady(f, c, weights, data_weight=k, tolerance=1e-9).u
    torch.testing.assert_close(u, direct(f, c, k, weights), rtol=0, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**16), st.floats(0, 30))
def test_weights_of_any_size_converge(H: int, W: int, seed: int, decades: float) -> None:
    f, c, k, weights = problem(H, W, seed, decades=decades)
    solution = solve_steady(f, c, weights, data_weight=k, tolerance=1e-7)
    assert solution.status == "converged"
    exact = data_term(f, c, k).exact.expand_as(f)
    assert torch.equal(solution.u[exact], f[exact])


def test_growing_weights_converge_to_the_exact_data_term() -> None:
    f, c, _, weights = problem(21, 25, seed=2)
    hard = solve_steady(f, c, weights, tolerance=1e-10).u
    errors = []
    for weight in (1e2, 1e5, 1e8, 1e15):
        soft = solve_steady(f, c, weights, data_weight=weight * torch.rand_like(c).add(0.1), tolerance=1e-10).u
        errors.append(float((soft - hard).abs().max()))
    assert errors[1] < errors[0]
    assert errors[2] < errors[1] < 1e-1
    assert errors[3] < 1e-6
    infinite = solve_steady(f, c, weights, data_weight=torch.full_like(c, torch.inf), tolerance=1e-10).u
    assert torch.equal(infinite, hard)


def test_it_is_linear_in_the_data() -> None:
    f, c, k, weights = problem(15, 18, seed=3)
    g = torch.randn(f.shape, generator=generator(9), dtype=torch.float64)

    def fill(f: Tensor) -> Tensor:
        return solve_steady(f, c, weights, data_weight=k, tolerance=1e-11).u

    torch.testing.assert_close(fill(2 * f - 3 * g), 2 * fill(f) - 3 * fill(g), rtol=0, atol=1e-6)


def test_the_reference_kernels_solve_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    f, c, k, weights = problem(20, 27, seed=4)
    ours = solve_steady(f, c, weights, data_weight=k, tolerance=1e-9)
    monkeypatch.setattr("flowinpaint.diffusion.multigrid.kernels_for", lambda *_: reference)
    plain = solve_steady(f, c, weights, data_weight=k, tolerance=1e-9)
    torch.testing.assert_close(ours.u, plain.u, rtol=0, atol=1e-6)


def test_an_iteration_is_as_good_as_with_exact_vectors() -> None:
    f, c, k, weights = problem(60, 70, seed=5, decades=4)
    hard = solve_steady(f, c, weights, tolerance=1e-8).iterations
    assert solve_steady(f, c, weights, data_weight=k, tolerance=1e-8).iterations <= 2 * hard


def test_a_pixel_that_nothing_ties_keeps_its_vector() -> None:
    f, c, k, weights = problem(6, 7, seed=6)
    u = solve_steady(f, c, torch.zeros_like(weights), data_weight=k).u
    known = c.expand_as(f) > 0
    torch.testing.assert_close(u[known], f[known])


def test_gradcheck() -> None:
    f, c, k, weights = problem(3, 4, seed=7, C=1, decades=2)
    k = torch.where(torch.isinf(k), 2.0, k)
    inputs = (f.requires_grad_(), weights.requires_grad_(), k.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda f, w, k: steady_state(f, c, w, data_weight=k, tolerance=1e-12), inputs, eps=1e-6, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("negative", [False, True])
def test_gradients_are_those_of_a_dense_solve(negative: bool) -> None:
    f, c, k, weights = problem(7, 9, seed=10, negative=negative, decades=3)
    k = torch.where(torch.isinf(k), 2.0, k)

    def dense(f: Tensor, w: Tensor, k: Tensor) -> Tensor:
        basis = torch.eye(63, dtype=w.dtype).view(1, 63, 7, 9)
        A, soft = pure_divergence(w, basis)[0].reshape(63, 63).T, (k * c).flatten()
        u: Tensor = torch.linalg.solve(torch.diag(soft) - A, soft[:, None] * f[0].flatten(1).T)
        return u.T.reshape(f.shape)

    leaves = [x.requires_grad_() for x in (f, weights, k)]
    direction = torch.randn(f.shape, generator=generator(11), dtype=torch.float64)
    ours = steady_state(f, c, weights, data_weight=k, tolerance=1e-12)
    expected = torch.autograd.grad(dense(f, weights, k), leaves, direction)
    for x, y in zip(torch.autograd.grad(ours, leaves, direction), expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-7, atol=1e-8 * float(y.abs().max()))


def test_gradients_beside_exact_vectors_are_finite() -> None:
    f, c, k, weights = problem(9, 8, seed=8)
    leaves = [x.requires_grad_() for x in (f, weights, k)]
    steady_state(f, c, weights, data_weight=k).square().sum().backward()  # type: ignore[no-untyped-call]
    assert all(x.grad is not None and x.grad.isfinite().all() for x in leaves)
    assert k.grad is not None
    assert not k.grad[torch.isinf(k)].any()
