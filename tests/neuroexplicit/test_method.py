"""`method.fill`: the pure reference as the oracle of the other backends, data weights, warm starts, and tracing."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.errors import InputError
from flowinpaint.neuroexplicit.backends import cpu
from flowinpaint.neuroexplicit.backends.cpu import CpuBackend
from flowinpaint.neuroexplicit.backends.pytorch import TorchBackend
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig, levels_of
from flowinpaint.neuroexplicit.method import Reference, fill
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import FLOW_AWARE, generator, moderate

CONFIGS: dict[str, dict[str, Any]] = {
    "flow-aware": FLOW_AWARE,
    "paper": {},
    "flow-aware from zero": {**FLOW_AWARE, "start": "zero"},
    "-mu": {**FLOW_AWARE, "learn_eigenvalues": False},
}
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def model(dtype: torch.dtype = torch.float64, **config: Any) -> Neuroexplicit:
    fields = {"width": 4, "steps": (2, 3, 3, 5), **config}
    return moderate(Neuroexplicit(NeuroexplicitConfig(**fields)), 2).to(dtype).eval()


def inputs(H: int = 40, W: int = 70, B: int = 2, dtype: torch.dtype = torch.float64, density: float = 0.2) -> Inputs:
    """Image, flow, mask, weights over four decades with some infinite ones, and a start."""
    g = generator(1)
    image = torch.rand(B, 3, H, W, generator=g, dtype=torch.float64)
    flow, start = (8 * torch.randn(B, 2, H, W, generator=g, dtype=torch.float64) for _ in range(2))
    mask = torch.rand(B, 1, H, W, generator=g) < density
    weight = 10 ** (4 * torch.rand(B, 1, H, W, generator=g, dtype=torch.float64) - 2)
    weight = torch.where(torch.rand(B, 1, H, W, generator=g) < 0.2, torch.inf, weight)
    return image.to(dtype), flow.to(dtype), mask, weight.to(dtype), start.to(dtype)


def reference(
    net: Neuroexplicit, image: Tensor, flow: Tensor, mask: Tensor, weight: Tensor | None, start: Tensor | None
) -> Tensor:
    levels = levels_of(flow.shape[-2], flow.shape[-1], net.config)
    backend = Reference(net.dtm, net.lam, net.config)
    return fill(image, data_term(flow, mask, weight), levels, net.config, backend, start).field


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("warm", [False, True])
def test_backends_agree_with_the_reference(
    name: str, weighted: bool, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "fastest_dtype", lambda: torch.float32)
    for backend, dtype, tolerance in ((TorchBackend, torch.float64, 1e-9), (CpuBackend, torch.float32, 2e-4)):
        net = model(dtype, **CONFIGS[name])
        image, flow, mask, weight, start = inputs(dtype=dtype)
        k, u0 = weight if weighted else None, start if warm else None
        with torch.no_grad():
            ours = backend(net)(image, data_term(flow, mask, k), u0).field
            expected = reference(net, image, flow, mask, k, u0)
        torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance * float(expected.abs().max()))


def test_gradients_are_those_of_the_reference() -> None:
    net = model(**FLOW_AWARE)
    image, flow, mask, weight, start = inputs(20, 33, 1)
    weight = torch.where(torch.isinf(weight), 3.0, weight)
    leaves = [x.requires_grad_() for x in (image, flow, weight, start)] + list(net.parameters())
    ours = torch.autograd.grad(net(image, flow, mask, weight, start).square().sum(), leaves)
    expected = torch.autograd.grad(reference(net, image, flow, mask, weight, start).square().sum(), leaves)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8 * float(b.abs().max()))


def test_gradcheck_of_the_weights() -> None:
    net = model(width=1, steps=(1, 1, 2, 2))
    image, flow, mask, weight, _ = inputs(9, 10, 1)
    weight = torch.where(torch.isinf(weight), 3.0, weight).clamp(min=0.1)
    assert torch.autograd.gradcheck(
        lambda f, k: net(image, f, mask, k), (flow.requires_grad_(), weight.requires_grad_()), nondet_tol=1e-9
    )


@pytest.mark.parametrize("name", ["flow-aware", "paper"])
def test_equal_growing_weights_converge_to_exact_vectors(name: str) -> None:
    net = model(**CONFIGS[name])
    image, flow, mask, _, _ = inputs()
    with torch.no_grad():
        hard = net(image, flow, mask)
        errors = [
            float((net(image, flow, mask, torch.full_like(flow[:, :1], weight)) - hard).abs().mean())
            for weight in (1e1, 1e3, 1e6)
        ]
        infinite = net(image, flow, mask, torch.full_like(flow[:, :1], torch.inf))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4
    torch.testing.assert_close(infinite, hard, rtol=0, atol=1e-10)


def test_a_vector_of_vanishing_weight_has_no_influence() -> None:
    net = model(**FLOW_AWARE)
    image, flow, mask, weight, _ = inputs(density=0.05)
    wrong = torch.zeros_like(mask)
    wrong[..., 20, 30] = True
    with torch.no_grad():
        without = net(image, flow, mask & ~wrong, weight)
        faint = net(image, torch.where(wrong, 500.0, flow), mask | wrong, torch.where(wrong, 1e-12, weight))
    torch.testing.assert_close(faint, without, rtol=0, atol=1e-6)


def test_with_weights_the_result_is_linear_for_a_given_process() -> None:
    net = model()  # sees the image alone
    image, flow, mask, weight, other = inputs()
    with torch.no_grad():
        combined = net(image, 2 * flow - 3 * other, mask, weight)
        parts = [net(image, x, mask, weight) for x in (flow, other)]
    torch.testing.assert_close(combined, 2 * parts[0] - 3 * parts[1])


def test_a_warm_start_is_what_remains_where_nothing_flows() -> None:
    """Without given vectors, the start diffuses and keeps its mean, where the pull start would be zero."""
    net = model(**FLOW_AWARE)
    image, flow, _, _, _ = inputs()
    nothing = torch.zeros_like(flow[:, :1])
    start = torch.full_like(flow, 7.0)
    with torch.no_grad():
        assert not net(image, flow, nothing).any()
        torch.testing.assert_close(net(image, flow, nothing, start=start), start)


def test_a_good_start_helps_far_from_all_vectors() -> None:
    net = model(**FLOW_AWARE)
    ramp = torch.linspace(0, 100, 300, dtype=torch.float64).expand(1, 2, 60, 300)
    mask = torch.zeros(1, 1, 60, 300)
    mask[..., :4] = 1
    with torch.no_grad():
        cold, warm = net(inputs(60, 300, 1)[0], ramp, mask), net(inputs(60, 300, 1)[0], ramp, mask, start=ramp)
    assert (warm - ramp).abs().mean() < 0.2 * (cold - ramp).abs().mean()


def test_a_start_of_another_shape_is_refused() -> None:
    image, flow, mask, _, _ = inputs()
    with pytest.raises(InputError, match=r"^start must have the shape of flow, \(2, 2, 40, 70\), got \(2, 1, 40, 70\)"):
        model(**FLOW_AWARE)(image, flow, mask, start=flow[:, :1])


def test_a_start_that_is_not_finite_is_refused() -> None:
    image, flow, mask, _, start = inputs()
    start[0, 0, 3, 4] = torch.nan
    with pytest.raises(InputError, match=r"^start must be finite"):
        model(**FLOW_AWARE)(image, flow, mask, start=start)


class Traceable(nn.Module):
    def __init__(self, net: Neuroexplicit) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor, flow: Tensor, mask: Tensor) -> Tensor:
        backend = Reference(self.net.dtm, self.net.lam, self.net.config)
        return fill(image, data_term(flow, mask), 5, self.net.config, backend, None).field


def test_the_reference_can_be_exported() -> None:
    net = Traceable(model(torch.float32, steps=(1, 1, 1, 2), **FLOW_AWARE))
    image, flow, mask, _, _ = inputs(48, 64, 1, torch.float32)
    exported = torch.export.export(net, (image, flow, mask))
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    in_place = [t for t in targets if t.endswith("_.default") and t != "aten.detach_.default"]  # that is of constants
    assert not in_place
    with torch.no_grad():
        torch.testing.assert_close(exported.module()(image, flow, mask), net(image, flow, mask))
