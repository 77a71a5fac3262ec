import math

import pytest
import scipy.ndimage
import torch
from hypothesis import given

from flowinpaint.diffusion.tensor import (
    SymmetricTensor,
    edge_enhancing_tensor,
    eigenvalues,
    gaussian_blur,
    orientation_from_vector,
    orientation_of,
    perona_malik,
    structure_tensor,
    tensor_from_eigen,
)
from helpers import generator, random_process, seeds, sizes


def image(seed: int, H: int, W: int, C: int = 3) -> torch.Tensor:
    return torch.rand(1, C, H, W, dtype=torch.float64, generator=generator(seed))


def test_perona_malik_is_one_at_zero_half_at_lambda_and_decreases() -> None:
    x = torch.linspace(0, 50, 200, dtype=torch.float64)
    g = perona_malik(x, 0.7)
    assert g[0] == 1
    for lam in (1e-6, 1e-4, 0.7):
        assert perona_malik(torch.tensor(lam, dtype=torch.float64), lam) == pytest.approx(0.5, abs=1e-12)
    assert (g.diff() < 0).all()
    assert (g > 0).all()


def test_perona_malik_with_a_floor_stays_finite_when_lambda_is_zero() -> None:
    assert torch.isfinite(perona_malik(torch.tensor([0.0, 1.0, 1e4]), torch.tensor(0.0), 1e-8)).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 3), (17, 23)])
@pytest.mark.parametrize("rho", [0.5, 1.0, 2.3])
def test_blur_equals_scipys_with_mirrored_borders(size: tuple[int, int], rho: float) -> None:
    x = image(3, *size)
    blurred = gaussian_blur(x, rho)
    for channel in range(3):
        expected = scipy.ndimage.gaussian_filter(x[0, channel].numpy(), rho, mode="reflect", radius=math.ceil(3 * rho))
        torch.testing.assert_close(blurred[0, channel], torch.from_numpy(expected))


def test_no_blur_at_rho_zero() -> None:
    x = image(0, 5, 6)
    assert gaussian_blur(x, 0) is x


def test_structure_tensor_of_a_ramp_is_the_outer_product_of_its_gradient() -> None:
    y, x = torch.meshgrid(torch.arange(8.0), torch.arange(9.0), indexing="ij")
    ramps = torch.stack([0.03 * x - 0.02 * y, 0.01 * y])[None].double()
    S = structure_tensor(ramps, 0)
    assert S.a.shape == (1, 1, 7, 8)
    torch.testing.assert_close(S.a, torch.full_like(S.a, 0.03**2))
    torch.testing.assert_close(S.b, torch.full_like(S.b, -0.03 * 0.02))
    torch.testing.assert_close(S.c, torch.full_like(S.c, 0.02**2 + 0.01**2))


@given(seeds, sizes)
def test_structure_tensor_follows_mirror_and_transposition(seed: int, size: tuple[int, int]) -> None:
    x = image(seed, *size)
    S = structure_tensor(x, 0.8)
    mirrored = structure_tensor(x.flip(-1), 0.8)
    for found, expected in zip(mirrored, (S.a.flip(-1), -S.b.flip(-1), S.c.flip(-1)), strict=True):
        torch.testing.assert_close(found, expected)
    transposed = structure_tensor(x.mT, 0.8)
    for found, expected in zip(transposed, (S.c.mT, S.b.mT, S.a.mT), strict=True):
        torch.testing.assert_close(found, expected)


@given(seeds)
def test_tensor_from_eigen_is_the_sum_of_outer_products(seed: int) -> None:
    g = generator(seed)
    mu1, mu2, vx, vy = torch.randn(4, 1, 1, 3, 3, dtype=torch.float64, generator=g)
    D = tensor_from_eigen(mu1, mu2, orientation_from_vector(vx, vy))
    n = torch.hypot(vx, vy)
    v1, v2 = torch.stack([vx, vy]) / n, torch.stack([-vy, vx]) / n
    expected = mu1 * v1[:, None] * v1[None] + mu2 * v2[:, None] * v2[None]
    for found, entry in zip(D, (expected[0, 0], expected[0, 1], expected[1, 1]), strict=True):
        torch.testing.assert_close(found, entry, rtol=1e-6, atol=1e-6)


@given(seeds, sizes)
def test_eigenvalues_and_orientation_rebuild_the_tensor(seed: int, size: tuple[int, int]) -> None:
    D, _ = random_process(seed, *size)
    mu1, mu2 = eigenvalues(D)
    assert (mu1 >= mu2).all()
    for found, expected in zip(tensor_from_eigen(mu1, mu2, orientation_of(D)), D, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_zero_vector_gives_a_finite_isotropic_tensor() -> None:
    zero = torch.zeros(1, 1, 2, 2, requires_grad=True)
    mu1, mu2 = torch.full((2, 1, 1, 2, 2), 0.5).unbind()
    D = tensor_from_eigen(mu1, mu2, orientation_from_vector(zero, zero))
    torch.autograd.backward(D.a.sum() + D.b.sum())
    assert torch.equal(D.a, D.c)
    assert zero.grad is not None
    assert torch.isfinite(zero.grad).all()


@given(seeds)
def test_a_floor_lets_the_anisotropy_fade_with_the_vector_and_bounds_the_gradient(seed: int) -> None:
    vx, vy = 10 ** torch.empty(2, 1, 1, 8, 8, dtype=torch.float64).uniform_(-6, 1, generator=generator(seed))
    vx.requires_grad_()
    mu1, mu2 = torch.full_like(vx, 0.2), torch.ones_like(vx)
    sharp, faded = (tensor_from_eigen(mu1, mu2, orientation_from_vector(vx, vy, floor)) for floor in (1e-12, 0.01))
    larger, smaller = eigenvalues(faded)
    assert (larger <= 1 + 1e-12).all()
    assert (smaller >= 0.2 - 1e-12).all()
    squared = vx * vx + vy * vy
    torch.testing.assert_close(larger - smaller, 0.8 * squared / (squared + 0.01))
    long = squared > 1
    for a, b in zip(sharp, faded, strict=True):
        torch.testing.assert_close(a[long], b[long], rtol=0, atol=0.01)
    (gradient,) = torch.autograd.grad(faded.a.sum(), vx)
    assert gradient.abs().max() < 0.8 / math.sqrt(0.01)


def test_edge_enhancing_tensor_diffuses_along_an_edge_and_not_across() -> None:
    step = torch.zeros(1, 3, 9, 10, dtype=torch.float64)
    step[..., 5:] = 1
    D = edge_enhancing_tensor(step, lam=1e-3, rho=0)
    assert (D.a[..., 4] < 1e-6).all()
    torch.testing.assert_close(D.c, torch.ones_like(D.c))
    flat = torch.ones(8, dtype=torch.bool)
    flat[4] = False
    torch.testing.assert_close(D.a[..., :8][..., flat], torch.ones(1, 1, 8, 7, dtype=torch.float64))


@given(seeds, sizes)
def test_edge_enhancing_tensor_has_eigenvalues_in_zero_one(seed: int, size: tuple[int, int]) -> None:
    mu1, mu2 = eigenvalues(edge_enhancing_tensor(image(seed, *size), 1e-2, 0.5))
    assert (mu1 <= 1 + 1e-9).all()
    assert (mu2 >= -1e-9).all()


def test_gradcheck_through_the_edge_enhancing_tensor() -> None:
    def entries(x: torch.Tensor) -> SymmetricTensor:
        return edge_enhancing_tensor(x, 0.3, 0.6)

    assert torch.autograd.gradcheck(entries, (image(5, 4, 5).requires_grad_(),))
