from itertools import pairwise

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.kernels import multigrid_reference as reference
from flowinpaint.diffusion.multigrid import COARSEST_SIDE, Level, build_levels, inner, pad
from flowinpaint.diffusion.stencil import divergence
from helpers import random_graph


def operator_matrix(level: Level) -> Tensor:
    """A of the first image of a level as a dense matrix."""
    H, W = level.size
    one = Level(level.d[:1], level.w[:1], level.pivots[:1], None)
    units = pad(torch.eye(H * W, dtype=level.d.dtype).reshape(1, H * W, H, W))
    out = torch.zeros_like(units)
    reference.residual(one, units, torch.zeros_like(units), out)
    return -inner(out)[0].reshape(H * W, H * W)


def prolongation_matrix(fine: Level, coarse: Level) -> Tensor:
    (H, W), (h, w) = fine.size, coarse.size
    units = pad(torch.eye(h * w, dtype=fine.d.dtype).reshape(1, h * w, h, w))
    out = torch.zeros(1, h * w, H + 2, W + 2, dtype=fine.d.dtype)
    assert fine.p is not None
    reference.prolong_add(Level(fine.d[:1], fine.w[:1], fine.pivots[:1], fine.p[:1]), units, out)
    return inner(out)[0].reshape(h * w, H * W).T


def test_the_finest_grid_is_the_operator_with_the_known_pixels_taken_out() -> None:
    weights, known = random_graph(2, 9, 11, seed=0)
    level = build_levels(weights, known, reference, torch.float64)[0]
    u = torch.randn(2, 3, 9, 11, dtype=torch.float64).masked_fill(known, 0)
    out = torch.zeros(2, 3, 11, 13, dtype=torch.float64)
    reference.residual(level, pad(u), torch.zeros_like(out), out)
    expected = divergence(weights, u).masked_fill(known, 0)
    torch.testing.assert_close(inner(out), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [(9, 12), (10, 13), (1, 30), (30, 2)])
def test_coarse_operators_are_galerkin_products(size: tuple[int, int]) -> None:
    levels = build_levels(*random_graph(1, *size, seed=1), reference, torch.float64)
    assert len(levels) > 1
    for fine, coarse in pairwise(levels):
        P = prolongation_matrix(fine, coarse)
        torch.testing.assert_close(operator_matrix(coarse), P.T @ operator_matrix(fine) @ P, rtol=1e-10, atol=1e-10)


def test_coarse_operators_are_symmetric_and_positive_definite() -> None:
    for level in build_levels(*random_graph(1, 17, 22, seed=2, negative=True), reference, torch.float64):
        A = operator_matrix(level)
        torch.testing.assert_close(A, A.T)
        assert torch.linalg.eigvalsh(A).min() > 0


def test_interpolation_keeps_a_constant_where_nothing_is_known() -> None:
    weights, known = random_graph(1, 13, 15, seed=3)
    fine, coarse = build_levels(weights, torch.zeros_like(known), reference, torch.float64)[:2]
    ones = pad(torch.ones(1, 1, *coarse.size, dtype=torch.float64))
    out = pad(torch.zeros(1, 1, 13, 15, dtype=torch.float64))
    reference.prolong_add(fine, ones, out)
    torch.testing.assert_close(inner(out), torch.ones_like(inner(out)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 2), (3, 200), (100, 70)])
def test_grids_halve_until_they_are_small(size: tuple[int, int]) -> None:
    levels = build_levels(*random_graph(1, *size, seed=4), reference, torch.float32)
    sizes = [level.size for level in levels]
    assert sizes[0] == size
    assert max(sizes[-1]) <= COARSEST_SIDE
    for (H, W), smaller in pairwise(sizes):
        assert max(H, W) > COARSEST_SIDE
        assert smaller == ((H + 1) // 2, (W + 1) // 2)


def test_borders_stay_zero() -> None:
    for level in build_levels(*random_graph(2, 21, 18, seed=5), reference, torch.float64):
        for x in (level.d, level.w, level.pivots, level.p):
            if x is not None:
                assert torch.equal(x, pad(inner(x)))
                assert x.any()
