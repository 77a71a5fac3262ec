from typing import Any

import pytest
import torch

from flowinpaint.baselines.wgain.config import WGAINConfig
from flowinpaint.baselines.wgain.module import WGAIN
from flowinpaint.baselines.wgain.objective import Critic
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from helpers import generator

SMALL = WGAINConfig(width=2)


def inputs(C: int, H: int, W: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = generator(4)
    image, flow = torch.rand(2, 3, H, W, generator=g), 5 * torch.randn(2, C, H, W, generator=g)
    return image, flow, (torch.rand(2, 1, H, W, generator=g) < 0.2).float()


def test_generator_and_critic_have_the_papers_numbers_of_parameters() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in WGAIN().parameters()) == 11_505_882
        assert sum(p.numel() for p in Critic((384, 384)).parameters()) == 5_992_705


@pytest.mark.parametrize(("C", "H", "W"), [(2, 24, 24), (1, 37, 19), (3, 9, 20), (2, 1, 1)])
def test_any_size_and_any_channels_and_the_known_are_kept(C: int, H: int, W: int) -> None:
    image, flow, mask = inputs(C, H, W)
    filled = WGAIN(SMALL)(image, flow, mask)
    assert filled.shape == flow.shape
    known = (mask > 0).expand_as(flow)
    assert torch.equal(filled[known], flow[known])


def test_the_seed_decides_and_only_where_nothing_is_known() -> None:
    image, flow, mask = inputs(2, 24, 24)
    network = WGAIN(SMALL)
    first, again, other = (network.complete(image, flow, mask, seed=seed).field for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    full = torch.ones_like(mask)
    generated = [network.generate(image, flow, full, Draws(torch.arange(2), s).normal((2, 24, 24))) for s in (1, 2)]
    assert torch.equal(*generated)


@pytest.mark.parametrize("seed", [1.5, "1", True, None, -1, 2**63])
def test_seeds_that_are_none_are_refused(seed: Any) -> None:
    with pytest.raises(InputError, match=r"^seed must be an integer from 0 to 2⁶³ - 1, got "):
        WGAIN(SMALL).complete(*inputs(2, 24, 24), seed=seed)


def test_what_is_not_known_has_no_influence() -> None:
    image, flow, mask = inputs(2, 24, 24)
    network = WGAIN(SMALL)
    assert torch.equal(network(image, torch.where(mask > 0, flow, torch.nan), mask), network(image, flow, mask))


def test_fields_scale_with_the_scale() -> None:
    image, flow, mask = inputs(2, 24, 24)
    torch.manual_seed(0)
    network, other = WGAIN(SMALL), WGAIN(WGAINConfig(width=2, scale=1000.0))
    other.load_state_dict(network.state_dict())
    noise = torch.zeros_like(flow)
    torch.testing.assert_close(
        other.generate(image, 10 * flow, mask, noise),
        10 * network.generate(image, flow, mask, noise),
        rtol=1e-3,
        atol=1e-3,
    )


@pytest.mark.parametrize("size", [(384, 384), (64, 96), (12, 7)])
def test_the_critic_judges_each_sample_by_itself(size: tuple[int, int]) -> None:
    critic = Critic(size)
    g = generator(5)
    image, field, mask = (torch.rand(2, n, *size, generator=g) for n in (3, 2, 1))
    verdicts = critic(image, field, mask)
    assert verdicts.shape == (2,)
    torch.testing.assert_close(critic(image[1:], field[1:], mask[1:]), verdicts[1:], rtol=1e-4, atol=1e-5)


def test_bad_configurations_are_refused() -> None:
    for wrong in ({"width": 0}, {"scale": 0.0}, {"noise": -1.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            WGAINConfig(**wrong)
    with pytest.raises(InputError, match=r"size must have sides of at least 7 for a critic, got .*6"):
        Critic((6, 64))
