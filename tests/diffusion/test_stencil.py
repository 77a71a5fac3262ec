import math
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from flowinpaint.diffusion.stencil import (
    cell_delta,
    divergence,
    edge_weights,
    paper_time_step,
    stable_beta,
    time_step_bound,
)
from flowinpaint.diffusion.tensor import SymmetricTensor
from helpers import dense_matrix, generator, golden, random_process, seeds, sizes


def weights_of(
    seed: int, H: int, W: int, beta_share: float = 1.0
) -> tuple[torch.Tensor, SymmetricTensor, torch.Tensor]:
    """Edge weights, tensor and delta of a random process with beta anywhere in its admissible range."""
    D, alpha = random_process(seed, H, W)
    delta = cell_delta(D, alpha, beta_share * stable_beta(D, alpha))
    return edge_weights(D, delta), D, delta


def constant_tensor(a: float, b: float, c: float, H: int, W: int) -> SymmetricTensor:
    return SymmetricTensor(*(torch.full((1, 1, H - 1, W - 1), x, dtype=torch.float64) for x in (a, b, c)))


shares = st.floats(-1, 1)


def test_operator_equals_the_authors() -> None:
    data = golden("stencil_fsi.npz")
    D = SymmetricTensor(*(data[key][..., :-1, :-1] for key in ("D_cc", "D_rc", "D_rr")))
    alpha = data["alpha"][..., :-1, :-1]
    Au = divergence(edge_weights(D, cell_delta(D, alpha, stable_beta(D, alpha))), data["u"])
    torch.testing.assert_close(Au, data["Au"], rtol=0, atol=1e-5)


@given(seeds, sizes, shares)
def test_matrix_is_symmetric_with_zero_row_sums(seed: int, size: tuple[int, int], share: float) -> None:
    A = dense_matrix(weights_of(seed, *size, share)[0])
    torch.testing.assert_close(A, A.T, rtol=0, atol=1e-14)
    torch.testing.assert_close(A.sum(1), torch.zeros(len(A), dtype=A.dtype), rtol=0, atol=1e-13)


@given(seeds, sizes, shares)
def test_no_eigenvalue_is_positive_and_the_time_step_is_stable(seed: int, size: tuple[int, int], share: float) -> None:
    weights, D, delta = weights_of(seed, *size, share)
    eigenvalue = torch.linalg.eigvalsh(dense_matrix(weights))
    assert eigenvalue.max() <= 1e-12
    assert float(time_step_bound(D, delta)) * -eigenvalue.min() <= 2 + 1e-9


@given(seeds, sizes, shares)
def test_norm_does_not_grow_within_the_time_step_bound(seed: int, size: tuple[int, int], share: float) -> None:
    weights, D, delta = weights_of(seed, *size, share)
    u = torch.randn(1, 3, *size, dtype=torch.float64, generator=generator(seed + 1))
    tau = time_step_bound(D, delta)
    for _ in range(5):
        step = u + tau * divergence(weights, u)
        assert step.norm() <= u.norm() * (1 + 1e-12)
        u = step


@given(seeds, sizes)
def test_the_papers_time_step_is_stable_and_never_the_larger_one(seed: int, size: tuple[int, int]) -> None:
    D, alpha = random_process(seed, *size)
    delta = cell_delta(D, alpha, stable_beta(D, alpha))
    tau = paper_time_step(alpha)
    assert tau <= time_step_bound(D, delta) * (1 + 1e-9)
    assert float(tau) * -torch.linalg.eigvalsh(dense_matrix(edge_weights(D, delta))).min() <= 2 + 1e-9


def test_the_bound_on_delta_is_sharp() -> None:
    """Just beyond δ = (a + c)/2 the checkerboard grows, so the property tests above can fail."""
    D = constant_tensor(0.3, 0.0, 0.3, 6, 6)
    for excess, grows in ((0.0, False), (0.01, True)):
        A = dense_matrix(edge_weights(D, (D.a + D.c) / 2 + excess))
        assert bool(torch.linalg.eigvalsh(A).max() > 1e-4) is grows


def test_the_time_step_bound_is_sharp_for_the_laplacian() -> None:
    D = constant_tensor(1, 0, 1, 24, 24)
    delta = torch.zeros_like(D.a)
    radius = -torch.linalg.eigvalsh(dense_matrix(edge_weights(D, delta))).min()
    assert float(time_step_bound(D, delta)) == pytest.approx(0.25)
    assert radius == pytest.approx(8, rel=0.02)


