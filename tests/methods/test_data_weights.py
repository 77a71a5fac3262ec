"""Weights of given vectors in the methods that accept them, through the registry."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.stencil import cell_delta, edge_weights, stable_beta
from flowinpaint.diffusion.tensor import edge_enhancing_tensor
from flowinpaint.errors import InputError
from flowinpaint.methods.laplace_beltrami import distance_weights
from flowinpaint.methods.registry import all_methods, get_method
from helpers import dense_matrix, generator

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
CPU = torch.device("cpu")


def problem(H: int = 12, W: int = 14) -> Inputs:
    """Image, flow, mask and weights over four decades, some of them infinite."""
    g = generator(0)
    image = torch.rand(1, 3, H, W, generator=g)
    mask = (torch.rand(1, 1, H, W, generator=g) < 0.3).float()
    flow = torch.where(mask > 0, 5 * torch.randn(1, 2, H, W, generator=g), 0)
    weight = 10 ** (4 * torch.rand(1, 1, H, W, generator=g) - 2)
    return image, flow, mask, torch.where(torch.rand(1, 1, H, W, generator=g) < 0.2, torch.inf, weight)


def edges(method: str, image: Tensor) -> Tensor:
    image = image.double()
    if method == "laplace-beltrami":
        return distance_weights(image, 1e-2, 3)
    if method == "eed":
        D = edge_enhancing_tensor(image, 1e-2, 0.5)
        return edge_weights(D, cell_delta(D, 0.3, stable_beta(D, 0.3)))
    weights = image.new_zeros(1, 4, *image.shape[-2:])
    weights[:, 0, :, :-1], weights[:, 1, :-1] = 1, 1
    return weights


def direct(flow: Tensor, mask: Tensor, weight: Tensor, graph: Tensor) -> Tensor:
    data = data_term(flow.double(), mask, weight.double())
    assert data.weight is not None
    exact = data.exact.flatten()
    k = torch.where(data.exact, 0, data.weight).flatten()
    system, right = torch.diag(k) - dense_matrix(graph), k[:, None] * data.f[0].flatten(1).T
    system[exact], right[exact] = torch.eye(len(k), dtype=k.dtype)[exact], data.f[0].flatten(1).T[exact]
    u: Tensor = torch.linalg.solve(system, right)
    return u.T.reshape(flow.shape)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("harmonic", {}),
        ("laplace-beltrami", {"lam": 1e-2}),
        ("eed", {"lam": 1e-2, "alpha": 0.3}),
        ("eed", {"lam": 1e-2, "alpha": 0.3, "solver": "fsi"}),
    ],
)
def test_the_result_is_the_direct_solution_of_the_same_system(method: str, parameters: dict[str, Any]) -> None:
    image, flow, mask, weight = problem()
    solution = get_method(method).fill(image, flow, mask, weight=weight, tolerance=1e-9, **parameters)
    assert solution.status == "converged"
    torch.testing.assert_close(solution.u, direct(flow, mask, weight, edges(method, image)), rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 1)])
@pytest.mark.parametrize("method", ["harmonic", "laplace-beltrami", "eed"])
def test_thin_images(method: str, size: tuple[int, int]) -> None:
    image, flow, mask, weight = problem(*size)
    mask[..., 0, 0] = 1
    u = get_method(method).fill(image, flow, mask, weight=weight).u
    assert u.shape == flow.shape
    assert torch.isfinite(u).all()


@pytest.mark.parametrize("method", [m.name for m in all_methods() if m.takes_weights])
def test_infinite_weights_are_exact_and_small_ones_smooth(method: str) -> None:
    image, flow, mask, _ = problem(24, 30)
    fill = get_method(method).fill
    exact = fill(image, flow, mask).u
    torch.testing.assert_close(fill(image, flow, mask, weight=torch.full_like(mask, torch.inf)).u, exact)
    soft = fill(image, flow, mask, weight=torch.full_like(mask, 0.1)).u
    known = (mask > 0).expand_as(flow)
    assert (soft - flow)[known].abs().mean() > 0.5
    assert soft.std() < 0.9 * exact.std()


@pytest.mark.parametrize("method", ["nearest", "flownets"])
def test_other_methods_refuse_weights(method: str) -> None:
    image, flow, mask, weight = problem()
    with pytest.raises(InputError, match=f"weight must be None for {method}, which keeps given vectors exactly"):
        get_method(method).fill(image, flow, mask, weight=weight)


def test_the_expected_error_is_zero_only_where_vectors_are_exact() -> None:
    image, flow, mask, weight = problem(40, 50)
    error = get_method("neuroexplicit").fill(image, flow, mask, weight=weight).expected_error
    assert error is not None
    assert torch.equal(error == 0, (mask > 0) & torch.isinf(weight))
