"""The pyramid for the CPU against plain PyTorch."""

import pytest
import torch

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.data_term import DataTerm, pool
from flowinpaint.diffusion.kernels import cpu_strips
from helpers import generator

pyramid_cpu = pytest.importorskip("flowinpaint.diffusion.kernels.pyramid_cpu", reason="no numba")
SIZES = [(1, 1), (1, 7), (6, 1), (2, 2), (9, 17), (32, 21)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("density", [0.1, 0.6])
def test_push_and_pull_agree_with_the_reference(size: tuple[int, int], channels: int, density: float) -> None:
    g = generator(channels)
    known = torch.rand(2, 1, *size, generator=g) < density
    f = torch.where(known, torch.randn(2, channels, *size, generator=g), torch.nan)
    expected = DataTerm(torch.where(known, f, 0), known)
    levels = pyramid_cpu.push(DataTerm(f, known), 4)
    assert levels[0].f is f
    for level in levels[1:]:
        expected = pool(expected)
        torch.testing.assert_close(level.f, expected.f, rtol=1e-6, atol=1e-6)
        assert torch.equal(level.known, expected.known)
    torch.testing.assert_close(
        pyramid_cpu.pull(DataTerm(f, known)), pyramid.pull(DataTerm(f, known)), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("size", SIZES)
def test_refine_agrees_with_the_reference(size: tuple[int, int]) -> None:
    g = generator(1)
    u = torch.randn(2, 2, *(-(-side // 2) for side in size), generator=g)
    known = torch.rand(2, 1, *size, generator=g) < 0.3
    f = torch.where(known, torch.randn(2, 2, *size, generator=g), torch.nan)
    torch.testing.assert_close(
        pyramid_cpu.refine(u, DataTerm(f, known)), pyramid.refine(u, DataTerm(f, known)), rtol=1e-6, atol=1e-6
    )


def test_where_nothing_is_known_there_is_zero() -> None:
    f = torch.full((1, 2, 5, 9), torch.nan)
    assert torch.equal(pyramid_cpu.pull(DataTerm(f, torch.zeros(1, 1, 5, 9, dtype=torch.bool))), torch.zeros_like(f))


def test_rows_dealt_out_to_threads_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    g = generator(2)
    known = torch.rand(1, 1, 45, 38, generator=g) < 0.2
    f = torch.randn(1, 2, 45, 38, generator=g)
    alone = pyramid_cpu.pull(DataTerm(f, known))
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_strips, "SMALLEST_SHARE", 1)
    torch.set_num_threads(3)
    try:
        assert torch.equal(pyramid_cpu.pull(DataTerm(f, known)), alone)
    finally:
        torch.set_num_threads(before)
