"""The FSI cycle in Triton against plain PyTorch.

Without a CUDA device Triton's interpreter runs the GPU's kernels on the CPU (conftest.py sets it).
"""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import fsi_reference
from flowinpaint.diffusion.pyramid import refine
from flowinpaint.diffusion.stencil import divergence
from helpers import generator

fsi_gpu = pytest.importorskip("flowinpaint.diffusion.kernels.fsi_gpu", reason="no Triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Shape = tuple[int, int, int, int]


def diffuse(kernels: ModuleType, u: Tensor, known: Tensor, weights: Tensor | None, steps: int) -> Tensor:
    filled: Tensor = kernels.diffuse(u, DataTerm(u, known), weights, 0.25, steps)
    return filled


def problem(
    B: int, C: int, H: int, W: int, dtype: torch.dtype = torch.float64, density: float = 0.1, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """u, known and weights of both signs, also on edges that leave the image, which must not count."""
    g = generator(seed)
    u = 5 * torch.randn(B, C, H, W, generator=g, dtype=torch.float64)
    known = torch.rand(B, 1, H, W, generator=g) < density
    weights = torch.rand(B, 4, H, W, generator=g, dtype=torch.float64) * 0.14 - 0.02
    return u.to(DEVICE, dtype), known.to(DEVICE), weights.to(DEVICE, dtype)


def assert_equals_the_reference(u: Tensor, known: Tensor, weights: Tensor | None, steps: int, tolerance: float) -> None:
    ours = diffuse(fsi_gpu, u, known, weights, steps)
    reference = diffuse(fsi_reference, u.double(), known, weights, steps)
    assert ours.dtype == u.dtype
    assert torch.equal(ours[known.expand_as(u)], u[known.expand_as(u)])
    torch.testing.assert_close(ours.double(), reference, rtol=tolerance, atol=tolerance * float(reference.abs().max()))


@pytest.fixture(
    params=[
        ((1, 1, 1, 1), 3, (2, 4, 2)),
        ((2, 3, 3, 5), 4, (2, 4, 2)),
        ((1, 1, 7, 3), 3, (1, 4, 1)),
        ((1, 1, 6, 30), 2, (2, 4, 1)),  # just fits the tile
        ((1, 1, 6, 31), 2, (2, 4, 1)),
        ((1, 1, 7, 30), 2, (2, 4, 1)),
        ((1, 2, 2, 40), 5, (3, 4, 2)),
        ((1, 2, 10, 33), 5, (2, 4, 2)),
        ((1, 1, 20, 34), 3, (4, 4, 3)),
    ],
    ids=str,
)
def shape_and_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Shape, int]:
    """The shape of a field and a number of steps, with tiles of that many rows, warps and steps to a launch."""
    shape, steps, tile = request.param
    monkeypatch.setattr(fsi_gpu, "_inference_tile", lambda *_: fsi_gpu._Tile(*tile, 128))
    return shape, steps


@pytest.mark.parametrize("isotropic", [False, True])
def test_any_shape_and_tile(shape_and_steps: tuple[Shape, int], isotropic: bool) -> None:
    shape, steps = shape_and_steps
    u, known, weights = problem(*shape)
    assert_equals_the_reference(u, known, None if isotropic else weights, steps, 1e-11)


@pytest.mark.parametrize("isotropic", [False, True])
def test_from_the_next_coarser_field(shape_and_steps: tuple[Shape, int], isotropic: bool) -> None:
    (B, C, H, W), steps = shape_and_steps
    f, known, weights = problem(B, C, H, W, density=0.3)
    coarse = problem(B, C, -(-H // 2), -(-W // 2), seed=1)[0]
    given = f.masked_fill(~known, torch.nan)
    w = None if isotropic else weights
    ours = fsi_gpu.diffuse(coarse, DataTerm(given, known), w, 0.25, steps)
    start = refine(coarse, DataTerm(f, known))
    expected = diffuse(fsi_reference, start, known, w, steps)
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("from_f", [False, True])
def test_the_last_two_iterates(shape_and_steps: tuple[Shape, int], from_f: bool) -> None:
    shape, steps = shape_and_steps
    u, known, weights = problem(*shape)
    data = DataTerm(problem(*shape, seed=2)[0], known)
    previous = u if from_f else problem(*shape, seed=1)[0].where(~known, u)
    some = range(0 if from_f else 2, 2 + steps)
    ours = fsi_gpu.advance(previous, u, data, weights, some)
    expected = fsi_reference.advance(previous, u, data, weights, some)
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-10)


def test_single_precision_with_weights_in_half_precision() -> None:
    u, known, weights = problem(1, 2, 8, 6, torch.float32)
    assert_equals_the_reference(u, known, weights, 5, 1e-5)
    assert_equals_the_reference(u, known, weights.half(), 5, 1e-5)


def test_the_isotropic_operator_is_a_quarter_on_every_edge() -> None:
    u, known, weights = problem(1, 1, 4, 5, density=0.0)
    weights.zero_()[:, :2] = 0.25
    ours = diffuse(fsi_gpu, u, known, None, 1)
    torch.testing.assert_close(ours, u + divergence(weights, u) * fsi_reference.extrapolation_weight(0))


def test_the_field_is_not_written_to() -> None:
    u, known, weights = problem(1, 1, 5, 4)
    before = u.clone()
    diffuse(fsi_gpu, u, known, weights, 2)
    assert torch.equal(u, before)


SIZES = [(1, 2, 384, 384, 45), (2, 3, 65, 130, 11), (1, 2, 1, 700, 6), (1, 1, 970, 1, 7), (16, 2, 48, 48, 5)]


@pytest.mark.gpu
@pytest.mark.parametrize(("B", "C", "H", "W", "steps"), SIZES)
@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "isotropic"])
def test_on_the_device(B: int, C: int, H: int, W: int, steps: int, kind: str) -> None:
    u, known, weights = problem(B, C, H, W, torch.float64 if kind == "float64" else torch.float32)
    chosen = {"isotropic": None, "float16": weights.half()}.get(kind, weights)
    assert_equals_the_reference(u, known, chosen, steps, 1e-11 if kind == "float64" else 2e-5)


@pytest.mark.gpu
def test_the_same_bits_every_time_and_from_a_graph() -> None:
    u, known, weights = problem(4, 2, 384, 384, torch.float32)
    expected = diffuse(fsi_gpu, u, known, weights, 45)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ours = diffuse(fsi_gpu, u, known, weights, 45)
    for _ in range(50):
        ours.fill_(torch.nan)
        graph.replay()
        assert torch.equal(ours, expected)


@pytest.mark.gpu
def test_sizes_and_steps_compile_nothing_anew() -> None:
    from flowinpaint.diffusion.kernels import fsi_triton

    def run(H: int, W: int, steps: int) -> int:
        u, known, weights = problem(1, 2, H, W, torch.float32)
        diffuse(fsi_gpu, u, known, weights, steps)
        return sum(len(cache[0]) for cache in fsi_triton.take_steps.device_caches.values())

    before = run(384, 384, 45)
    assert [run(*size) for size in ((385, 383, 44), (176, 512, 16), (1000, 130, 33))] == [before] * 3
