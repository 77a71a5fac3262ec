"""The FSI cycle with its own adjoint against PyTorch's graph of the same steps, in plain PyTorch and in Triton.

Without a CUDA device Triton's interpreter runs the GPU's kernels on the CPU (conftest.py sets it).
"""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.diffusion import fsi_function
from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.fsi import fsi_cycle, fsi_cycle_of
from flowinpaint.diffusion.stencil import divergence
from flowinpaint.errors import InputError
from helpers import generator

SIZES = [(1, 1), (1, 7), (5, 3), (9, 17)]
IN_TRITON = [
    ((1, 1), 0.0, 1, 1, 3),
    ((1, 7), 0.3, 1, 1, 2),
    ((7, 1), 1.0, 1, 2, 1),
    ((5, 3), 0.1, 2, 3, 4),
    ((5, 3), 0.3, 1, 1, 11),
    ((3, 70), 0.1, 1, 2, 2),
    ((9, 34), 0.1, 1, 1, 5),
]
"""Size, density, batch, channels and steps: the interpreter is slow, so only what differs in the kernels."""
CPU = torch.device("cpu")
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@pytest.fixture
def triton_device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The kernels in use are Triton's, on tiles so small that images have several; a device for them."""
    pytest.importorskip("triton")
    from flowinpaint.diffusion.kernels import fsi_gpu

    monkeypatch.setattr(fsi_function, "_kernels", lambda *_: fsi_gpu)
    monkeypatch.setattr(fsi_gpu, "_inference_tile", lambda *_: fsi_gpu._Tile(2, 4, 2, 128))
    monkeypatch.setattr(fsi_gpu, "_KEEPING", fsi_gpu._Tile(2, 4, 2, 128))
    monkeypatch.setattr(fsi_gpu, "_SUMMING", fsi_gpu._Tile(2, 2, 3, 128))
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def problem(
    size: tuple[int, int],
    batch: int = 2,
    channels: int = 2,
    density: float = 0.3,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Inputs:
    """u, f, c, weights and tau; weights of both signs, also on edges that leave the image, which must not count."""
    g = generator(seed)
    u, f = (torch.randn(batch, channels, *size, generator=g, dtype=torch.float64) for _ in range(2))
    c = (torch.rand(batch, 1, *size, generator=g) < density).double()
    weights = torch.rand(batch, 4, *size, generator=g, dtype=torch.float64) * 1.2 - 0.2
    tau = 0.05 + 0.1 * torch.rand(batch, 1, 1, 1, generator=g, dtype=torch.float64)
    return tuple(x.to(dtype) for x in (u, f, c, weights, tau))  # type: ignore[return-value]


def oracle(u: Tensor, f: Tensor, c: Tensor, weights: Tensor, tau: Tensor, steps: int) -> Tensor:
    return fsi_cycle_of([lambda u: tau * divergence(weights, u)] * steps, u, data_term(f, c), tau)


def values_and_gradients(cycle: Any, inputs: Inputs, device: torch.device, steps: int, **options: Any) -> list[Tensor]:
    """The end of the cycle, and the gradients of a random linear function of it for u, f, weights, tau."""
    u, f, c, weights, tau = (x.detach().clone().to(device) for x in inputs)
    leaves = [x.requires_grad_() for x in (u, f, weights, tau)]
    end = cycle(u, f, c, weights, tau, steps, **options)
    direction = torch.randn(end.shape, generator=generator(9), dtype=end.dtype).to(device)
    return [x.detach().cpu() for x in (end, *torch.autograd.grad(end, leaves, direction))]


def assert_equals_the_oracle(inputs: Inputs, device: torch.device, steps: int, tolerance: float) -> None:
    ours = values_and_gradients(fsi_cycle, inputs, device, steps)
    for a, b in zip(ours, values_and_gradients(oracle, inputs, CPU, steps), strict=True):
        assert a.dtype == inputs[0].dtype
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max()))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("channels", "steps"), [(1, 1), (2, 2), (3, 11)])
def test_values_and_gradients_are_the_oracles(size: tuple[int, int], density: float, channels: int, steps: int) -> None:
    assert_equals_the_oracle(problem(size, channels=channels, density=density), CPU, steps, 1e-11)


