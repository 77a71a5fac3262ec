import pytest
import torch

from flowinpaint.baselines.flownets.config import FlowNetSConfig
from flowinpaint.baselines.flownets.module import STRIDE, SUPERVISED, FlowNetS
from flowinpaint.errors import InputError
from helpers import generator

SMALL = FlowNetSConfig(width=4)


def inputs(C: int, H: int, W: int, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = generator(3)
    image, flow = torch.rand(batch, 3, H, W, generator=g), 5 * torch.randn(batch, C, H, W, generator=g)
    return image, flow, (torch.rand(batch, 1, H, W, generator=g) < 0.2).float()


def test_it_has_the_papers_number_of_parameters() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in FlowNetS().parameters()) == 8_835_728


@pytest.mark.parametrize(("C", "H", "W"), [(2, 64, 64), (1, 37, 91), (3, 65, 20), (5, 1, 1)])
def test_any_size_and_any_channels_and_the_known_are_kept(C: int, H: int, W: int) -> None:
    image, flow, mask = inputs(C, H, W)
    filled = FlowNetS(SMALL)(image, flow, mask)
    assert filled.shape == flow.shape
    known = (mask > 0).expand_as(flow)
    assert torch.equal(filled[known], flow[known])


def test_what_is_not_known_has_no_influence() -> None:
    image, flow, mask = inputs(2, 48, 70)
    network = FlowNetS(SMALL)
    other = torch.where(mask > 0, flow, torch.nan)
    assert torch.equal(network(image, other, mask), network(image, flow, mask))


def test_predictions_halve_from_full_resolution() -> None:
    image, flow, mask = inputs(2, 100, 130)
    sizes = [tuple(p.shape[-2:]) for p in FlowNetS(SMALL).predictions(image, flow, mask)]
    assert sizes == [(2 * STRIDE // 2**k, 3 * STRIDE // 2**k) for k in range(SUPERVISED)]


def test_gradients_reach_every_weight() -> None:
    network = FlowNetS(SMALL)
    sum(p.square().mean() for p in network.predictions(*inputs(2, 64, 64))).backward()  # type: ignore[union-attr]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_channels_are_taken_pair_by_pair() -> None:
    image, flow, mask = inputs(4, 64, 64)
    network = FlowNetS(SMALL).eval()
    parts = [network(image, flow[:, k : k + 2], mask) for k in (0, 2)]
    torch.testing.assert_close(network(image, flow, mask), torch.cat(parts, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [0, 3, 513])
def test_bad_widths_are_refused(width: int) -> None:
    with pytest.raises(InputError, match=f"width must be an even number from 2 to 512, got {width}"):
        FlowNetSConfig(width=width)
