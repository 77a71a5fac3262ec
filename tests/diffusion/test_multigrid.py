import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.multigrid import build_multigrid, pad
from helpers import generator, random_graph


def random_residual(known: Tensor, seed: int) -> Tensor:
    B, _, H, W = known.shape
    r = torch.randn(B, 2, H, W, generator=generator(seed), dtype=torch.float64)
    return pad(r.masked_fill(known, 0))


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("size", [(13, 18), (40, 33), (2, 50)])
def test_a_cycle_is_symmetric_and_positive(size: tuple[int, int], negative: bool) -> None:
    weights, known = random_graph(2, *size, seed=1, negative=negative)
    multigrid = build_multigrid(weights, known, 2, torch.float64)
    r, s = random_residual(known, 2), random_residual(known, 3)
    Mr, Ms = multigrid.cycle(r).clone(), multigrid.cycle(s).clone()
    torch.testing.assert_close((Mr * s).sum((2, 3)), (r * Ms).sum((2, 3)), rtol=1e-9, atol=1e-9)
    assert ((Mr * r).sum((2, 3)) > 0).all()


def test_a_cycle_is_linear() -> None:
    weights, known = random_graph(1, 21, 30, seed=4)
    multigrid = build_multigrid(weights, known, 2, torch.float64)
    r, s = random_residual(known, 5), random_residual(known, 6)
    expected = 2 * multigrid.cycle(r).clone() - multigrid.cycle(s).clone()
    torch.testing.assert_close(multigrid.cycle(2 * r - s), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("side", [33, 64, 129])
@pytest.mark.parametrize(("given", "rate"), [("a row", 0.15), ("a pixel", 0.3)])
def test_cycles_alone_solve_the_laplacian_at_any_size(side: int, given: str, rate: float) -> None:
    weights = torch.zeros(1, 4, side, side, dtype=torch.float64)
    weights[:, 0, :, :-1] = weights[:, 1, :-1] = 1
    known = torch.zeros(1, 1, side, side, dtype=torch.bool)
    known[..., 5, :] = True
    if given == "a pixel":
        known[..., 5, 8:] = known[..., 5, :7] = False
    multigrid = build_multigrid(weights, known, 2, torch.float64)
    r = random_residual(known, 7)
    applied, norms = torch.zeros_like(r), []
    for _ in range(10):
        multigrid.apply(multigrid.cycle(r), applied)
        r = r + applied
        norms.append(float(r.norm()))
    assert norms[-1] / norms[-2] < rate
