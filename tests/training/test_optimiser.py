import copy
import math

import pytest
import torch
from torch import Tensor, nn

from flowinpaint.training.config import OptimiserConfig
from flowinpaint.training.optimiser import EMA_RISE, Optimiser, Update


class Network(nn.Module):
    """Tensors of odd sizes, one of which gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(3, 5, 3)
        self.scale = nn.Parameter(torch.ones(()))
        self.unused = nn.Parameter(torch.ones(7))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.tanh(self.convolution(x))


def network_and_optimiser(config: OptimiserConfig | None = None) -> tuple[Network, Network, Optimiser]:
    network = Network()
    average = copy.deepcopy(network).requires_grad_(False)
    return network, average, Optimiser(network, average, config or OptimiserConfig())


def backward(network: nn.Module, scale: float = 1.0) -> None:
    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    (scale * network(x).square().sum()).backward()


def step(optimiser: Optimiser, loss: float = 1.0) -> Update:
    with torch.no_grad():
        return optimiser.advance(torch.tensor(loss), torch.tensor(40))


def test_weights_lie_in_one_buffer_and_keep_their_values() -> None:
    expected = Network().state_dict()
    network, average, optimiser = network_and_optimiser()
    for module in (network, average):
        assert all(torch.equal(value, expected[name]) for name, value in module.state_dict().items())
        places = [p.data_ptr() for p in module.parameters()]
        assert len({p.untyped_storage().data_ptr() for p in module.parameters()}) == 1
        assert all((place - places[0]) % 256 == 0 for place in places)
        assert len(set(places)) == len(places)
    for name, p in network.named_parameters():
        assert optimiser.state()[f"weights.{name}"].data_ptr() == p.data_ptr()


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_a_step_is_adams_on_the_clipped_gradient(clip: float) -> None:
    config = OptimiserConfig(clip=clip, betas=(0.8, 0.99), eps=1e-6)
    network, _, optimiser = network_and_optimiser(config)
    other = Network()
    adam = torch.optim.Adam(other.parameters(), lr=0.03, betas=config.betas, eps=config.eps)
    optimiser.rate.fill_(0.03)
    for _ in range(5):
        optimiser.forget_gradients()
        adam.zero_grad()
        backward(network)
        backward(other)
        if clip:
            assert nn.utils.clip_grad_norm_(other.parameters(), clip) > clip
        step(optimiser)
        adam.step()
        for name, p in other.named_parameters():
            torch.testing.assert_close(network.get_parameter(name), p, rtol=1e-5, atol=1e-6)
    moments = adam.state[other.convolution.weight]
    for key in ("exp_avg", "exp_avg_sq"):
        own = optimiser.state()[f"adam.{key}.convolution.weight"]
        torch.testing.assert_close(own, moments[key], rtol=1e-5, atol=1e-6)


def test_the_average_follows_faster_at_first() -> None:
    network, average, optimiser = network_and_optimiser(OptimiserConfig(ema=0.3))
    optimiser.rate.fill_(0.1)
    expected = network.scale.item()
    for n in range(1, 5):
        optimiser.forget_gradients()
        backward(network)
        step(optimiser)
        kept = min(0.3, (1 + n) / (EMA_RISE + n))
        expected = kept * expected + (1 - kept) * network.scale.item()
        assert average.scale.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("scale", "loss"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan)])
def test_what_is_not_finite_changes_nothing(scale: float, loss: float) -> None:
    network, average, optimiser = network_and_optimiser()
    optimiser.rate.fill_(0.1)
    backward(network)
    step(optimiser)
    state = optimiser.state() | average.state_dict()
    before = {name: value.clone() for name, value in state.items() if "counters" not in name}
    optimiser.forget_gradients()
    backward(network, scale)
    assert not step(optimiser, loss).finite
    after = optimiser.state() | average.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    read = optimiser.read_statistics()
    assert (read.skipped, read.skipped_in_row, read.last_bad_sample, read.loss) == (1, 1, 40, 1.0)


def test_a_change_is_seen_in_the_versions_of_weights() -> None:
    network, average, optimiser = network_and_optimiser()
    before = [p._version for p in (*network.parameters(), *average.parameters())]
    optimiser.note_change()
    after = [p._version for p in (*network.parameters(), *average.parameters())]
    assert all(new > old for old, new in zip(before, after, strict=True))
