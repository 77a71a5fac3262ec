"""The FSI cycle with a soft data term: stability, fixed point, limits and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm, data_term
from flowinpaint.diffusion.fsi import fsi_cycle, fsi_cycle_of, step_to_steady
from flowinpaint.diffusion.kernels import fsi_reference
from flowinpaint.diffusion.stencil import (
    cell_delta,
    divergence,
    edge_weights,
    pure_divergence,
    stable_beta,
    time_step_bound,
)
from helpers import dense_matrix, generator, random_process, seeds, sizes

Problem = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def problem(seed: int, H: int, W: int, B: int = 1, C: int = 2, density: float = 0.5) -> Problem:
    """u, f, c, k, weights and tau; k over eight decades, some vectors exact, A anisotropic with negative weights."""
    D, alpha = random_process(seed, H, W, B)
    delta = cell_delta(D, alpha, stable_beta(D, alpha))
    g = generator(seed + 1)
    u, f = (torch.randn(B, C, H, W, generator=g, dtype=torch.float64) for _ in range(2))
    c = (torch.rand(B, 1, H, W, generator=g) < density).double()
    k = 10 ** (8 * torch.rand(B, 1, H, W, generator=g, dtype=torch.float64) - 4)
    k = torch.where(torch.rand(B, 1, H, W, generator=g) < 0.2, torch.inf, k)
    return u, f, c, k, edge_weights(D, delta), time_step_bound(D, delta).clamp(max=1.0)


def oracle(u: Tensor, f: Tensor, c: Tensor, k: Tensor, weights: Tensor, tau: Tensor, steps: int) -> Tensor:
    return fsi_cycle_of([lambda u: tau * divergence(weights, u)] * steps, u, data_term(f, c, k), tau)


@pytest.mark.parametrize("size", [(2, 2), (5, 3), (9, 17)])
@pytest.mark.parametrize("steps", [1, 2, 11])
@pytest.mark.parametrize("segment", [None, 1, 4])
def test_values_and_gradients_are_the_oracles(size: tuple[int, int], steps: int, segment: int | None) -> None:
    u, f, c, k, weights, tau = problem(3, *size, B=2)
    results = []
    for cycle in (True, False):
        leaves = [x.clone().requires_grad_() for x in (u, f, k, weights, tau)]
        u_, f_, k_, w_, tau_ = leaves
        if cycle:
            end = fsi_cycle(u_, f_, c, w_, tau_, steps, segment, data_weight=k_)
        else:
            end = oracle(u_, f_, c, k_, w_, tau_, steps)
        direction = torch.randn(end.shape, generator=generator(9), dtype=end.dtype)
        results.append([end.detach(), *torch.autograd.grad(end, leaves, direction)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("segment", [None, 3])
def test_gradcheck(segment: int | None) -> None:
    u, f, c, k, weights, tau = problem(4, 3, 4)
    k = torch.where(torch.isinf(k), 3.0, k).clamp(1e-2, 1e2)
    leaves = [x.requires_grad_() for x in (u, f, weights, tau, k)]
    assert torch.autograd.gradcheck(
        lambda u, f, w, t, k: fsi_cycle(u, f, c, w, t, 5, segment, data_weight=k), leaves, atol=1e-6
    )


@settings(max_examples=60)
@given(seeds, sizes, st.integers(1, 60))
def test_errors_stay_bounded_for_weights_of_any_size(seed: int, size: tuple[int, int], steps: int) -> None:
    """With f = 0 the field is the error; the implicit data term never raises it beyond that of the start."""
    u, f, c, k, weights, tau = problem(seed, *size)
    end = fsi_cycle(u, torch.zeros_like(f), c, weights, tau, steps, data_weight=k)
    assert end.norm() <= 1.5 * u.norm()


def test_it_converges_to_a_direct_solve_of_the_same_system() -> None:
    u, f, c, k, weights, tau = problem(6, 10, 12, density=0.3)
    k = torch.where(torch.isinf(k), k, k.clamp(1e-2, 1e3))
    data = data_term(f, c, k)
    assert data.weight is not None
    for _ in range(60):
        u = fsi_cycle(u, f, c, weights, tau, 60, data_weight=k)
    torch.testing.assert_close(u, direct(data, weights), rtol=0, atol=1e-6)


def direct(data: DataTerm, weights: Tensor) -> Tensor:
    """The minimiser of one image's energy, by a dense solve."""
    assert data.weight is not None
    A, exact = dense_matrix(weights), data.exact.flatten()
    k = torch.where(data.exact, 0, data.weight).flatten()
    system, right = torch.diag(k) - A, k[:, None] * data.f[0].flatten(1).T
    system[exact] = torch.eye(len(k), dtype=k.dtype)[exact]
    right[exact] = data.f[0].flatten(1).T[exact]
    u: Tensor = torch.linalg.solve(system, right)
    return u.T.reshape(data.f.shape)