@pytest.mark.parametrize(("size", "density", "batch", "channels", "steps"), IN_TRITON)
def test_values_and_gradients_are_the_oracles_in_triton(
    triton_device: torch.device, size: tuple[int, int], density: float, batch: int, channels: int, steps: int
) -> None:
    assert_equals_the_oracle(problem(size, batch, channels, density), triton_device, steps, 1e-11)


def test_values_and_gradients_in_single_precision() -> None:
    assert_equals_the_oracle(problem((13, 70), batch=3, dtype=torch.float32, density=0.1), CPU, 20, 1e-5)


def test_values_and_gradients_in_single_precision_in_triton(triton_device: torch.device) -> None:
    assert_equals_the_oracle(problem((4, 6), 1, dtype=torch.float32, density=0.1), triton_device, 4, 1e-5)


def assert_segments_change_nothing(device: torch.device, steps: int, segment: int, batch: int = 2) -> None:
    inputs = problem((4, 5), batch)
    whole = values_and_gradients(fsi_cycle, inputs, device, steps)
    pieces = values_and_gradients(fsi_cycle, inputs, device, steps, segment=segment)
    for a, b in zip(pieces[:2], whole[:2], strict=True):
        assert torch.equal(a, b)
    # The gradients of f and of the weights are sums over all steps, and their terms meet in another order.
    for a, b in zip(pieces[2:], whole[2:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("segment", [1, 2, 3, 5, 19, 20, 21, 10**9])
def test_segments_change_no_bit_of_the_values(segment: int) -> None:
    assert_segments_change_nothing(CPU, 20, segment)


def test_segments_change_no_bit_of_the_values_in_triton(triton_device: torch.device) -> None:
    assert_segments_change_nothing(triton_device, 5, 2, batch=1)


@given(st.integers(1, 30), st.none() | st.integers(1, 31), st.integers(0, 2**16))
@settings(max_examples=40)
def test_any_number_of_steps_and_any_segment(steps: int, segment: int | None, seed: int) -> None:
    inputs = problem((4, 5), batch=1, seed=seed)
    ours = values_and_gradients(fsi_cycle, inputs, CPU, steps, segment=segment)
    for a, b in zip(ours, values_and_gradients(oracle, inputs, CPU, steps), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("segment", [None, 3])
def test_gradcheck(segment: int | None) -> None:
    u, f, c, weights, tau = problem((3, 4), batch=2)
    leaves = [x.requires_grad_() for x in (u, f, weights, tau)]
    assert torch.autograd.gradcheck(lambda u, f, w, t: fsi_cycle(u, f, c, w, t, 7, segment), leaves)


def assert_only_these(device: torch.device, asked: tuple[bool, bool, bool], steps: int, segment: int | None) -> None:
    """Ask for the gradients of some of u, f and weights only."""
    u, f, c, weights, tau = (x.to(device) for x in problem((4, 5)))
    expected = values_and_gradients(oracle, problem((4, 5)), CPU, steps)[1:4]
    leaves = [x.requires_grad_(ask) for x, ask in zip((u, f, weights), asked, strict=True)]
    end = fsi_cycle(u, f, c, weights, tau, steps, segment)
    direction = torch.randn(end.shape, generator=generator(9), dtype=end.dtype).to(device)
    end.backward(direction)  # type: ignore[no-untyped-call]
    for leaf, ask, gradient in zip(leaves, asked, expected, strict=True):
        assert (leaf.grad is not None) == ask
        if leaf.grad is not None:
            torch.testing.assert_close(leaf.grad.cpu(), gradient)


@pytest.mark.parametrize("asked", [a for a in product((False, True), repeat=3) if any(a)])
@pytest.mark.parametrize("segment", [None, 4])
def test_only_gradients_that_are_asked_for(asked: tuple[bool, bool, bool], segment: int | None) -> None:
    assert_only_these(CPU, asked, 10, segment)


@pytest.mark.parametrize("asked", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_gradients_that_are_asked_for_in_triton(
    triton_device: torch.device, asked: tuple[bool, bool, bool]
) -> None:
    assert_only_these(triton_device, asked, 3, None)


def assert_same_without_gradients(device: torch.device, steps: int, batch: int = 2) -> None:
    inputs = [x.to(device) for x in problem((4, 6), batch)]
    before = [x.clone() for x in inputs]
    u, f, c, weights, tau = inputs
    plain = fsi_cycle(u, f, c, weights, tau, steps)
    weights.requires_grad_()
    assert torch.equal(plain, fsi_cycle(u, f, c, weights, tau, steps).detach())
    with torch.no_grad():
        assert torch.equal(plain, fsi_cycle(u, f, c, weights, tau, steps))
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_without_gradients_the_values_are_the_same_bits_and_inputs_stay(steps: int) -> None:
    assert_same_without_gradients(CPU, steps)


def test_without_gradients_the_values_are_the_same_bits_in_triton(triton_device: torch.device) -> None:
    assert_same_without_gradients(triton_device, 4, batch=1)


def test_tensors_in_another_memory_format_in_triton(triton_device: torch.device) -> None:
    inputs = problem((4, 5))
    u, f, c, weights, tau = (x.contiguous(memory_format=torch.channels_last) for x in inputs)
    expected = values_and_gradients(oracle, inputs, CPU, 2)
    ours = values_and_gradients(fsi_cycle, (u, f, c, weights, tau), triton_device, 2)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_backward_may_run_twice_and_takes_a_gradient_without_storage() -> None:
    u, f, c, weights, tau = problem((4, 4))
    end = fsi_cycle(u, f, c, weights.requires_grad_(), tau, 12)
    first, second = (torch.autograd.grad(end.sum(), weights, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, torch.autograd.grad(oracle(u, f, c, weights, tau, 12).sum(), weights)[0])


def saved(steps: int, segment: int | None, needs_weights: bool = True) -> int:
    """Number of iterates that a cycle saves for the backward pass."""
    u, f, c, weights, _ = problem((8, 8))
    (weights if needs_weights else u).requires_grad_()
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        sizes[x.data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        fsi_function.inpainting_cycle(u, data_term(f, c), weights, steps, segment)
    inputs = {x.data_ptr() for x in (u, f, weights)}
    return sum(n for at, n in sizes.items() if at not in inputs and n > c.numel()) // u.numel()


def test_memory_is_the_iterates_and_with_segments_few_of_them() -> None:
    assert saved(40, None) == 39
    assert saved(40, 8) == 8
    assert saved(40, 40) == 0
    assert saved(40, None, needs_weights=False) == 0


def test_second_derivatives_are_refused() -> None:
    u, f, c, weights, tau = problem((3, 3))
    end = fsi_cycle(u, f, c, weights.requires_grad_(), tau, 3)
    (gradient,) = torch.autograd.grad(end.square().sum(), weights, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"u": torch.zeros(2, 2, 3)}, "u"),
        ({"u": torch.zeros(2, 2, 3, 4, dtype=torch.float16)}, "u"),
        ({"f": torch.zeros(2, 1, 3, 4)}, "f"),
        ({"f": torch.zeros(2, 2, 3, 4, dtype=torch.float64)}, "f"),
        ({"c": torch.zeros(2, 2, 3, 4)}, "c"),
        ({"weights": torch.zeros(2, 5, 3, 4)}, "weights"),
        ({"weights": torch.zeros(2, 4, 3, 4, dtype=torch.float64)}, "weights"),
        ({"steps": 0}, "steps"),
        ({"segment": 0}, "segment"),
        ({"data_weight": torch.ones(2, 1, 4, 3)}, "data_weight"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], argument: str) -> None:
    u, f, c, weights, tau = problem((3, 4), dtype=torch.float32)
    arguments = {"u": u, "f": f, "c": c, "weights": weights, "tau": tau, "steps": 3}
    with pytest.raises(InputError, match=f"^{argument} must .*got"):
        fsi_cycle(**(arguments | change))  # type: ignore[arg-type]
