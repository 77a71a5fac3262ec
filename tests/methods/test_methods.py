"""Common properties of harmonic, laplace_beltrami, eed and nearest."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from flowinpaint.errors import InputError
from flowinpaint.methods.eed import eed
from flowinpaint.methods.harmonic import harmonic
from flowinpaint.methods.laplace_beltrami import laplace_beltrami
from flowinpaint.methods.nearest import nearest
from flowinpaint.result import Progress, Solution
from helpers import generator

Fill = Callable[..., Solution]
METHODS = pytest.mark.parametrize("fill", [harmonic, laplace_beltrami, eed, nearest])
ITERATIVE = pytest.mark.parametrize("fill", [harmonic, laplace_beltrami, eed])


def scene(H: int, W: int, channels: int = 2, density: float = 0.15, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A smooth-plus-noise image, a random field and a mask."""
    g = generator(seed)
    image = torch.rand(1, 3, H, W, dtype=torch.float64, generator=g) * 0.05
    image[..., W // 2 :] += 0.5
    f = 10 * torch.randn(1, channels, H, W, dtype=torch.float64, generator=g)
    c = (torch.rand(1, 1, H, W, dtype=torch.float64, generator=g) < density).double()
    c[..., H // 2, W // 2] = 1
    return image, f, c


@METHODS
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (6, 1), (2, 2), (3, 5), (16, 16), (33, 18)])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_any_size_and_channel_count(fill: Fill, size: tuple[int, int], channels: int) -> None:
    image, f, c = scene(*size, channels)
    solution = fill(image, f, c)
    assert solution.u.shape == f.shape
    assert torch.isfinite(solution.u).all()
    known = c.expand_as(f) > 0
    torch.testing.assert_close(solution.u[known], f[known], rtol=1e-12, atol=1e-12)


@METHODS
@pytest.mark.parametrize("size", [(20, 28), (21, 27)])
def test_mirrored_and_transposed_inputs_give_mirrored_and_transposed_results(fill: Fill, size: tuple[int, int]) -> None:
    inputs = scene(*size)
    u = fill(*inputs).u
    turns: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.flip(-1),
        lambda x: x.flip(-2),
        lambda x: x.mT,
        lambda x: x.mT.flip(-1),
    ]
    for turn in turns:
        turned = fill(*(turn(x).contiguous() for x in inputs)).u
        torch.testing.assert_close(turned, turn(u), rtol=0, atol=1e-3)


@METHODS
def test_one_known_pixel_fills_everything_with_its_vector(fill: Fill) -> None:
    image, f, c = scene(13, 17)
    c.zero_()
    c[..., 4, 11] = 1
    u = fill(image, f, c).u
    torch.testing.assert_close(u, f[..., 4:5, 11:12].expand_as(u), rtol=0, atol=1e-9)


@METHODS
def test_all_known_returns_the_input(fill: Fill) -> None:
    image, f, c = scene(9, 10)
    torch.testing.assert_close(fill(image, f, torch.ones_like(c)).u, f, rtol=0, atol=1e-12)


@ITERATIVE
def test_a_large_constant_offset_changes_nothing_else(fill: Fill) -> None:
    image, f, c = scene(18, 20)
    torch.testing.assert_close(fill(image, f + 1e4, c).u - 1e4, fill(image, f, c).u, rtol=0, atol=1e-6)


@ITERATIVE
def test_convergence_is_reached_and_reported(fill: Fill) -> None:
    seen: list[Progress] = []
    solution = fill(*scene(40, 50), progress=seen.append)
    assert solution.status == "converged"
    assert solution.residual is not None
    assert solution.residual <= 1e-6
    assert seen[0].level == 1
    assert seen[-1].level == seen[-1].levels == 1
    assert seen[-1].residual == solution.residual
    assert seen[-1].iterations == solution.iterations


@ITERATIVE
@pytest.mark.parametrize(
    ("parameter", "value"),
    [("tolerance", 0.0), ("tolerance", float("nan")), ("max_iterations", 0), ("max_iterations", 2.5)],
)
def test_bad_solver_parameters_are_named(fill: Fill, parameter: str, value: float) -> None:
    with pytest.raises(InputError, match=parameter):
        fill(*scene(8, 8), **{parameter: value})


def test_harmonic_keeps_a_linear_field() -> None:
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(20.0), indexing="ij")
    f = torch.stack([x - 2 * y, 0.5 * y])[None].double()
    c = torch.zeros(1, 1, 16, 20, dtype=torch.float64)
    c[..., 0, :] = c[..., -1, :] = c[..., :, 0] = c[..., :, -1] = 1
    u = harmonic(torch.zeros(1, 3, 16, 20, dtype=torch.float64), f, c, tolerance=1e-10).u
    torch.testing.assert_close(u, f, rtol=0, atol=1e-6)


def test_harmonic_makes_every_unknown_pixel_the_mean_of_its_four_neighbours() -> None:
    image, f, c = scene(20, 22)
    u = harmonic(image, f, c, tolerance=1e-10).u
    mean = (u[..., 1:-1, 2:] + u[..., 1:-1, :-2] + u[..., 2:, 1:-1] + u[..., :-2, 1:-1]) / 4
    unknown = (c[..., 1:-1, 1:-1] == 0).expand_as(mean)
    torch.testing.assert_close(u[..., 1:-1, 1:-1][unknown], mean[unknown], rtol=0, atol=1e-6)


def test_nearest_takes_the_closest_vector() -> None:
    image, f, c = scene(11, 12, density=0.08, seed=3)
    u = nearest(image, f, c).u[0].numpy()
    known = np.argwhere(c[0, 0].numpy() > 0)
    for y in range(11):
        for x in range(12):
            distance = ((known - (y, x)) ** 2).sum(1)
            closest = known[distance == distance.min()]
            candidates = f[0].numpy()[:, closest[:, 0], closest[:, 1]]
            if len(closest) == 1:
                np.testing.assert_allclose(u[:, y, x], candidates[:, 0])
            assert (u[:, y, x] <= candidates.max(1) + 1e-9).all()
            assert (u[:, y, x] >= candidates.min(1) - 1e-9).all()