@given(seeds, sizes, shares)
def test_energy_is_that_of_gradient_and_twist(seed: int, size: tuple[int, int], share: float) -> None:
    weights, D, delta = weights_of(seed, *size, share)
    u = torch.randn(1, 1, *size, dtype=torch.float64, generator=generator(seed + 1))
    dx, dy = u.diff(dim=-1), u.diff(dim=-2)
    gx, gy = (dx[..., 1:, :] + dx[..., :-1, :]) / 2, (dy[..., 1:] + dy[..., :-1]) / 2
    twist = dx.diff(dim=-2)
    cells = D.a * gx**2 + 2 * D.b * gx * gy + D.c * gy**2 + (D.a + D.c - 2 * delta) * twist**2 / 4
    torch.testing.assert_close(-(u * divergence(weights, u)).sum(), cells.sum())


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-0.99, 0.99), st.floats(0, 0.5))
def test_quadratic_polynomials_are_differentiated_exactly(a: float, c: float, r: float, alpha: float) -> None:
    b = r * math.sqrt(a * c)
    D = constant_tensor(a, b, c, 7, 8)
    weights = edge_weights(D, cell_delta(D, alpha, stable_beta(D, alpha)))
    y, x = torch.meshgrid(torch.arange(7.0), torch.arange(8.0), indexing="ij")
    polynomials = [torch.ones_like(x), x, y, x * x, x * y, y * y]
    Au = divergence(weights, torch.stack(polynomials)[None].double())[0, :, 1:-1, 1:-1]
    for value, expected in zip(Au, (0, 0, 0, 2 * a, 2 * b, 2 * c), strict=True):
        torch.testing.assert_close(value, torch.full_like(value, expected), rtol=0, atol=1e-11)


def consistency_error(n: int, alpha: float) -> float:
    """Largest interior error of div(D∇u) on n×n cells of the unit square, for smooth D and u."""
    h = 1 / n
    cell = (torch.arange(n, dtype=torch.float64) + 0.5) * h
    Y, X = torch.meshgrid(cell, cell, indexing="ij")

    def entries(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            0.6 + 0.3 * torch.sin(3 * x + y),
            0.2 + 0.1 * torch.cos(2 * x * y),
            0.5 + 0.2 * torch.cos(x - 2 * y),
        )

    D = SymmetricTensor(*(v[None, None] for v in entries(X, Y)))
    weights = edge_weights(D, cell_delta(D, alpha, stable_beta(D, alpha)))
    point = torch.arange(n + 1, dtype=torch.float64) * h
    y, x = torch.meshgrid(point, point, indexing="ij")
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    u = torch.sin(2 * x + 0.5) * torch.cos(3 * y) + x * y
    ux, uy = torch.autograd.grad(u.sum(), (x, y), create_graph=True)
    a, b, c = entries(x, y)
    exact = torch.autograd.grad((a * ux + b * uy).sum(), x, create_graph=True)[0]
    exact = exact + torch.autograd.grad((b * ux + c * uy).sum(), y)[0]
    error = divergence(weights, u.detach()[None, None])[0, 0] / h**2 - exact.detach()
    return float(error[1:-1, 1:-1].abs().max())


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.44])
def test_order_of_convergence_is_two_for_a_smooth_tensor(alpha: float) -> None:
    errors = [consistency_error(n, alpha) for n in (32, 64, 128)]
    orders = [math.log2(coarse / fine) for coarse, fine in pairwise(errors)]
    assert orders[-1] == pytest.approx(2, abs=0.1)


@given(seeds, sizes)
def test_channels_do_not_touch_each_other(seed: int, size: tuple[int, int]) -> None:
    weights, _, _ = weights_of(seed, *size)
    u = torch.randn(1, 5, *size, dtype=torch.float64, generator=generator(seed))
    together = divergence(weights, u)
    for channel in range(5):
        assert torch.equal(together[:, channel : channel + 1], divergence(weights, u[:, channel : channel + 1]))


@given(seeds, sizes)
def test_a_sum_is_conserved(seed: int, size: tuple[int, int]) -> None:
    weights, _, _ = weights_of(seed, *size)
    u = torch.randn(1, 1, *size, dtype=torch.float64, generator=generator(seed))
    assume(u.norm() > 0)
    assert abs(float(divergence(weights, u).sum())) < 1e-12


def test_time_steps_are_one_per_image() -> None:
    D, alpha = random_process(0, 6, 7, batch=3)
    D = SymmetricTensor(*(entry * torch.tensor([1.0, 0.1, 0.5]).view(3, 1, 1, 1) for entry in D))
    delta = cell_delta(D, alpha, stable_beta(D, alpha))
    together, paper = time_step_bound(D, delta), paper_time_step(alpha)
    assert together.shape == paper.shape == (3, 1, 1, 1)
    for k in range(3):
        alone = SymmetricTensor(*(entry[k : k + 1] for entry in D))
        assert torch.equal(time_step_bound(alone, delta[k : k + 1]), together[k : k + 1])
        assert torch.equal(paper_time_step(alpha[k : k + 1]), paper[k : k + 1])


def test_gradients_through_the_time_step_are_finite_where_the_tensor_is_isotropic() -> None:
    D = SymmetricTensor(*(x.requires_grad_() for x in constant_tensor(1, 0, 1, 4, 5)))
    torch.autograd.backward(time_step_bound(D, torch.zeros_like(D.a)).sum())
    assert all(x.grad is not None and torch.isfinite(x.grad).all() for x in D)


def test_gradcheck_through_weights_and_operator() -> None:
    D, alpha = random_process(4, 4, 5)
    u = torch.randn(1, 2, 4, 5, dtype=torch.float64, generator=generator(1))
    leaves = [x.detach().requires_grad_() for x in (*D, alpha, u)]

    def apply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, alpha: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        D = SymmetricTensor(a, b, c)
        return divergence(edge_weights(D, cell_delta(D, alpha, stable_beta(D, alpha))), u)

    assert torch.autograd.gradcheck(apply, leaves)