def test_growing_weights_converge_to_the_exact_data_term() -> None:
    u, f, c, _, weights, tau = problem(7, 8, 9)
    hard = fsi_cycle(u, f, c, weights, tau, 30)
    errors = [
        float((fsi_cycle(u, f, c, weights, tau, 30, data_weight=torch.full_like(c, w)) - hard).abs().max())
        for w in (1e1, 1e3, 1e5, 1e7)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-5
    infinite = fsi_cycle(u, f, c, weights, tau, 30, data_weight=torch.full_like(c, torch.inf))
    torch.testing.assert_close(infinite, hard, rtol=1e-12, atol=1e-12)


@given(seeds, sizes)
def test_it_is_linear_in_the_data_for_a_fixed_process(seed: int, size: tuple[int, int]) -> None:
    u, f, c, k, weights, tau = problem(seed, *size)
    v, g = (torch.randn(f.shape, generator=generator(seed + n), dtype=torch.float64) for n in (5, 6))

    def fill(u: Tensor, f: Tensor) -> Tensor:
        return fsi_cycle(u, f, c, weights, tau, 9, data_weight=k)

    torch.testing.assert_close(fill(2 * u - 3 * v, 2 * f - 3 * g), 2 * fill(u, f) - 3 * fill(v, g))


def test_explicit_steps_to_the_steady_state() -> None:
    _, f, c, k, weights, tau = problem(8, 14, 15, density=0.2)
    data = data_term(f, c, k)
    solution = step_to_steady(torch.zeros_like(f), data, weights, tau, 1e-9, 100_000)
    assert solution.status == "converged"
    torch.testing.assert_close(solution.u, direct(data, weights), rtol=0, atol=1e-5)


def test_the_pure_divergence_is_the_divergence() -> None:
    weights = torch.randn(2, 4, 7, 9, generator=generator(1), dtype=torch.float64)
    u = torch.randn(2, 3, 7, 9, generator=generator(2), dtype=torch.float64)
    torch.testing.assert_close(pure_divergence(weights, u), divergence(weights, u))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (12, 1), (9, 17), (64, 35)])
def test_the_compiled_cycle_is_the_reference(
    size: tuple[int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsi_cpu = pytest.importorskip("flowinpaint.diffusion.kernels.fsi_cpu", reason="no numba")
    from flowinpaint.diffusion.kernels import cpu_strips

    monkeypatch.setattr(cpu_strips, "SMALLEST_SHARE", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    g = generator(3)
    weights = torch.rand(2, 4, *size, generator=g) / 16
    weights[:, (0, 2), :, -1:], weights[:, 1:, -1:], weights[:, 3, :, :1] = 0, 0, 0  # edges that leave the image
    u, f = (torch.randn(2, 2, *size, generator=g) for _ in range(2))
    k = 10 ** (6 * torch.rand(2, 1, *size, generator=g) - 3)
    k = torch.where(torch.rand(2, 1, *size, generator=g) < 0.2, torch.inf, k)
    data = data_term(f, torch.rand(2, 1, *size, generator=g) < 0.5, k)
    try:
        for tau in (0.25, torch.tensor([0.2, 0.3]).view(2, 1, 1, 1)):
            ours = fsi_cpu.diffuse(u, data, weights, tau, 19)
            torch.testing.assert_close(ours, fsi_reference.diffuse(u, data, weights, tau, 19), rtol=1e-5, atol=1e-5)
            assert torch.equal(ours[data.exact.expand_as(f)], f[data.exact.expand_as(f)])
    finally:
        torch.set_num_threads(before)


def test_a_scaled_data_term_keeps_exact_vectors() -> None:
    data = data_term(
        torch.zeros(1, 1, 1, 3), torch.ones(1, 1, 1, 3), torch.tensor([torch.inf, 2.0, 0]).view(1, 1, 1, 3)
    )
    weight = data.scaled(0.25).weight
    assert weight is not None
    assert weight.flatten().tolist() == [torch.inf, 0.5, 0]
    exact = DataTerm(data.f, data.known)
    assert exact.scaled(0.25) is exact
