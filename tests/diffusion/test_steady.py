import warnings

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.fsi import step_to_steady
from flowinpaint.diffusion.kernels import multigrid_reference as reference
from flowinpaint.diffusion.steady import solve_steady, steady_state
from flowinpaint.diffusion.stencil import cell_delta, divergence, edge_weights, stable_beta, time_step_bound
from flowinpaint.diffusion.tensor import edge_enhancing_tensor
from flowinpaint.errors import InputError
from flowinpaint.methods.laplace_beltrami import distance_weights
from helpers import dense_matrix, generator, random_graph, sintel


def problem(
    H: int, W: int, seed: int = 0, B: int = 1, C: int = 2, negative: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    weights, known = random_graph(B, H, W, seed, negative=negative)
    return 10 * torch.randn(B, C, H, W, generator=generator(seed), dtype=torch.float64), known.double(), weights


def direct(f: Tensor, c: Tensor, weights: Tensor) -> Tensor:
    """The steady state of one image by scipy's factorisation."""
    A = scipy.sparse.csc_matrix(dense_matrix(weights).numpy())
    known = c[0, 0].numpy().ravel() > 0
    u = f[0].flatten(1).numpy().T.copy()
    u[~known] = scipy.sparse.linalg.splu(A[~known][:, ~known].tocsc()).solve(-A[~known][:, known] @ u[known])
    return torch.from_numpy(u.T.reshape(f[0].shape))[None]


def relative_residual(u: Tensor, f: Tensor, c: Tensor, weights: Tensor) -> float:
    """The promise of solve_steady, from its definition: the worst channel."""
    mean = (f * c).sum((2, 3), keepdim=True) / c.sum((2, 3), keepdim=True)
    start = ((1 - c) * divergence(weights, c * (f - mean))).norm(dim=(2, 3))
    end = ((1 - c) * divergence(weights, u)).norm(dim=(2, 3))
    return float((end / start.clamp(min=torch.finfo(start.dtype).tiny)).max())


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("size", [(2, 2), (2, 30), (17, 23), (30, 26)])
def test_agrees_with_a_factorisation(size: tuple[int, int], negative: bool) -> None:
    f, c, weights = problem(*size, seed=1, negative=negative)
    u = solve_steady(f, c, weights, tolerance=1e-9).u
    torch.testing.assert_close(u, direct(f, c, weights), rtol=0, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 24), st.integers(1, 24), st.integers(1, 3), st.integers(0, 2**16))
def test_every_size_reaches_the_residual_it_reports(H: int, W: int, B: int, seed: int) -> None:
    f, c, weights = problem(H, W, seed, B)
    solution = solve_steady(f, c, weights, tolerance=1e-7)
    assert solution.status == "converged"
    assert torch.equal(solution.u[c.expand_as(f) > 0], f[c.expand_as(f) > 0])
    if solution.iterations:
        assert solution.residual == solution.history[-1] <= 1e-7
        assert relative_residual(solution.u, f, c, weights) <= 1.01e-7


def test_agrees_with_explicit_steps() -> None:
    image = torch.rand(1, 3, 40, 48, dtype=torch.float64, generator=generator(2)) * 0.1
    image[..., 20:] += 0.4
    f, c, _ = problem(40, 48, seed=3)
    D = edge_enhancing_tensor(image, 0.02, 0.5)
    delta = cell_delta(D, 0.3, stable_beta(D, 0.3))
    weights = edge_weights(D, delta)
    explicit = step_to_steady(torch.zeros_like(f), data_term(f, c), weights, time_step_bound(D, delta), 1e-8, 100_000)
    assert explicit.status == "converged"
    torch.testing.assert_close(solve_steady(f, c, weights).u, explicit.u, rtol=0, atol=1e-3)


def test_the_reference_kernels_solve_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    f, c, weights = problem(30, 37, seed=4)
    ours = solve_steady(f, c, weights, tolerance=1e-9)
    monkeypatch.setattr("flowinpaint.diffusion.multigrid.kernels_for", lambda *_: reference)
    plain = solve_steady(f, c, weights, tolerance=1e-9)
    assert abs(plain.iterations - ours.iterations) <= 1
    torch.testing.assert_close(ours.u, plain.u, rtol=0, atol=1e-6)


