"""The pyramid's Triton kernels against `pyramid` in plain PyTorch.

Without a CUDA device Triton's interpreter runs them on the CPU (conftest.py sets it).
"""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.data_term import DataTerm, pool
from helpers import generator

SIZES = [(1, 1), (1, 9), (13, 1), (2, 2), (33, 31), (64, 7)]
DENSITIES = [0.0, 0.1, 1.0]


@pytest.fixture
def kernels() -> ModuleType:
    pytest.importorskip("triton")
    from flowinpaint.diffusion.kernels import pyramid_gpu

    return pyramid_gpu


def sparse_field(
    size: tuple[int, int], density: float, batch: int = 2, channels: int = 2, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Random values where known, NaN elsewhere, and the mask (B, 1, H, W) bool; each image has its own."""
    g = generator(size[0] * 100 + size[1])
    known = torch.rand(batch, 1, *size, generator=g) < density
    f = torch.randn(batch, channels, *size, generator=g, dtype=torch.float64).to(dtype)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.where(known, f, torch.nan).to(device), known.to(device)


def without_nan(f: Tensor, known: Tensor) -> DataTerm:
    return DataTerm(torch.where(known, f, 0), known)


@pytest.mark.parametrize("size", [*SIZES, (70, 40)])
@pytest.mark.parametrize("density", DENSITIES)
def test_push_is_the_plain_pyramid(kernels: ModuleType, size: tuple[int, int], density: float) -> None:
    f, known = sparse_field(size, density)
    levels = kernels.push(DataTerm(f, known), 8)
    assert len(levels) == 8
    expected = without_nan(f, known)
    for level in levels[1:]:
        expected = pool(expected)
        torch.testing.assert_close(level.f, expected.f)
        assert torch.equal(level.known, expected.known)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_push_and_pull_take_any_channels_and_type(kernels: ModuleType, channels: int, dtype: torch.dtype) -> None:
    f, known = sparse_field((11, 6), 0.1, channels=channels, dtype=dtype)
    (_, coarse), filled = kernels.push(DataTerm(f, known), 2), kernels.pull(DataTerm(f, known))
    expected = pool(without_nan(f, known))
    torch.testing.assert_close(coarse.f, expected.f)
    assert torch.equal(coarse.known, expected.known)
    torch.testing.assert_close(filled, pyramid.pull(without_nan(f, known)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("density", DENSITIES)
def test_pull_is_the_plain_one_and_keeps_what_is_known(
    kernels: ModuleType, size: tuple[int, int], density: float
) -> None:
    f, known = sparse_field(size, density)
    u = kernels.pull(DataTerm(f, known))
    torch.testing.assert_close(u, pyramid.pull(without_nan(f, known)))
    everywhere = known.expand_as(f)
    assert torch.equal(u[everywhere], f[everywhere])


def test_pull_reaches_everywhere_from_a_single_pixel(kernels: ModuleType) -> None:
    f, known = sparse_field((50, 64), 0.0, batch=1, channels=1)
    known[..., 49, 3], f[..., 49, 3] = True, 2.5
    torch.testing.assert_close(kernels.pull(DataTerm(f, known)), torch.full_like(f, 2.5))


def test_pull_of_a_level_larger_than_one_program_fills(kernels: ModuleType) -> None:
    f, known = sparse_field((40, 130), 0.02, batch=1)
    torch.testing.assert_close(kernels.pull(DataTerm(f, known)), pyramid.pull(without_nan(f, known)))


@pytest.mark.parametrize("size", [*SIZES, (9, 70)])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_refine_is_the_plain_one(kernels: ModuleType, size: tuple[int, int], channels: int) -> None:
    f, known = sparse_field(size, 0.3, channels=channels)
    coarse, _ = sparse_field(((size[0] + 1) // 2, (size[1] + 1) // 2), 1.0, channels=channels)
    torch.testing.assert_close(
        kernels.refine(coarse, DataTerm(f, known)), pyramid.refine(coarse, without_nan(f, known)), rtol=1e-5, atol=1e-6
    )


def test_tensors_in_another_memory_format(kernels: ModuleType) -> None:
    f, known = sparse_field((12, 10), 0.2)
    u = kernels.pull(DataTerm(f.contiguous(memory_format=torch.channels_last), known))
    assert torch.equal(u, kernels.pull(DataTerm(f, known)))


@pytest.mark.gpu
def test_sizes_of_frames(kernels: ModuleType) -> None:
    for size in [(384, 384), (436, 1024), (1081, 1919)]:
        f, known = sparse_field(size, 0.02)
        coarsest = kernels.push(DataTerm(f, known), 6)[-1]
        u, expected = kernels.pull(coarsest), without_nan(f, known)
        for _ in range(5):
            expected = pool(expected)
        torch.testing.assert_close(u, pyramid.pull(expected), rtol=1e-4, atol=1e-5)
