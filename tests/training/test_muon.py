import copy
import math

import pytest
import torch
from torch import Tensor, nn

from flowinpaint.training.config import OptimiserConfig
from flowinpaint.training.optimiser import EvenSteps, Optimiser, orthogonal


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (16, 40), (48, 54)])
def test_singular_values_come_near_one_and_singular_vectors_stay(shape: tuple[int, int]) -> None:
    X = noise(1, *shape)
    Y = orthogonal(X)[0]
    U, values, V = torch.linalg.svd(X[0], full_matrices=False)
    turned = U.T @ Y @ V.T
    kept = values > 0.05 * values.max()  # very small ones need more iterations
    assert torch.diagonal(turned)[kept].min() > 0.5
    assert torch.diagonal(turned).max() < 1.3
    assert (turned - torch.diag(torch.diagonal(turned))).abs().max() < 1e-4


def test_zeros_stay_and_padding_changes_nothing() -> None:
    X = noise(2, 6, 9)
    X[1] = 0
    padded = torch.zeros(2, 8, 12)
    padded[:, :6, :9] = X
    Y = orthogonal(padded)
    assert not Y[1].any()
    assert not Y[:, 6:].any() and not Y[:, :, 9:].any()
    torch.testing.assert_close(Y[:, :6, :9], orthogonal(X))


def test_steps_do_not_depend_on_the_size_of_gradients() -> None:
    X = noise(3, 7, 11)
    torch.testing.assert_close(orthogonal(1e4 * X), orthogonal(X), rtol=1e-4, atol=1e-5)


def test_every_kernel_takes_its_own_step_whatever_lies_beside_it() -> None:
    kernels = [
        (noise(4, 3, 3, 3, seed=1), False),
        (noise(6, 4, 2, 2, seed=2), True),
        (noise(4, 5, 3, 3, seed=3), False),
    ]
    starts, length = [0, 128, 256], 448
    momentum = torch.full((length,), float("nan"))  # what lies between must not be read
    for (kernel, _), start in zip(kernels, starts, strict=True):
        momentum[start : start + kernel.numel()] = kernel.flatten()
    steps = EvenSteps(kernels)(momentum)
    for (kernel, transposed), start in zip(kernels, starts, strict=True):
        matrix = (kernel.transpose(0, 1) if transposed else kernel).flatten(1)
        expected = 0.2 * math.sqrt(max(matrix.shape)) * orthogonal(matrix[None])[0]
        own = steps[start : start + kernel.numel()].view(kernel.shape)
        torch.testing.assert_close((own.transpose(0, 1) if transposed else own).flatten(1), expected)
        assert 0.1 < own.square().mean().sqrt() < 0.3
    assert torch.count_nonzero(steps) == sum(kernel.numel() for kernel, _ in kernels)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = nn.Parameter(torch.ones(()))
        self.convolution = nn.Conv2d(3, 6, 3)
        self.up = nn.ConvTranspose2d(6, 4, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(torch.tanh(self.scale * self.convolution(x)))
        return y.square().mean()


def run(network: Network, optimiser: Optimiser, steps: int) -> None:
    x = noise(2, 3, 8, 8)
    for _ in range(steps):
        optimiser.forget_gradients()
        network(x).backward()
        with torch.no_grad():
            optimiser.advance(torch.tensor(1.0), torch.tensor(0))


@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_kernels_take_pytorchs_steps_of_muon_and_all_else_adams(decay: float) -> None:
    config = OptimiserConfig(kernels="muon", lr=0.01, muon_lr=0.03, momentum=0.9, clip=0.0, weight_decay=decay)
    network, other = Network(), Network()
    optimiser = Optimiser(network, copy.deepcopy(network).requires_grad_(False), config)
    optimiser.rate.fill_(0.01)
    run(network, optimiser, 4)

    # Of each kernel PyTorch's gets a matrix.
    kernels = {name: p for name, p in other.named_parameters() if p.ndim == 4}
    turned = {n: (p.transpose(0, 1) if n.startswith("up") else p).flatten(1).detach() for n, p in kernels.items()}
    matrices = {name: nn.Parameter(matrix.clone()) for name, matrix in turned.items()}
    muon = torch.optim.Muon(
        matrices.values(), lr=0.03, momentum=0.9, weight_decay=decay, adjust_lr_fn="match_rms_adamw", nesterov=True
    )
    adam = torch.optim.Adam([p for p in other.parameters() if p.ndim != 4], lr=0.01)
    x = noise(2, 3, 8, 8)
    for _ in range(4):
        other.zero_grad()
        other(x).backward()
        for name, p in kernels.items():
            assert p.grad is not None
            matrices[name].grad = (p.grad.transpose(0, 1) if name.startswith("up") else p.grad).flatten(1).clone()
        muon.step()  # type: ignore[no-untyped-call]
        adam.step()
        with torch.no_grad():
            for name, p in kernels.items():
                p.copy_(_back(matrices[name], p, name.startswith("up")))
    for name, p in other.named_parameters():
        # PyTorch's iterates in bfloat16.
        torch.testing.assert_close(network.get_parameter(name), p, rtol=0.02, atol=0.002 if p.ndim == 4 else 1e-4)


def test_with_adam_too_kernels_shrink_and_nothing_else_does() -> None:
    results = []
    for decay in (0.0, 0.5):
        network = Network()
        config = OptimiserConfig(lr=0.01, clip=0.0, weight_decay=decay)
        optimiser = Optimiser(network, copy.deepcopy(network).requires_grad_(False), config)
        optimiser.rate.fill_(0.01)
        before = {name: p.detach().clone() for name, p in network.named_parameters()}
        run(network, optimiser, 1)
        results.append({name: p.detach().clone() for name, p in network.named_parameters()})
    for name, p in before.items():
        expected = results[0][name] - (0.01 * 0.5 * p if p.ndim == 4 else 0)
        torch.testing.assert_close(results[1][name], expected, rtol=1e-5, atol=1e-7)


def _back(matrix: Tensor, kernel: Tensor, transposed: bool) -> Tensor:
    if not transposed:
        return matrix.view_as(kernel)
    return matrix.view(kernel.shape[1], kernel.shape[0], *kernel.shape[2:]).transpose(0, 1)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    config = OptimiserConfig(kernels="muon", lr=0.01, weight_decay=0.5)
    network = Network()
    optimiser = Optimiser(network, copy.deepcopy(network).requires_grad_(False), config)
    optimiser.rate.fill_(0.01)
    run(network, optimiser, 2)
    before = {name: value.clone() for name, value in optimiser.state().items() if "counters" not in name}
    optimiser.forget_gradients()
    (network(noise(2, 3, 8, 8)) * float("nan")).backward()
    with torch.no_grad():
        optimiser.advance(torch.tensor(1.0), torch.tensor(0))
    assert all(torch.equal(optimiser.state()[name], value) for name, value in before.items())