def test_images_and_channels_do_not_touch_each_other() -> None:
    f, c, weights = problem(19, 26, seed=5, B=3, C=4)
    together = solve_steady(f, c, weights, tolerance=1e-9).u
    for b in range(3):
        for k in range(4):
            alone = solve_steady(f[b : b + 1, k : k + 1], c[b : b + 1], weights[b : b + 1], tolerance=1e-9).u
            torch.testing.assert_close(together[b : b + 1, k : k + 1], alone, rtol=0, atol=1e-5)


def test_a_channel_of_any_size_is_solved_as_well_as_the_others() -> None:
    f, c, weights = problem(25, 31, seed=6, C=3)
    f = f * torch.tensor([1e-20, 1.0, 1e12]).double()[:, None, None]
    u = solve_steady(f, c, weights, tolerance=1e-9).u
    scale = f.abs().amax((2, 3), keepdim=True)
    torch.testing.assert_close(u / scale, direct(f, c, weights) / scale, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_types_come_back_as_they_came(dtype: torch.dtype) -> None:
    f, c, weights = problem(14, 15, seed=7)
    u = solve_steady(f.to(dtype), c.to(dtype), weights.to(dtype)).u
    assert u.dtype == dtype
    exact = solve_steady(f.to(dtype).double(), c, weights.to(dtype).double()).u
    torch.testing.assert_close(u.double(), exact, rtol=0, atol=20 * torch.finfo(dtype).eps * 10)


def test_memory_formats_make_no_difference() -> None:
    f, c, weights = problem(21, 17, seed=8, B=2)
    expected = solve_steady(f, c, weights).u
    turned = [x.contiguous(memory_format=torch.channels_last) for x in (f, c, weights)]
    torch.testing.assert_close(solve_steady(*turned).u, expected, rtol=0, atol=1e-9)


def test_history_reports_and_limits() -> None:
    f, c, weights = problem(60, 70, seed=9)
    seen: list[tuple[int, float]] = []
    solution = solve_steady(f, c, weights, report=lambda *now: seen.append(now))
    assert solution.history[0] == 1.0
    assert [residual for _, residual in seen] == list(solution.history[1:])
    assert seen[-1] == (solution.iterations, solution.residual)
    short = solve_steady(f, c, weights, max_iterations=2)
    assert (short.status, short.iterations) == ("max_iterations", 2)
    assert short.residual is not None
    assert 1e-6 < short.residual < 1
    assert short.residual == pytest.approx(relative_residual(short.u, f, c, weights), rel=1e-6)


def test_an_operator_that_is_not_semi_definite_is_not_passed_off_as_solved() -> None:
    f, c, weights = problem(20, 20, seed=10)
    weights[:, 0] *= -3
    solution = solve_steady(f, c, weights, max_iterations=300)
    assert solution.status in ("stagnated", "max_iterations")
    assert torch.isfinite(solution.u).all()


def test_pixels_cut_off_from_all_known_ones_take_the_mean() -> None:
    f, c, weights = problem(16, 24, seed=11)
    weights[:, 0, :, 11] = weights[:, 2, :, 11] = weights[:, 3, :, 12] = 0  # two halves
    c[..., 12:] = 0
    solution = solve_steady(f, c, weights, tolerance=1e-9)
    assert solution.status == "converged"
    mean = (f * c).sum((2, 3), keepdim=True) / c.sum()
    torch.testing.assert_close(solution.u[..., 12:], mean.expand(1, 2, 16, 12), rtol=0, atol=1e-9)
    left = [x[..., :12] for x in (f, c, weights)]
    left[2] = left[2].clone()
    left[2][:, 3, :, 0] = 0
    torch.testing.assert_close(solution.u[..., :12], direct(*left), rtol=0, atol=1e-4)


def test_a_single_pixel_without_edges_takes_the_mean_and_harms_nobody() -> None:
    f, c, weights = problem(12, 15, seed=22)
    y, x = torch.argwhere(c[0, 0, 1:-1, 1:-1] == 0)[0] + 1
    weights[..., y, x] = weights[:, 0, y, x - 1] = weights[:, 1, y - 1, x] = 0
    weights[:, 2, y - 1, x - 1] = weights[:, 3, y - 1, x + 1] = 0
    solution = solve_steady(f, c, weights, tolerance=1e-9)
    assert solution.status == "converged"
    assert relative_residual(solution.u, f, c, weights) <= 1.01e-9
    torch.testing.assert_close(solution.u[..., y, x], (f * c).sum((2, 3)) / c.sum(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_nothing_known_or_no_edges_at_all(weight: float) -> None:
    f, c, weights = problem(9, 11, seed=12)
    nothing = solve_steady(f, torch.zeros_like(c), weight * weights)
    assert nothing.status == "converged"
    assert not nothing.u.any()
    if not weight:
        alone = solve_steady(f, c, 0 * weights)
        mean = (f * c).sum((2, 3), keepdim=True) / c.sum()
        torch.testing.assert_close(alone.u, torch.where(c > 0, f, mean))


def test_one_known_pixel_fills_everything_with_its_value() -> None:
    f, c, weights = problem(40, 50, seed=13)
    c = torch.zeros_like(c)
    c[..., 7, 9] = 1
    torch.testing.assert_close(solve_steady(f, c, weights).u, f[..., 7:8, 9:10].expand_as(f), rtol=0, atol=1e-9)


def test_values_of_a_million_are_nothing_special() -> None:
    f, c, weights = problem(22, 21, seed=14)
    expected = solve_steady(f, c, weights).u
    torch.testing.assert_close(solve_steady(f + 1e6, c, weights).u - 1e6, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(solve_steady(f * 1e6, c, weights).u / 1e6, expected, rtol=0, atol=1e-6)


def test_positive_weights_keep_within_the_known_values() -> None:
    f, c, weights = problem(33, 41, seed=15)
    u = solve_steady(f, c, weights, tolerance=1e-9).u
    for k in range(2):
        given_values = f[0, k][c[0, 0] > 0]
        assert given_values.min() - 1e-6 <= u[0, k].min() <= u[0, k].max() <= given_values.max() + 1e-6


def test_weights_too_far_apart_for_float32() -> None:
    image = torch.zeros(1, 3, 96, 96, dtype=torch.float64)
    image[..., ::2] = 1
    f, _, _ = problem(96, 96, seed=16)
    c = (torch.rand(1, 1, 96, 96, generator=generator(17)) < 0.003).double()
    D = edge_enhancing_tensor(image, 1e-4, 0.5)
    weights = edge_weights(D, cell_delta(D, 0.42, stable_beta(D, 0.42)))
    solution = solve_steady(f, c, weights)
    assert solution.status == "converged"
    assert relative_residual(solution.u, f, c, weights) <= 1.01e-6


def test_gradients_are_those_of_the_solution() -> None:
    f, c, weights = problem(3, 4, seed=18, B=2)
    inputs = (f.requires_grad_(), weights.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda f, w: steady_state(f, c, w, tolerance=1e-12), inputs, eps=1e-6, atol=1e-5, rtol=1e-4
    )


def test_gradients_of_the_anisotropic_operator() -> None:
    weights, known = random_graph(1, 6, 5, seed=19, density=0.4, negative=True)
    f, c = torch.randn(1, 2, 6, 5, generator=generator(19), dtype=torch.float64), known.double()
    inputs = (f.requires_grad_(), weights.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda f, w: steady_state(f, c, w, tolerance=1e-12), inputs, eps=1e-6, atol=1e-5, rtol=1e-4
    )


def test_known_values_off_the_mask_have_no_gradient() -> None:
    f, c, weights = problem(9, 9, seed=20)
    steady_state(f.requires_grad_(), c, weights).square().sum().backward()  # type: ignore[no-untyped-call]
    assert f.grad is not None
    assert not f.grad[(c == 0).expand_as(f)].any()
    assert f.grad[(c > 0).expand_as(f)].all()


def test_an_image_without_known_pixels_leaves_the_others_their_gradients() -> None:
    f, c, weights = problem(14, 17, seed=23, B=2)
    c[1] = 0
    both, alone = ([x.clone().requires_grad_() for x in (f[:n], weights[:n])] for n in (2, 1))
    for (values, edges), n in ((both, 2), (alone, 1)):
        steady_state(values, c[:n], edges, tolerance=1e-9).square().sum().backward()  # type: ignore[no-untyped-call]
    for x, y in zip(both, alone, strict=True):
        assert x.grad is not None
        assert y.grad is not None
        torch.testing.assert_close(x.grad[:1], y.grad, rtol=1e-6, atol=1e-6)
        assert not x.grad[1].any()


def test_a_channel_that_cannot_be_solved_does_not_hold_up_the_others() -> None:
    f, c, weights = problem(20, 22, seed=24, B=2)
    weights[1, 0] *= -3
    solution = solve_steady(f, c, weights)
    assert solution.status in ("stagnated", "max_iterations")
    assert relative_residual(solution.u[:1], f[:1], c[:1], weights[:1]) <= 1e-4


def test_edges_that_leave_the_image_are_ignored() -> None:
    f, c, _ = problem(12, 15, seed=25)
    ones = torch.ones(1, 4, 12, 15, dtype=torch.float64)
    cut = ones.clone()
    cut[:, 0, :, -1] = cut[:, 1, -1] = cut[:, 2, -1] = cut[:, 2, :, -1] = cut[:, 3, -1] = cut[:, 3, :, 0] = 0
    solution = solve_steady(f, c, ones, tolerance=1e-9)
    assert solution.status == "converged"
    torch.testing.assert_close(solution.u, solve_steady(f, c, cut, tolerance=1e-9).u, rtol=0, atol=1e-9)


def test_a_gradient_that_has_not_converged_comes_with_a_warning() -> None:
    f, c, weights = problem(40, 40, seed=21)
    with pytest.warns(UserWarning, match="steady_state stopped after 1 iterations"):
        u = steady_state(f.requires_grad_(), c, weights, max_iterations=1)
    with pytest.warns(UserWarning, match="the gradient of steady_state stopped"):
        u.sum().backward()  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steady_state(f, c, weights).sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("c", torch.ones(1, 2, 5, 6)),
        ("c", torch.ones(1, 1, 6, 5)),
        ("weights", torch.ones(1, 3, 5, 6)),
        ("weights", torch.ones(2, 4, 5, 6)),
        ("weights", torch.full((1, 4, 5, 6), torch.nan)),
        ("tolerance", 0.0),
        ("tolerance", float("nan")),
        ("max_iterations", 0),
        ("max_iterations", 1.5),
    ],
)
def test_bad_arguments_are_named(argument: str, value: object) -> None:
    arguments = {"f": torch.zeros(1, 2, 5, 6), "c": torch.ones(1, 1, 5, 6), "weights": torch.ones(1, 4, 5, 6)}
    with pytest.raises(InputError, match=f"^{argument} must .*got"):
        solve_steady(**{**arguments, argument: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["eed", "laplace-beltrami"])
def test_a_real_frame_against_a_factorisation(kind: str) -> None:
    image, flow, mask = (x[150:300, 300:520] for x in sintel("ambush_4_f0004", "01"))
    guide = torch.from_numpy(np.moveaxis(image, -1, 0) / 255)[None]
    f, c = (
        torch.from_numpy(np.moveaxis(flow, -1, 0).astype(np.float64))[None],
        torch.from_numpy(mask)[None, None].double(),
    )
    if kind == "eed":
        D = edge_enhancing_tensor(guide, 1e-4, 0.5)
        weights = edge_weights(D, cell_delta(D, 0.42, stable_beta(D, 0.42)))
    else:
        weights = distance_weights(guide, 1e-6, 3)
    solution = solve_steady(f, c, weights, tolerance=1e-9)
    assert solution.status == "converged"
    unknown = c[0, 0].numpy().ravel() == 0
    A = sparse_operator(weights)
    x = scipy.sparse.linalg.spsolve(
        A[unknown][:, unknown].tocsc(), -A[unknown][:, ~unknown] @ f[0].flatten(1).numpy().T[~unknown]
    )
    difference = np.abs(solution.u[0].flatten(1).numpy().T[unknown] - x)
    assert difference.max() < 1e-4


def sparse_operator(weights: Tensor) -> "scipy.sparse.csr_matrix":
    """A as a sparse matrix, from nine products as in the coarse grids: independent of the code under test."""
    H, W = weights.shape[-2:]
    y, x = np.divmod(np.arange(H * W), W)
    rows, columns, values = [], [], []
    for i in range(3):
        for j in range(3):
            probe = torch.zeros(1, 1, H, W, dtype=torch.float64)
            probe[..., i::3, j::3] = 1
            product = divergence(weights, probe)[0, 0].numpy().ravel()
            cy, cx = y + (i - y + 1) % 3 - 1, x + (j - x + 1) % 3 - 1
            inside = (cy >= 0) & (cy < H) & (cx >= 0) & (cx < W)
            rows.append(np.flatnonzero(inside))
            columns.append((cy * W + cx)[inside])
            values.append(product[inside])
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return scipy.sparse.csr_matrix(entries, shape=(H * W, H * W))
