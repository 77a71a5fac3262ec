"""CUDA graphs of the CUDA backend: replays give the same result, follow the weights, and are bounded in number."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.backends.select import PackedEngine
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import FLOW_AWARE, generator, moderate

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux only")
from flowinpaint.neuroexplicit.backends import cuda, recorded

pytestmark = pytest.mark.gpu


def model(**config: Any) -> Neuroexplicit:
    return moderate(Neuroexplicit(NeuroexplicitConfig(**{"width": 16, **FLOW_AWARE, **config})), 1).cuda().eval()


def inputs(H: int, W: int, seed: int = 0, B: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(seed)
    image, flow = torch.rand(B, 3, H, W, generator=g), 8 * torch.randn(B, 2, H, W, generator=g)
    return image.cuda(), flow.cuda(), (torch.rand(B, 1, H, W, generator=g) < 0.1).cuda()


def recorder(net: Neuroexplicit) -> recorded.RecordedBackend:
    return recorded.RecordedBackend(cuda.CudaBackend(net))


def run(engine: PackedEngine, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
    return engine(image, data_term(flow, mask))


@pytest.mark.parametrize("config", [FLOW_AWARE, {"flow_aware": False, "start": "zero", "time_step": "bound"}])
def test_replays_give_what_launches_give(config: dict[str, Any]) -> None:
    engine = recorder(model(**config))
    given = [inputs(60, 100, seed, B=2) for seed in range(4)]
    with torch.inference_mode():
        launched = [run(engine._backend, *x) for x in given]
        results = [run(engine, *x) for x in given]
        assert len(engine._records) == 1
        for a, b in zip(results, launched, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_replays_follow_the_weights() -> None:
    net, given = model(), inputs(60, 100)
    with torch.no_grad():
        before = [net(*given) for _ in range(3)][-1]
        for parameter in net.parameters():
            parameter.mul_(1.5)
        after = net(*given)
        net.backend = "torch"
        expected = net(*given)
    assert (after - before).abs().mean() > 0.03
    assert (after - expected).abs().mean() < 0.01


def test_a_copy_and_a_moved_model_have_engines_of_their_own() -> None:
    net, given = model(), inputs(60, 100)
    with torch.no_grad():
        first = [net(*given) for _ in range(3)][-1]
        twin = copy.deepcopy(net)
        for parameter in twin.parameters():
            parameter.zero_()
        assert not torch.allclose(twin(*given), first)
        torch.testing.assert_close(net(*given), first)
        net.cpu().cuda()
        torch.testing.assert_close(net(*given), first)


def test_records_are_few_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MOST_GRAPHS", 2)
    engine = recorder(model())
    with torch.inference_mode():
        for width in (40, 50, 60, 40, 50, 40, 60):
            run(engine, *inputs(40, width))
        assert [key[-1] for key in engine._records] == [40, 60]
        expected = run(engine._backend, *inputs(40, 50))
        torch.testing.assert_close(run(engine, *inputs(40, 50)), expected, rtol=0, atol=1e-5)


def test_large_batches_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MOST_RECORDED_PIXELS", 40 * 40)
    engine = recorder(model())
    with torch.inference_mode():
        for _ in range(3):
            run(engine, *inputs(40, 41))
    assert not engine._records


def test_streams_take_their_turns() -> None:
    net = model()
    given = [inputs(200, 300, seed) for seed in range(8)]
    with torch.inference_mode():
        net(*given[0])  # launch by launch, which rounds otherwise than what is recorded
        expected = [net(*x) for x in given]
        streams = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        results = []
        for i, x in enumerate(given):
            with torch.cuda.stream(streams[i % 2]):
                results.append(net(*x))
        torch.cuda.synchronize()
    for a, b in zip(results, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
