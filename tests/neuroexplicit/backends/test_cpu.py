"""The CPU backend against PyTorch's."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.backends import cpu
from flowinpaint.neuroexplicit.backends.cpu import CpuBackend
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import FLOW_AWARE, generator, moderate, sintel


def model_of(width: int = 8, **fields: Any) -> Neuroexplicit:
    model = moderate(Neuroexplicit(NeuroexplicitConfig(width=width, **fields)), 2).eval()
    with torch.no_grad():
        model.lam.copy_(torch.tensor([0.5, 1.0, 1.5, 0.8]))
    model.backend = "torch"
    return model


def inputs_of(H: int, W: int, B: int = 1, C: int = 2, density: float = 0.1) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(7)
    image, mask = torch.rand(B, 3, H, W, generator=g), (torch.rand(B, 1, H, W, generator=g) < density).float()
    return image, torch.randn(B, C, H, W, generator=g).cumsum(-1) + 3, mask


def engine_of(model: Neuroexplicit) -> Callable[[Tensor, Tensor, Tensor], Filled]:
    backend = CpuBackend(model)
    return lambda image, flow, mask: backend(image, data_term(flow, mask))


@torch.no_grad()
def compare(model: Neuroexplicit, inputs: tuple[Tensor, Tensor, Tensor], tolerance: float = 1e-4) -> None:
    engine = engine_of(model)
    (ours, error), (expected, expected_error) = engine(*inputs), model.fill(*inputs)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance * float(expected.abs().max()))
    assert (error is None) == (not model.config.confidence)
    if error is not None:
        torch.testing.assert_close(error, expected_error, rtol=0, atol=tolerance)
    _, flow, mask = inputs
    known = (mask > 0).expand_as(flow)
    assert torch.equal(ours[known], flow[known])


@pytest.fixture
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "fastest_dtype", lambda: torch.float32)


@pytest.mark.usefixtures("full_precision")
class TestAgreement:
    @pytest.mark.parametrize("size", [(1, 1), (5, 40), (33, 70), (130, 94), (40, 300)])
    @pytest.mark.parametrize(
        "fields", [FLOW_AWARE, {}, {**FLOW_AWARE, "start": "zero"}, {**FLOW_AWARE, "flow_aware": False}]
    )
    def test_at_any_size(self, size: tuple[int, int], fields: dict[str, Any]) -> None:
        compare(model_of(**fields), inputs_of(*size))

    @pytest.mark.parametrize("channels", [1, 2, 4])
    def test_with_any_number_of_channels(self, channels: int) -> None:
        compare(model_of(**FLOW_AWARE), inputs_of(40, 52, B=2, C=channels))

    @pytest.mark.parametrize(
        "change",
        [
            {"learn_eigenvalues": False},
            {"learn_eigenvectors": False},
            {"learn_alpha": False},
            {"learn_beta": True, "steps": (2, 2, 2, 2)},  # not stable, so not for long
        ],
    )
    @pytest.mark.parametrize("fields", [{}, FLOW_AWARE])
    def test_for_every_ablation(self, change: dict[str, Any], fields: dict[str, Any]) -> None:
        compare(model_of(**(fields | change)), inputs_of(70, 61))

    @pytest.mark.parametrize("density", [0.0, 3e-4, 1.0])
    def test_with_few_vectors_or_all(self, density: float) -> None:
        compare(model_of(**FLOW_AWARE), inputs_of(70, 300, density=density))

    def test_in_tiles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cpu, "TILE", 48)
        compare(model_of(**FLOW_AWARE), inputs_of(150, 170))

    @pytest.mark.filterwarnings("ignore:numba is not installed")
    def test_without_numba(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("fsi_cpu", "pyramid_cpu"):
            monkeypatch.setitem(sys.modules, f"flowinpaint.diffusion.kernels.{module}", None)
        monkeypatch.setitem(sys.modules, "flowinpaint.neuroexplicit.kernels.edge_weights_cpu", None)
        for fields in (FLOW_AWARE, {}):
            compare(model_of(**fields), inputs_of(50, 60))

    def test_unknown_vectors_may_be_nan(self) -> None:
        image, flow, mask = inputs_of(50, 60)
        engine = engine_of(model_of(**FLOW_AWARE))
        holes = torch.where(mask > 0, flow, torch.nan)
        torch.testing.assert_close(engine(image, holes, mask), engine(image, flow, mask), rtol=0, atol=0)

    def test_a_batch_is_its_images(self) -> None:
        engine, inputs = engine_of(model_of(**FLOW_AWARE)), inputs_of(40, 66, B=3)
        field, error = engine(*inputs)
        assert error is not None
        for b in range(3):
            alone = engine(*(x[b : b + 1] for x in inputs))
            torch.testing.assert_close(Filled(field[b : b + 1], error[b : b + 1]), alone)


@torch.no_grad()
def test_a_model_takes_this_way_and_follows_its_weights() -> None:
    model, inputs = model_of(**FLOW_AWARE), inputs_of(48, 64)
    model.backend = "auto"
    before = model(*inputs)
    assert torch.equal(before, engine_of(model)(*inputs).field)
    for weight in (model.dtm.cnv0.weight, model.dtm.dt1.weight, model.lam):
        weight.add_(0.5)
        changed = model(*inputs)
        assert not torch.equal(changed, before)
        assert torch.equal(changed, engine_of(model)(*inputs).field)
        before = changed


def test_inputs_stay_as_they_are() -> None:
    inputs = inputs_of(48, 64)
    copies = [x.clone() for x in inputs]
    for fields in (FLOW_AWARE, {}):
        engine_of(model_of(**fields))(*inputs)
        assert all(torch.equal(a, b) for a, b in zip(inputs, copies, strict=True))


@torch.no_grad()
def test_inputs_that_want_a_gradient_are_taken_where_none_is_computed() -> None:
    image, flow, mask = inputs_of(48, 64)
    engine = engine_of(model_of(**FLOW_AWARE))
    expected = engine(image, flow, mask).field
    assert torch.equal(engine(image.requires_grad_(), flow.requires_grad_(), mask).field, expected)


def test_several_threads_may_call_at_once() -> None:
    engine, inputs = engine_of(model_of(**FLOW_AWARE)), [inputs_of(48 + 16 * k, 64) for k in range(4)]
    expected = [engine(*x).field for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for ours, alone in zip(pool.map(lambda x: engine(*x).field, inputs), expected, strict=True):
            assert torch.equal(ours, alone)


@torch.no_grad()
def test_a_real_frame_in_half_precision_is_within_a_hundredth_of_a_pixel() -> None:
    image, flow, mask = sintel("ambush_4_f0004", "05")
    model = model_of(width=16, **FLOW_AWARE)
    inputs = (
        torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255,
        torch.from_numpy(flow).permute(2, 0, 1)[None],
        torch.from_numpy(mask)[None, None],
    )
    ours, expected = engine_of(model)(*inputs).field, model(*inputs)
    assert (ours - expected).norm(dim=1).mean() < 0.01


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no such file on this system")
def test_memory_is_bounded_by_the_tile() -> None:
    script = """
import re, sys, torch
from pathlib import Path
from flowinpaint.diffusion.data_term import data_term
from flowinpaint.neuroexplicit.backends import cpu
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
def peak():  # in bytes; getrusage would begin with what the parent had
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
torch.set_num_threads(1)
cpu.TILE = int(sys.argv[1])
fields = dict(decoder_kernel=2, flow_aware=True, start="pull", time_step="quarter", steps=(1, 1, 1, 1))
engine = cpu.CpuBackend(Neuroexplicit(NeuroexplicitConfig(width=24, **fields)))
engine(torch.rand(1, 3, 64, 64), data_term(torch.rand(1, 2, 64, 64), torch.ones(1, 1, 64, 64)))
start = peak()
H, W = 800, 1000
engine(torch.rand(1, 3, H, W), data_term(torch.rand(1, 2, H, W), torch.rand(1, 1, H, W) < 0.1))
print((peak() - start) // (H * W))
"""
    whole, tiled = (
        int(subprocess.run([sys.executable, "-c", script, tile], check=True, capture_output=True).stdout)
        for tile in ("2000", "192")
    )
    # Some thirty numbers of four bytes a pixel, whatever the width of the network.
    assert tiled < 200
    assert whole > tiled + 50
