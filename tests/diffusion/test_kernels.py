"""The kernels for the CPU and for the GPU against those in plain PyTorch.

Without a CUDA device Triton's interpreter runs the GPU kernels on the CPU (conftest.py sets it).
"""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.diffusion import kernels
from flowinpaint.diffusion.kernels import MULTIGRID, kernels_for
from flowinpaint.diffusion.kernels import multigrid_reference as reference
from flowinpaint.diffusion.multigrid import Level, build_levels, pad
from helpers import generator, random_graph

SIZES = [(1, 1), (1, 9), (12, 1), (2, 2), (9, 14), (16, 7), (23, 20)]


def backend(name: str) -> tuple[ModuleType, torch.device]:
    """The kernels of that name and a device they run on, or skip."""
    device = torch.device("cuda" if name == "gpu" and torch.cuda.is_available() else "cpu")
    pytest.importorskip("triton" if name == "gpu" else "numba")
    module: ModuleType = __import__(f"flowinpaint.diffusion.kernels.multigrid_{name}", fromlist=["half_sweep"])
    return module, device


BACKENDS = pytest.mark.parametrize("name", ["cpu", "gpu"])


def on(device: torch.device, level: Level) -> Level:
    p = None if level.p is None else level.p.to(device)
    return Level(level.d.to(device), level.w.to(device), level.pivots.to(device), p)


def fields(level: Level, seed: int, count: int = 2) -> list[Tensor]:
    """Padded random fields of three channels."""
    H, W = level.size
    g = generator(seed)
    return [pad(torch.randn(2, 3, H, W, generator=g, dtype=torch.float64)).to(level.d.dtype) for _ in range(count)]


# Sizes do not matter to the type, and Triton's interpreter needs a second for each.
@BACKENDS
@pytest.mark.parametrize(("size", "dtype"), [*((size, torch.float64) for size in SIZES), (SIZES[-1], torch.float32)])
def test_hierarchies_agree(name: str, size: tuple[int, int], dtype: torch.dtype) -> None:
    kernels, device = backend(name)
    weights, known = random_graph(2, *size, seed=1)
    ours = build_levels(weights.to(device), known.to(device), kernels, dtype)
    expected = build_levels(weights, known, reference, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        for part in ("d", "w", "pivots", "p"):
            x, y = getattr(a, part), getattr(b, part)
            assert (x is None) == (y is None)
            if x is not None:
                assert x.dtype == dtype
                torch.testing.assert_close(x.cpu(), y, rtol=tolerance, atol=tolerance * float(y.abs().max()))


@BACKENDS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("parity", [0, 1])
def test_half_sweeps_agree(name: str, size: tuple[int, int], axis: int, parity: int) -> None:
    kernels, device = backend(name)
    level = build_levels(*random_graph(2, *size, seed=2), reference, torch.float64)[0]
    u, f = fields(level, 3)
    ours = u.to(device)
    kernels.half_sweep(on(device, level), ours, f.to(device), axis, parity)
    reference.half_sweep(level, u, f, axis, parity)
    torch.testing.assert_close(ours.cpu(), u, rtol=1e-9, atol=1e-9)


def test_a_line_longer_than_one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, device = backend("gpu")
    monkeypatch.setattr(kernels, "_LONGEST_SCAN", 32)
    for axis, size in enumerate([(3, 67), (140, 9)]):
        level = build_levels(*random_graph(2, *size, seed=4), reference, torch.float64)[0]
        u, f = fields(level, 5)
        ours = u.to(device)
        kernels.half_sweep(on(device, level), ours, f.to(device), axis, 0)
        reference.half_sweep(level, u, f, axis, 0)
        torch.testing.assert_close(ours.cpu(), u, rtol=1e-9, atol=1e-9)


@BACKENDS
@pytest.mark.parametrize("size", [size for size in SIZES if max(size) > 2])
def test_residual_restriction_and_prolongation_agree(name: str, size: tuple[int, int]) -> None:
    kernels, device = backend(name)
    fine, coarse = build_levels(*random_graph(2, *size, seed=6), reference, torch.float64)[:2]
    u, f = fields(fine, 7)
    (e,) = fields(coarse, 8, count=1)
    results = []
    for module, where in ((reference, torch.device("cpu")), (kernels, device)):
        level = on(where, fine)
        r, down, up = torch.zeros_like(u).to(where), torch.zeros_like(e).to(where), u.clone().to(where)
        module.residual(level, u.to(where), f.to(where), r)
        module.restrict(level, f.to(where), down)
        module.prolong_add(level, e.to(where), up)
        results.append([x.cpu() for x in (r, down, up)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [(9, 14), (16, 7), (1, 20)])
def test_restriction_is_the_transpose_of_prolongation(size: tuple[int, int]) -> None:
    fine, coarse = build_levels(*random_graph(2, *size, seed=9), reference, torch.float64)[:2]
    (r,), (e,) = fields(fine, 10, count=1), fields(coarse, 11, count=1)
    up, down = torch.zeros_like(r), torch.zeros_like(e)
    reference.prolong_add(fine, e, up)
    reference.restrict(fine, r, down)
    torch.testing.assert_close((up * r).sum(), (e * down).sum(), rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1), st.integers(0, 1), st.integers(0, 2**16))
def test_a_half_sweep_leaves_no_residual_on_its_lines(H: int, W: int, axis: int, parity: int, seed: int) -> None:
    level = build_levels(*random_graph(2, H, W, seed=seed), reference, torch.float64)[0]
    u, f = fields(level, seed)
    reference.half_sweep(level, u, f, axis, parity)
    r = torch.zeros_like(u)
    reference.residual(level, u, f, r)
    lines = r[..., 1 + parity : -1 : 2, :] if axis == 0 else r[..., 1 + parity : -1 : 2]
    if lines.numel():
        assert lines.abs().max() <= 1e-9 * (1 + u.abs().max() * level.d.max())


def test_the_cpu_takes_its_own_kernels_where_numba_is_there() -> None:
    ours, _ = backend("cpu")
    assert kernels_for(MULTIGRID, torch.device("cpu")) is ours


def test_freshly_compiled_loops_round_as_those_from_the_cache(tmp_path: Path) -> None:
    backend("cpu")
    script = """
import hashlib, torch
from flowinpaint.diffusion.steady import solve_steady
from helpers import generator, random_graph
weights, known = random_graph(1, 24, 20)
f = torch.randn(1, 2, 24, 20, generator=generator(1))
solution = solve_steady(f, known.float(), weights.float())
print(solution.residual, hashlib.sha256(solution.u.numpy().tobytes()).hexdigest())
"""
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    command = [sys.executable, "-W", "ignore", "-c", script]
    runs = [subprocess.run(command, env=environment, capture_output=True, timeout=300, check=True) for _ in range(2)]
    assert list(tmp_path.rglob("*.nbc"))  # so the second could load what the first has compiled
    assert runs[0].stdout == runs[1].stdout


def test_without_numba_the_plain_kernels_serve_and_the_extra_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "numba",
        "flowinpaint.diffusion.kernels.multigrid_cpu",
        "flowinpaint.diffusion.kernels.multigrid_numba",
    ):
        monkeypatch.setitem(sys.modules, name, None)
    kernels._warn_of_plain_kernels.cache_clear()
    with pytest.warns(UserWarning, match=r"numba is not installed.*pip install numba"):
        assert kernels_for(MULTIGRID, torch.device("cpu")) is reference
    assert kernels_for(MULTIGRID, torch.device("cpu")) is reference
