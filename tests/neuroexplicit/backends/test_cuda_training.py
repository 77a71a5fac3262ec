"""The CUDA training backend against PyTorch's: in Triton's interpreter, or on the device."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.diffusion.data_term import data_term
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import BackendChoice, Neuroexplicit
from helpers import FLOW_AWARE, generator, moderate

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux only")
from flowinpaint.neuroexplicit.backends.cuda_training import CudaTrainingBackend
from flowinpaint.neuroexplicit.kernels import dtm_training_sums

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GRADIENTS = torch.bfloat16 if torch.cuda.is_available() else torch.float32
"""The interpreter has no bfloat16."""


def model(**config: Any) -> Neuroexplicit:
    net = Neuroexplicit(NeuroexplicitConfig(**{"width": 4, "steps": (2, 3, 3, 7), **config}))
    # Of other seeds an activation lies so near to zero that rounding decides its sign, and with a factor of 1
    # orientations are decided by it.
    return moderate(net, 2, seed=3).to(DEVICE)


def inputs(B: int, H: int, W: int) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(0)
    image, flow = torch.rand(B, 3, H, W, generator=g), 8 * torch.randn(B, 2, H, W, generator=g)
    return image.to(DEVICE), flow.to(DEVICE), (torch.rand(B, 1, H, W, generator=g) < 0.2).to(DEVICE)


@pytest.mark.parametrize("config", [FLOW_AWARE, {}, {"learn_eigenvalues": False, **FLOW_AWARE}])
def test_result_and_gradient_are_those_of_the_model(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtm_training_sums, "_PROGRAMS", 2)  # the interpreter takes them one by one
    net, given = model(**config), inputs(1, 13, 16)
    net.backend = "torch"
    results, gradients = [], []
    backend = CudaTrainingBackend(net, torch.float16, GRADIENTS)
    for way in (lambda image, flow, mask: backend(image, data_term(flow, mask)), net.fill):
        out, error = way(*given)
        results.append(out.detach())
        loss = out.square().mean() + (0.0 if error is None else 10 * error.square().mean())
        found = torch.autograd.grad(loss, list(net.parameters()))
        gradients.append(torch.cat([g.flatten() for g in found]))
    assert (results[0] - results[1]).abs().mean() < 0.02
    assert (gradients[0] - gradients[1]).norm() < 0.01 * gradients[1].norm()


@pytest.mark.gpu
def test_autocast_takes_it_and_a_wanted_gradient_of_the_field_does_not() -> None:
    net, (image, flow, mask) = model(**FLOW_AWARE), inputs(1, 64, 96)
    with torch.autocast("cuda", torch.bfloat16):
        net(image, flow, mask).sum().backward()
        assert list(net._backends._engines) == ["cuda_training"]
        flow.requires_grad_()
        net(image, flow, mask).sum().backward()
    assert flow.grad is not None
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("factor", [1, 2])
def test_the_gradient_is_within_a_hundredth(factor: float) -> None:
    """Of a network that learns from generated scenes, with small and with larger maps."""
    net = moderate(Neuroexplicit(NeuroexplicitConfig(**FLOW_AWARE)), factor).to(DEVICE)
    image, flow, _ = LayeredFlow(size=(192, 256)).to(torch.device(DEVICE)).scenes(torch.arange(4, device=DEVICE))
    mask = (torch.rand(4, 1, 192, 256, generator=generator(0)) < 0.05).to(DEVICE)
    gradients = []
    backends: list[BackendChoice] = ["auto", "torch"]
    for backend in backends:
        net.backend = backend
        with torch.autocast("cuda", torch.bfloat16, enabled=backend == "auto"):
            out = net(image, flow, mask)
        found = torch.autograd.grad((out - flow).norm(dim=1).mean(), list(net.parameters()))
        gradients.append(torch.cat([g.flatten() for g in found]))
    assert (gradients[0] - gradients[1]).norm() < 0.01 * gradients[1].norm()
