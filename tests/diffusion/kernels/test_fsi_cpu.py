"""The FSI cycle for the CPU against plain PyTorch."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.kernels import cpu_strips
from helpers import generator, random_graph

fsi_cpu = pytest.importorskip("flowinpaint.diffusion.kernels.fsi_cpu", reason="no numba")
SIZES = [(1, 1), (1, 9), (12, 1), (2, 2), (9, 17), (33, 40), (64, 35)]


def diffuse(u: Tensor, known: Tensor, weights: Tensor | None, steps: int, held: Tensor | None = None) -> Tensor:
    filled: Tensor = fsi_cpu.diffuse(u, DataTerm(u if held is None else held, known), weights, 0.25, steps)
    return filled


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """So many threads, to which the smallest field is dealt out."""
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_strips, "SMALLEST_SHARE", 1)
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def problem(H: int, W: int, B: int = 2, C: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A field, known pixels, and stable weights with the time step in them."""
    weights, known = random_graph(B, H, W, seed=seed)
    u = torch.randn(B, C, H, W, generator=generator(seed)) * 10
    return u, known, (weights / (8 * weights.max())).float()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("steps", [1, 2, 19])
def test_agrees_with_the_reference(threads: int, size: tuple[int, int], steps: int) -> None:
    u, known, weights = problem(*size)
    expected = inpainting_cycle(u, DataTerm(u, known), weights, steps)
    ours = diffuse(u, known, weights, steps)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", SIZES)
def test_without_weights_every_edge_weighs_a_quarter(threads: int, size: tuple[int, int]) -> None:
    u, known, _ = problem(*size)
    weights = torch.zeros(len(u), 4, *size)
    weights[:, 0, :, :-1] = weights[:, 1, :-1] = 0.25
    expected = inpainting_cycle(u, DataTerm(u, known), weights, 11)
    ours = diffuse(u, known, None, 11)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("batch", [1, 3])
def test_any_number_of_channels_and_images(channels: int, batch: int) -> None:
    u, known, weights = problem(21, 34, batch, channels)
    expected = inpainting_cycle(u, DataTerm(u, known), weights, 9)
    torch.testing.assert_close(diffuse(u, known, weights, 9), expected, rtol=1e-5, atol=1e-4)


def test_given_vectors_enter_after_the_first_step(threads: int) -> None:
    u, known, weights = problem(30, 23)
    held = torch.where(known, torch.randn(u.shape, generator=generator(5)), torch.nan)
    expected = inpainting_cycle(u, DataTerm(torch.where(known, held, 0), known), weights, 10)
    ours = diffuse(u, known, weights, 10, held)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)
    assert torch.equal(ours[known.expand_as(u)], held[known.expand_as(u)])


def test_known_vectors_stay_to_the_bit(threads: int) -> None:
    u, known, weights = problem(40, 31)
    for w in (weights, None):
        ours = diffuse(u, known, w, 13)
        assert torch.equal(ours[known.expand_as(u)], u[known.expand_as(u)])
        assert not torch.equal(ours, u)


def test_a_narrow_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    u, known, weights = problem(50, 20)
    expected = diffuse(u, known, weights, 17)
    for wave in (1, 3, 100):
        monkeypatch.setattr(fsi_cpu, "_LONGEST_WAVE", wave)
        torch.testing.assert_close(diffuse(u, known, weights, 17), expected, rtol=1e-6, atol=1e-6)


def test_nan_in_an_unknown_pixel_shows(threads: int) -> None:
    u, known, weights = problem(30, 23, B=1)
    known[:], u[0, 0, 20, 11] = False, torch.nan
    ours = diffuse(u, known, weights, 4)
    assert ours[0, 0, 20, 11].isnan()
    assert ours[0, 1].isfinite().all()


def test_inputs_need_not_be_contiguous() -> None:
    u, known, weights = problem(18, 26)
    expected = inpainting_cycle(u, DataTerm(u, known), weights, 5)
    turned = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (u, known, weights)]
    ours = diffuse(turned[0], turned[1], turned[2], 5)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)
