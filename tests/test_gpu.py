"""The same answers on a CUDA device as on the CPU."""

from typing import Any

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.api import EXPLICIT, parameters_of
from flowinpaint.data.scene import sample_scene
from flowinpaint.diffusion.steady import solve_steady, steady_state
from flowinpaint.diffusion.stencil import divergence
from flowinpaint.neural.neuroexplicit import Neuroexplicit, NeuroexplicitConfig
from helpers import random_graph

pytestmark = pytest.mark.gpu


@pytest.mark.filterwarnings("ignore:amle")
@pytest.mark.parametrize("method", [name for name in EXPLICIT if name != "opencv-ric"])  # not always the same
def test_explicit_methods_agree(method: str) -> None:
    image, truth = sample_scene(96, 131)
    mask = fi.random_mask((96, 131), 0.05, 0)
    tight: dict[str, Any] = {"tolerance": 1e-9} if "tolerance" in parameters_of(method) else {}
    on = {device: fi.inpaint(image, truth, mask, method=method, device=device, **tight) for device in ("cpu", "cuda")}
    assert on["cuda"].info["device"].startswith("cuda")
    np.testing.assert_allclose(on["cuda"].flow, on["cpu"].flow, atol=1e-3)
    assert on["cuda"].flow[mask].tobytes() == truth[mask].tobytes()


@pytest.mark.parametrize("ablation", [{}, {"learn_eigenvalues": False}, {"learn_beta": True}, {"learn_kernels": True}])
def test_models_agree(ablation: dict[str, bool]) -> None:
    torch.manual_seed(0)
    model = Neuroexplicit(NeuroexplicitConfig(**ablation))  # type: ignore[arg-type]
    image, flow = torch.rand(2, 3, 75, 90), 5 * torch.randn(2, 2, 75, 90)
    mask = torch.rand(2, 1, 75, 90) < 0.05
    with torch.inference_mode():
        cpu = model(image, mask, flow)
        cuda = model.cuda()(image.cuda(), mask.cuda(), flow.cuda()).cpu()
    # Convolutions may run in TF32 there; the fields are some 5 px large.
    assert float((cpu - cuda).abs().mean()) < 0.02
    known = mask.expand_as(flow)
    assert torch.equal(cuda[known], flow[known])


@pytest.mark.parametrize("negative", [False, True])
def test_the_steady_state_agrees(negative: bool) -> None:
    weights, known = random_graph(3, 67, 93, seed=1, density=0.02, negative=negative)
    f, c = torch.randn(3, 2, 67, 93, dtype=torch.float64), known.double()
    cpu = solve_steady(f, c, weights, tolerance=1e-9)
    cuda = solve_steady(f.cuda(), c.cuda(), weights.cuda(), tolerance=1e-9)
    assert (cpu.status, cuda.status) == ("converged", "converged")
    assert cuda.iterations <= cpu.iterations + 8  # it looks at the residual every few steps only
    torch.testing.assert_close(cuda.u.cpu(), cpu.u, rtol=0, atol=1e-5)


def test_its_gradients_agree() -> None:
    weights, known = random_graph(2, 30, 41, seed=2)
    f, c = torch.randn(2, 2, 30, 41, dtype=torch.float64), known.double()
    gradients = []
    for device in ("cpu", "cuda"):
        inputs = [x.detach().to(device).requires_grad_() for x in (f, weights)]
        steady_state(inputs[0], c.to(device), inputs[1], tolerance=1e-10).square().sum().backward()  # type: ignore[no-untyped-call]
        gradients.append([x.grad.cpu() for x in inputs if x.grad is not None])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_weights_too_far_apart_for_float32_are_solved_there_too() -> None:
    weights = torch.zeros(1, 4, 96, 96, dtype=torch.float64)
    weights[:, 0, :, :-1], weights[:, 1, :-1] = 1e-8, 1
    f, c = torch.randn(1, 2, 96, 96, dtype=torch.float64), torch.zeros(1, 1, 96, 96, dtype=torch.float64)
    c[..., 10::40, 10::40] = 1
    solution = solve_steady(f.cuda(), c.cuda(), weights.cuda())
    assert solution.status == "converged"
    # The field itself hangs on threads of 1e-8, which a residual does not show.
    u, start = solution.u.cpu(), torch.where(c > 0, f - f[c.expand_as(f) > 0].reshape(2, -1).mean(1)[:, None, None], 0)
    left, before = (((1 - c) * divergence(weights, x)).norm(dim=(2, 3)) for x in (u, start))
    assert float((left / before).max()) <= 1.01e-6


def test_memory_formats_make_no_difference() -> None:
    weights, known = random_graph(2, 33, 40, seed=3)
    f, c = torch.randn(2, 2, 33, 40, dtype=torch.float64), known.double()
    expected = solve_steady(f.cuda(), c.cuda(), weights.cuda()).u
    turned = [x.cuda().contiguous(memory_format=torch.channels_last) for x in (f, c, weights)]
    torch.testing.assert_close(solve_steady(*turned).u, expected, rtol=0, atol=1e-9)
