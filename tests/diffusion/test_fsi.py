import math

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.fsi import fsi_cycle, fsi_cycle_of, step_to_steady
from flowinpaint.diffusion.kernels.fsi_reference import extrapolation_weight
from flowinpaint.diffusion.stencil import (
    cell_delta,
    edge_weights,
    paper_time_step,
    stable_beta,
    time_step_bound,
)
from flowinpaint.diffusion.tensor import SymmetricTensor
from helpers import dense_matrix, generator, golden, random_process, seeds, sizes


def problem(
    seed: int, H: int, W: int, batch: int = 1, density: float = 0.2
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """f, c, weights, tau of a random inpainting problem with at least one known pixel per image."""
    D, alpha = random_process(seed, H, W, batch)
    D = SymmetricTensor(0.9 * D.a + 0.1, 0.9 * D.b, 0.9 * D.c + 0.1)
    delta = cell_delta(D, alpha, stable_beta(D, alpha))
    g = generator(seed + 1)
    f = torch.randn(batch, 2, H, W, dtype=torch.float64, generator=g)
    c = (torch.rand(batch, 1, H, W, dtype=torch.float64, generator=g) < density).double()
    c[..., 0, 0] = 1
    return f, c, edge_weights(D, delta), time_step_bound(D, delta)


def test_cycle_equals_the_authors() -> None:
    data = golden("stencil_fsi.npz")
    D = SymmetricTensor(*(data[key][..., :-1, :-1] for key in ("D_cc", "D_rc", "D_rr")))
    alpha = data["alpha"][..., :-1, :-1]
    weights = edge_weights(D, cell_delta(D, alpha, stable_beta(D, alpha)))
    tau = paper_time_step(alpha)
    assert float(tau) == pytest.approx(float(data["tau"]), rel=1e-6)
    u = fsi_cycle(data["u"], data["f"], data["mask"], weights, tau, int(data["L"]))
    torch.testing.assert_close(u, data["u_after_cycle"], rtol=0, atol=1e-5)


def test_extrapolation_weights() -> None:
    assert [extrapolation_weight(step) for step in range(3)] == [2 / 3, 6 / 5, 10 / 7]


@pytest.mark.parametrize("theta", [0.01, 0.5, 2.0, math.pi])
def test_a_cycle_multiplies_an_eigenvector_as_its_closed_form_says(theta: float) -> None:
    u = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    none = torch.zeros_like(u)
    for steps in (1, 2, 7, 20):
        end = fsi_cycle_of([lambda u: (math.cos(theta) - 1) * u] * steps, u, data_term(none, none), 1.0)
        odd = 2 * steps + 1
        assert float(end) == pytest.approx(math.sin(odd * theta / 2) / (odd * math.sin(theta / 2)), abs=1e-10)


@given(seeds, sizes, st.integers(1, 30))
def test_a_cycle_does_not_raise_the_norm(seed: int, size: tuple[int, int], steps: int) -> None:
    _, c, weights, tau = problem(seed, *size)
    u = (1 - c) * torch.randn(1, 2, *size, dtype=torch.float64, generator=generator(seed + 2))
    assert fsi_cycle(u, torch.zeros_like(u), c, weights, tau, steps).norm() <= u.norm() * (1 + 1e-12)


@given(seeds, sizes)
def test_known_vectors_stay_bit_identical(seed: int, size: tuple[int, int]) -> None:
    f, c, weights, tau = problem(seed, *size)
    u = fsi_cycle(torch.zeros_like(f), f, c, weights, tau, 3)
    known = c.expand_as(f) > 0
    assert torch.equal(u[known], f[known])


def test_an_image_does_not_depend_on_its_batch() -> None:
    f, c, weights, tau = problem(11, 9, 8, batch=3)
    weights[1] *= 0.3  # a batch whose images have different time steps
    tau = tau * torch.tensor([1.0, 2.0, 0.5]).view(3, 1, 1, 1)
    together = fsi_cycle(f * c, f, c, weights, tau, 12)
    for k in range(3):
        s = slice(k, k + 1)
        assert torch.equal(together[s], fsi_cycle((f * c)[s], f[s], c[s], weights[s], tau[s], 12))


def test_gradcheck_through_a_cycle() -> None:
    f, c, weights, tau = problem(2, 4, 5)
    u = torch.randn(1, 2, 4, 5, dtype=torch.float64, generator=generator(9))
    leaves = [x.detach().requires_grad_() for x in (u, f, weights, tau)]
    assert torch.autograd.gradcheck(lambda u, f, w, t: fsi_cycle(u, f, c, w, t, 6), leaves)


def test_steady_state_equals_a_sparse_direct_solve() -> None:
    H, W = 32, 40
    f, c, weights, tau = problem(5, H, W, density=0.05)
    solution = step_to_steady(torch.zeros_like(f), data_term(f, c), weights, tau, 1e-8, 200_000)
    assert solution.status == "converged"
    A = sp.csc_matrix(dense_matrix(weights).numpy())
    known = c.view(-1).numpy() > 0
    unknown, values = np.flatnonzero(~known), f[0].reshape(2, -1).numpy()
    expected = values.copy()
    right = A[unknown][:, np.flatnonzero(known)] @ values[:, known].T
    expected[:, unknown] = scipy.sparse.linalg.spsolve(-A[unknown][:, unknown], right).T
    difference = np.abs(solution.u[0].reshape(2, -1).numpy() - expected).max()
    assert difference < 1e-4


def test_the_reported_residual_is_the_true_one() -> None:
    f, c, weights, tau = problem(6, 12, 13)
    solution = step_to_steady(torch.zeros_like(f), data_term(f, c), weights, tau, 1e-3, 10_000)
    A = dense_matrix(weights)
    unknown = 1 - c.view(-1)
    residual = unknown[:, None] * (A @ solution.u[0].reshape(2, -1).T)
    scale = unknown[:, None] * (A @ (c * f)[0].reshape(2, -1).T)
    assert solution.residual is not None
    assert solution.residual == pytest.approx(float(residual.norm() / scale.norm()), rel=1e-6)
    assert 0 < solution.residual <= 1e-3


def test_stopping_short_says_so_and_reports_each_cycle() -> None:
    f, c, weights, tau = problem(7, 30, 30, density=0.01)
    seen: list[tuple[int, float]] = []
    start, data = torch.zeros_like(f), data_term(f, c)
    solution = step_to_steady(start, data, weights, tau, 1e-12, 40, lambda n, residual: seen.append((n, residual)))
    assert solution.status == "max_iterations"
    assert solution.iterations == 40
    assert seen[-1] == (40, solution.residual)
    assert [n for n, _ in seen] == sorted(n for n, _ in seen)


def test_known_vectors_that_pass_nothing_on_leave_the_rest_at_zero() -> None:
    """All known vectors beside the unknown ones are zero, and the start is not: there is no scale to measure by."""
    f, c, weights, tau = problem(9, 12, 12)
    c.fill_(1)
    c[..., 6:9, 6:9] = 0
    f[..., 4:11, 4:11] = 0
    solution = step_to_steady(torch.ones_like(f), data_term(f, c), weights, tau, 1e-6, 1000)
    assert torch.equal(solution.u, f)
    assert solution.status == "converged"


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_all_known_and_constant_fields_need_no_iteration_or_converge(value: float) -> None:
    f, c, weights, tau = problem(8, 6, 6)
    constant = torch.full_like(f, value)
    solution = step_to_steady(constant, data_term(constant, c), weights, tau, 1e-6, 1000)
    torch.testing.assert_close(solution.u, constant)
    everything = step_to_steady(torch.zeros_like(f), data_term(f, torch.ones_like(c)), weights, tau, 1e-6, 1000)
    assert everything.iterations == 0
    assert torch.equal(everything.u, f)
    assert everything.status == "converged"
