"""The flow-aware model: its first guess, its start, and its number of levels."""

from itertools import repeat
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm, data_term, statistics
from flowinpaint.diffusion.pyramid import pull, push
from flowinpaint.errors import InputError
from flowinpaint.neuroexplicit.backends.pytorch import TorchBackend
from flowinpaint.neuroexplicit.config import START_STEPS, NeuroexplicitConfig, extended_size, levels_of, per_level
from flowinpaint.neuroexplicit.dtm import CLIP, normalised
from flowinpaint.neuroexplicit.edge_weights import levels_of_maps
from flowinpaint.neuroexplicit.method import ISOTROPIC, cycles
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import FLOW_AWARE, generator, maps_of

SMALL: dict[str, Any] = {"width": 4, "steps": (2, 3, 3, 4), **FLOW_AWARE}


def model(seed: int = 0, **config: Any) -> Neuroexplicit:
    torch.manual_seed(seed)
    net = Neuroexplicit(NeuroexplicitConfig(**config)).double()
    with torch.no_grad():
        for parameter in net.dtm.parameters():  # fresh maps hardly depend on their input
            parameter.mul_(2)
    return net


def inputs(H: int = 40, W: int = 70, C: int = 2, seed: int = 0, density: float = 0.1) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(seed)
    image = torch.rand(2, 3, H, W, generator=g, dtype=torch.float64)
    flow = 8 * torch.randn(2, C, H, W, generator=g, dtype=torch.float64)
    mask = torch.rand(2, 1, H, W, generator=g) < density
    mask[..., H // 2, W // 2] = True
    return image, flow, mask


def pull_start(data: DataTerm) -> Tensor:
    backend = TorchBackend(model(**SMALL))
    return backend.diffuse(backend.pull(data), data, ISOTROPIC, START_STEPS)


def first_guess(start: Tensor, levels: list[DataTerm], steps: tuple[int, ...]) -> Tensor:
    backend = TorchBackend(model(**SMALL))
    return cycles(backend, levels, start, repeat(ISOTROPIC), steps, backend.refine)


@given(H=st.integers(1, 90), W=st.integers(1, 90), C=st.integers(1, 4))
@settings(max_examples=25)
def test_any_size_and_channel_count_with_known_vectors_exact(H: int, W: int, C: int) -> None:
    image, flow, mask = inputs(H, W, C)
    with torch.inference_mode():
        out = model(**SMALL)(image, flow, mask)
    assert out.shape == flow.shape
    assert torch.isfinite(out).all()
    assert torch.equal(torch.where(mask, out, 0), torch.where(mask, flow, 0))


def test_shifting_and_scaling_the_field_shifts_and_scales_the_result() -> None:
    net, (image, flow, mask) = model(**SMALL), inputs()
    shift = torch.tensor([30.0, -4.0], dtype=torch.float64).view(1, 2, 1, 1)
    with torch.inference_mode():
        plain, moved = net(image, flow, mask), net(image, -2.5 * flow, mask)
        torch.testing.assert_close(net(image, flow + shift, mask), plain + shift, rtol=0, atol=1e-9)
        # The network sees the sign; the size it does not.
        torch.testing.assert_close(net(image, 1e3 * flow, mask), 1e3 * plain, rtol=1e-9, atol=0)
    assert not torch.allclose(moved, -2.5 * plain)


def test_for_given_tensors_the_result_is_linear_in_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    net, (image, flow, mask) = model(**SMALL), inputs()
    other = inputs(seed=5)[1]
    maps: list[list[Tensor]] = []
    network = TorchBackend.network

    def given_tensors(*arguments: Any) -> list[Tensor]:
        maps.append(network(*arguments))
        return maps[0]

    monkeypatch.setattr(TorchBackend, "network", given_tensors)
    with torch.inference_mode():
        first, second, combined = (net(image, field, mask) for field in (flow, other, 2 * flow - 3 * other))
    torch.testing.assert_close(combined, 2 * first - 3 * second, rtol=0, atol=1e-9)
    assert (maps[2][0] - maps[0][0]).abs().max() > 1e-6  # it would have predicted others


def test_the_network_sees_the_field_and_the_mask() -> None:
    net, (image, flow, mask) = model(**SMALL), inputs()
    maps: list[list[Tensor]] = []
    net.dtm.register_forward_hook(lambda _, x, z: maps.append([x[0], *z]))
    other = torch.where(torch.arange(70) < 30, flow, -flow)
    with torch.inference_mode():
        net(image, flow, mask)
        net(image, other, mask)
        net(image, flow, torch.ones_like(mask))
    assert maps[0][0].shape[1] == 6
    assert torch.equal(maps[0][0][:, 5:, :40, :70], mask.double())
    for z in maps[1:]:
        assert all((z[k] - maps[0][k]).abs().max() > 1e-6 for k in range(1, 5))


@pytest.mark.parametrize("flow_aware", [False, True])
def test_a_hole_of_any_size_is_filled(flow_aware: bool) -> None:
    image, _, mask = inputs(150, 400)
    mask[:] = False
    mask[..., :3, :3] = True  # one corner is all that is known
    flow = torch.full((2, 2, 150, 400), 7.0, dtype=torch.float64)
    net = model(width=4, start="pull", flow_aware=flow_aware)
    with torch.inference_mode():
        torch.testing.assert_close(net(image, flow, mask), flow)
        zero = model(width=4)(image, flow, mask)
    assert zero[..., -1, -1].abs().max() == 0  # where the paper's start leaves it


def test_nothing_known_gives_zero() -> None:
    image, flow, mask = inputs()
    with torch.inference_mode():
        assert model(**SMALL)(image, flow * torch.nan, torch.zeros_like(mask)).count_nonzero() == 0


def test_levels_follow_the_size() -> None:
    paper, pulled = NeuroexplicitConfig(), NeuroexplicitConfig(start="pull")
    sizes = [(10, 10), (256, 200), (257, 17), (257, 16), (384, 384), (436, 1024), (2160, 3840), (1, 100_000)]
    assert [levels_of(*size, paper) for size in sizes] == [4] * 8
    assert [levels_of(*size, pulled) for size in sizes] == [4, 4, 5, 4, 5, 6, 8, 4]
    for size in sizes:
        levels = levels_of(*size, pulled)
        extended = extended_size(*size, levels)
        assert all(-(-side // 2 ** (levels - 1)) >= 2 for side in extended)
        assert extended == size or min(size) < 9  # thin images do not grow with their length
    assert per_level((5, 15, 30, 45), 6) == [5, 5, 5, 15, 30, 45]


def test_levels_beyond_the_networks_take_its_coarsest_map_averaged() -> None:
    net = model(width=4, start="pull")
    image = inputs(90, 520)[0]
    with torch.inference_mode():
        maps = maps_of(net, image)
        more = [z for z, _, _ in levels_of_maps(maps, image, net.lam, 6, net.config)]
    assert [tuple(z.shape[-2:]) for z in more] == [(3, 17), (6, 33), (12, 65), (23, 130), (45, 260), (90, 520)]
    for a, b in zip(maps, more[2:], strict=True):
        assert torch.equal(a, b)
    torch.testing.assert_close(more[1][..., 2, 3], maps[0][..., 4:6, 6:8].mean((-2, -1)))
    torch.testing.assert_close(more[1][..., 0, 32], maps[0][..., :2, 64].mean(-1))  # a border block lacks a column


def test_pull_keeps_what_is_known_and_averages_the_rest() -> None:
    f = torch.zeros(1, 1, 5, 7)
    c = torch.zeros_like(f)
    f[..., 1, 2], f[..., 4, 6] = 2, 4
    c[..., 1, 2] = c[..., 4, 6] = 1
    u = pull(data_term(f, c))
    assert u[..., 1, 2] == 2
    assert u[..., 4, 6] == 4
    assert u.min() >= 2  # interpolated, hence between the known ones
    assert u.max() <= 4
    assert u[..., 0, 0] < u[..., 4, 5]


def test_the_start_is_what_is_known_nearby() -> None:
    f, c = torch.zeros(1, 1, 20, 30, dtype=torch.float64), torch.zeros(1, 1, 20, 30, dtype=torch.float64)
    f[..., 10:, 15:] = 8
    c[..., 10:, :] = 1  # 0 to the left and 8 to the right; nothing is known of the upper half
    u = pull_start(data_term(f, c))
    assert torch.equal(u[..., 10:, :], f[..., 10:, :])
    assert u[..., :10, :8].max() < 2.5
    assert u[..., :10, -8:].min() > 5.5
    padded = torch.nn.functional.pad(u, (1, 1, 1, 1), mode="replicate")
    around = padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1] + padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
    assert (around / 4 - u)[..., :10, :].abs().max() < 0.05  # nearly harmonic


def test_the_guess_is_isotropic_diffusion_and_settles_to_the_mean_of_neighbours() -> None:
    _, flow, mask = inputs(30, 45, density=0.3)
    levels = push(data_term(flow, mask), 4)[::-1]
    start = pull_start(levels[0])
    guess = first_guess(start, levels, (5, 15, 60, 400))
    padded = torch.nn.functional.pad(guess, (1, 1, 1, 1), mode="replicate")
    around = padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1] + padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
    assert ((around / 4 - guess).abs() * ~mask).max() < 0.02  # fields are of size 8
    assert torch.equal(torch.where(mask, guess, 0), torch.where(mask, flow, 0))
    rough = first_guess(start, levels, (3, 4, 5, 6))
    assert (rough - guess).abs().mean() < 0.1 * flow.abs().mean()


def test_normalised_guess() -> None:
    f = torch.tensor([[1.0, 3.0, 5.0, 100.0], [10.0, 10.0, 10.0, 9.0]]).view(1, 2, 1, 4)
    c = torch.tensor([1.0, 1.0, 1.0, 0.0]).view(1, 1, 1, 4)
    m, deviation = statistics(f, c)
    torch.testing.assert_close(m.flatten(), torch.tensor([3.0, 10.0]))
    torch.testing.assert_close(deviation.flatten(), torch.tensor([4 / 3, 0.0]))
    g = normalised(f, f, c)
    torch.testing.assert_close(g[0, 0, 0], torch.tensor([-1.5, 0.0, 1.5, CLIP / 2]))
    torch.testing.assert_close(g[0, 1, 0], torch.tensor([0.0, 0.0, 0.0, -0.75]))


def test_normalised_guess_of_other_channel_counts() -> None:
    _, flow, mask = inputs(C=4)
    c, sizes = mask.double(), torch.tensor([1.0, 9.0, 0.1, 5.0]).view(1, 4, 1, 1)
    two = normalised(sizes * flow, sizes * flow, c)
    largest = (sizes * flow)[:, [1, 3]]
    m = statistics(largest, c)[0]
    scale = statistics(sizes * flow, c)[1].mean(1, keepdim=True)
    torch.testing.assert_close(two, ((largest - m) / scale).clamp(-CLIP, CLIP) / 2)
    one = normalised(flow[:, :1], flow[:, :1], c)
    assert one.shape[1] == 2
    assert one[:, 1].count_nonzero() == 0
    assert one[:, 0].count_nonzero() > 0


def test_normalised_guess_of_a_constant_field_is_calm() -> None:
    f, c = torch.full((1, 2, 6, 6), 0.1), torch.ones(1, 1, 6, 6)
    assert normalised(f + 1e-8 * torch.randn(f.shape), f, c).abs().max() < 0.5


def test_gradient_reaches_every_weight() -> None:
    net, (image, flow, mask) = model(**SMALL), inputs(300, 20)
    net(image, flow, mask).square().mean().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.count_nonzero() > 0, name


@pytest.mark.parametrize(
    "config",
    [
        {"start": "one"},
        {"time_step": "half"},
        {"guess_steps": (1, 2, 3)},
        {"guess_steps": (1, 2, 3, 0)},
        {"start": "pull", "learn_kernels": True},
    ],
)
def test_bad_configurations(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(config))):
        NeuroexplicitConfig(**config)
