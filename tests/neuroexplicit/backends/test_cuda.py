"""The CUDA backend against PyTorch's: in Triton's interpreter, or on the device if there is one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import FLOW_AWARE, generator, moderate

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux only")
from flowinpaint.neuroexplicit.backends import cuda

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
CONFIGS: dict[str, dict[str, Any]] = {
    "flow-aware": FLOW_AWARE,
    "paper": {},
    "pull": {"start": "pull"},
    "-mu": {"learn_eigenvalues": False},
    "-v, pull": {"learn_eigenvectors": False, **FLOW_AWARE},
    "-alpha": {"learn_alpha": False},
    "+beta": {"learn_beta": True},
}


def model(seed: int = 0, **config: Any) -> Neuroexplicit:
    net = Neuroexplicit(NeuroexplicitConfig(**{"width": 4, "steps": (2, 3, 3, 7), **config}))
    return moderate(net, 2, seed).to(DEVICE).eval()


def inputs(B: int, C: int, H: int, W: int, density: float = 0.2) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(H + W)
    image = torch.rand(B, 3, H, W, generator=g)
    flow = 8 * torch.randn(B, C, H, W, generator=g) + 5
    mask = torch.rand(B, 1, H, W, generator=g) < density
    return image.to(DEVICE), flow.to(DEVICE), mask.to(DEVICE)


def run(backend: cuda.CudaBackend, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
    return backend(image, data_term(flow, mask))


def both(net: Neuroexplicit, given: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The fields of the CUDA backend and of PyTorch's."""
    net.backend = "torch"
    with torch.inference_mode():
        (ours, error), (expected, expected_error) = run(cuda.CudaBackend(net), *given), net.fill(*given)
    assert (error is None) == (not net.config.confidence)
    if error is not None:
        torch.testing.assert_close(error, expected_error, rtol=0.02, atol=0.02)
    return ours, expected


@pytest.mark.parametrize("name", CONFIGS)
def test_every_kind_of_model_equals_its_reference(name: str) -> None:
    given = inputs(1, 2, 13, 18)
    fast, slow = both(model(**CONFIGS[name]), given)
    assert (fast - slow).abs().mean() < 5e-3
    _, flow, mask = given
    assert torch.equal(torch.where(mask, fast, 0), torch.where(mask, flow, 0))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 3, 17, 16), (2, 1, 3, 15)])
def test_sizes_and_channels(shape: tuple[int, int, int, int]) -> None:
    fast, slow = both(model(**FLOW_AWARE), inputs(*shape))
    assert fast.shape == slow.shape
    assert (fast - slow).abs().mean() < 5e-3


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_nothing_and_everything_known(density: float) -> None:
    fast, slow = both(model(**FLOW_AWARE), inputs(1, 2, 13, 9, density))
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-4)


def test_what_is_not_known_is_not_read() -> None:
    image, flow, mask = inputs(1, 2, 13, 9)
    net = model(**FLOW_AWARE)
    clean, _ = both(net, (image, flow, mask))
    dirty, _ = both(net, (image, torch.where(mask, flow, torch.nan), mask))
    assert torch.equal(clean, dirty)


def test_tiles_of_the_network_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = model(**FLOW_AWARE), torch.randn(1, 96, 16, 8, generator=generator(0)).half().to(DEVICE)
    engine = cuda.CudaBackend(net)
    whole = engine._maps(x)
    monkeypatch.setattr(cuda, "MOST_NETWORK_PIXELS", 32 * 32)
    for a, b in zip(engine._maps(x), whole, strict=True):
        torch.testing.assert_close(a[..., :5], b[..., :5], rtol=0, atol=1e-3)
