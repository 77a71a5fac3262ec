"""Equal results on a CUDA device and on the CPU."""

from typing import Any

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.diffusion.fsi import fsi_cycle
from flowinpaint.diffusion.steady import solve_steady, steady_state
from flowinpaint.diffusion.stencil import divergence
from flowinpaint.methods.registry import all_methods, get_method
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import random_graph

pytestmark = pytest.mark.gpu
WITHOUT_NETWORK = [
    method.name
    for method in all_methods()
    if not (method.is_network or method.why_not() or method.name == "opencv-ric")  # RIC differs from run to run
]


@pytest.mark.filterwarnings("ignore:amle")
@pytest.mark.parametrize("method", WITHOUT_NETWORK)
def test_explicit_methods_agree(method: str) -> None:
    image, truth = sample_scene(96, 131)
    mask = fi.random_mask((96, 131), 0.05, 0)
    tight: dict[str, Any] = {"tolerance": 1e-9} if "tolerance" in get_method(method).parameters else {}
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
        cpu = model(image, flow, mask)
        cuda = model.cuda()(image.cuda(), flow.cuda(), mask.cuda()).cpu()
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


def fsi_problem(size: tuple[int, int], batch: int, channels: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """u, f, c, weights and tau; edges that leave the image have weights that must not count."""
    g = torch.Generator().manual_seed(4)
    u, f = (torch.randn(batch, channels, *size, generator=g, dtype=dtype) for _ in range(2))
    c = (torch.rand(batch, 1, *size, generator=g) < 0.05).to(dtype)
    weights = torch.rand(batch, 4, *size, generator=g, dtype=dtype) * 1.2 - 0.2
    return [u, f, c, weights, 0.05 + 0.1 * torch.rand(batch, 1, 1, 1, generator=g, dtype=dtype)]


def fsi_gradients(inputs: list[torch.Tensor], device: str, steps: int, segment: int | None) -> list[torch.Tensor]:
    """The end of a cycle, and the gradients for u, f, weights and tau."""
    u, f, c, weights, tau = (x.detach().to(device) for x in inputs)
    leaves = [x.requires_grad_() for x in (u, f, weights, tau)]
    end = fsi_cycle(u, f, c, weights, tau, steps, segment)
    return [x.detach().cpu() for x in (end, *torch.autograd.grad(end.square().sum(), leaves))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("segment", [None, 7])
@pytest.mark.parametrize(
    ("size", "batch", "channels", "steps"),
    [((1, 1), 2, 2, 3), ((1, 70), 1, 1, 9), ((67, 93), 3, 2, 45), ((128, 192), 4, 3, 20), ((130, 3), 2, 5, 1)],
)
def test_fsi_cycles_agree(
    size: tuple[int, int], batch: int, channels: int, steps: int, segment: int | None, dtype: torch.dtype
) -> None:
    inputs = fsi_problem(size, batch, channels, dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    expected = fsi_gradients(inputs, "cpu", steps, None)
    for a, b in zip(fsi_gradients(inputs, "cuda", steps, segment), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max()))


def test_an_fsi_cycle_and_its_gradient_run_in_a_cuda_graph() -> None:
    u, f, c, weights, tau = (x.cuda() for x in fsi_problem((40, 50), 2, 2, torch.float32))
    weights.requires_grad_()

    def gradient() -> torch.Tensor:
        return torch.autograd.grad(fsi_cycle(u, f, c, weights, tau, 12).square().sum(), weights)[0]

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        gradient()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradient()
    f.add_(1)
    graph.replay()
    torch.testing.assert_close(captured, gradient(), rtol=0, atol=0)


def test_more_than_two_to_the_31_values() -> None:
    B, C, H, W = 3, 3, 16384, 16384
    if torch.cuda.mem_get_info()[0] < 75 * 2**30:
        pytest.skip("needs 75 GiB of device memory")
    f = torch.zeros(B, C, H, W, device="cuda")
    f[-1, -1, -1, -1] = 1
    c = torch.zeros(B, 1, H, W, device="cuda", dtype=torch.bool)
    c[-1, :, -1, -1] = True
    weights = torch.ones(B, 4, H, W, device="cuda")
    u = fsi_cycle(torch.zeros_like(f), f, c, weights, 0.1, 2)
    del f, weights
    corner = u[-1, -1, -3:, -3:].cpu()
    small_f = torch.zeros(1, 1, 5, 5)
    small_f[..., -1, -1] = 1
    expected = fsi_cycle(torch.zeros_like(small_f), small_f, small_f, torch.ones(1, 4, 5, 5), 0.1, 2)
    torch.testing.assert_close(corner, expected[0, 0, -3:, -3:])
    assert float(u[:-1].abs().amax()) == 0


@pytest.mark.filterwarnings("default")  # the compiler has its own
@pytest.mark.parametrize("decoder_kernel", [1, 2])
def test_padded_channels_in_half_precision_and_compiled_parts_agree(decoder_kernel: int) -> None:
    torch.manual_seed(0)
    model = Neuroexplicit(NeuroexplicitConfig(decoder_kernel=decoder_kernel))
    image, flow = torch.rand(2, 3, 64, 96), 5 * torch.randn(2, 2, 64, 96)
    mask = torch.rand(2, 1, 64, 96) < 0.05
    with torch.inference_mode():
        expected = model(image, flow, mask)
    model.cuda()
    on = [x.cuda() for x in (image, flow, mask)]
    gradients = []
    for compiled in (False, True):
        if compiled:
            model.compile_parts()
        with torch.autocast("cuda", torch.bfloat16):
            out = model(*on)
        assert float((out.detach().cpu() - expected).abs().mean()) < 0.05
        found = torch.autograd.grad(out.square().mean(), list(model.parameters()))
        gradients.append(torch.cat([g.flatten() for g in found]))
    assert float((gradients[0] - gradients[1]).norm() / gradients[0].norm()) < 0.1


def test_scenes_are_those_of_the_cpu_also_in_a_cuda_graph() -> None:
    source = LayeredFlow(size=(96, 128))
    numbers = torch.arange(4)
    first, second = source.scenes(numbers), source.scenes(numbers + 4)
    source = source.cuda()
    numbers = numbers.cuda()
    source.scenes(numbers)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = source.scenes(numbers)
    for expected in (first, second):
        graph.replay()
        for own, other in zip(captured, expected, strict=True):
            # A pixel whose centre lies on a border may fall to either side.
            assert ((own.cpu() - other).abs() > 1e-3).float().mean() < 1e-3
        numbers += 4


def soft_weights(known: torch.Tensor) -> torch.Tensor:
    """Weights of the data term, from almost unknown to exact."""
    choices = torch.tensor([1e-3, 0.1, 2, torch.inf], dtype=known.dtype)
    return choices[torch.randint(4, known.shape, generator=torch.Generator().manual_seed(5))]


def test_soft_fills_and_their_warm_start_agree() -> None:
    model = fi.load_model("neuroexplicit", "cpu")
    image, truth = sample_scene(97, 131)
    known = fi.random_mask((97, 131), 0.05, 0)
    inputs = [torch.from_numpy(x) for x in (image.astype(np.float32) / 255, truth, known[..., None])]
    inputs = [x.movedim(-1, 0)[None].contiguous() for x in inputs]
    inputs += [soft_weights(inputs[2].float()), inputs[1] + 1]
    with torch.inference_mode():
        cpu = model(*inputs)
        cuda = model.cuda()(*(x.cuda() for x in inputs)).cpu()
    assert float((cpu - cuda).abs().mean()) < 0.01  # convolutions may run in TF32 there


def test_soft_steady_states_agree() -> None:
    weights, known = random_graph(2, 67, 93, seed=6, density=0.02)
    f, c = torch.randn(2, 2, 67, 93, dtype=torch.float64), known.double()
    k = soft_weights(c)
    cpu = solve_steady(f, c, weights, data_weight=k, tolerance=1e-9)
    cuda = solve_steady(f.cuda(), c.cuda(), weights.cuda(), data_weight=k.cuda(), tolerance=1e-9)
    assert (cpu.status, cuda.status) == ("converged", "converged")
    torch.testing.assert_close(cuda.u.cpu(), cpu.u, rtol=0, atol=1e-5)


def test_gradients_of_soft_fsi_cycles_agree() -> None:
    u, f, c, weights, tau = fsi_problem((67, 93), 2, 2, torch.float64)
    found = []
    for device in ("cpu", "cuda"):
        leaves = [x.detach().to(device).requires_grad_() for x in (u, f, weights, soft_weights(c).clamp(max=5))]
        end = fsi_cycle(leaves[0], leaves[1], c.to(device), leaves[2], tau.to(device), 30, data_weight=leaves[3])
        found.append([x.cpu() for x in torch.autograd.grad(end.square().sum(), leaves)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * float(b.abs().max()))
