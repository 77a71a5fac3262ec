"""Selection of backends, and their updates after weight changes, on the CPU."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.parametrizations import weight_norm

from flowinpaint.errors import InputError
from flowinpaint.neuroexplicit.backends.select import Kind
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import FLOW_AWARE, generator, moderate


def model(**config: Any) -> Neuroexplicit:
    fields = {"width": 4, "steps": (2, 3, 3, 7), **FLOW_AWARE, **config}
    return moderate(Neuroexplicit(NeuroexplicitConfig(**fields)), 2).eval()


def inputs(H: int = 20, W: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(0)
    image, flow = torch.rand(1, 3, H, W, generator=g), 8 * torch.randn(1, 2, H, W, generator=g)
    return image, flow, torch.rand(1, 1, H, W, generator=g) < 0.2


def ways(net: Neuroexplicit) -> list[Kind]:
    return list(net._backends._engines)


def distance(net: Neuroexplicit) -> float:
    """The mean distance of the selected backend from PyTorch's."""
    with torch.no_grad():
        fast = net(*inputs())
        net.backend = "torch"
        slow = net(*inputs())
        net.backend = "auto"
    return float((fast - slow).abs().mean())


def test_a_backend_that_is_none_is_refused() -> None:
    net = model()
    with pytest.raises(InputError, match="backend must be 'auto' or 'torch', got 'Torch'"):
        net.backend = "Torch"  # type: ignore[assignment]
    assert net.backend == "auto"
    net.backend = "torch"
    assert copy.deepcopy(net).backend == "torch"


def test_without_gradient_the_cpus_way_is_taken_and_with_it_the_models_own() -> None:
    net = model()
    assert net(*inputs()).requires_grad
    assert not ways(net)
    with torch.inference_mode():
        net(*inputs())
    assert ways(net) == ["cpu"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("change", ["float64", "+W", "half", "torch", "trace", "weight_norm"])
def test_what_no_engine_takes_goes_the_models_own_way(change: str) -> None:
    net = model(**({"learn_kernels": True, "start": "zero"} if change == "+W" else {}))
    given = inputs()
    if change == "float64":
        given = (given[0], given[1].double(), given[2])
    elif change == "half":
        net.bfloat16()
    elif change == "torch":
        net.backend = "torch"
    elif change == "weight_norm":
        weight_norm(net.dtm.cnv0)
    with torch.no_grad():
        if change == "trace":
            torch.jit.trace(net, given, check_trace=False)  # type: ignore[no-untyped-call]
        else:
            assert torch.isfinite(net(*given)).all()
    assert not ways(net)


def test_changed_replaced_and_moved_weights_are_followed() -> None:
    net = model()
    assert distance(net) < 0.02
    with torch.no_grad():
        net.dtm.cnv1.weight.mul_(3)
    assert distance(net) < 0.02
    net.dtm = copy.deepcopy(model(width=4).dtm)
    with torch.no_grad():
        net.dtm.dt1.bias.add_(1)  # type: ignore[union-attr]
    assert distance(net) < 0.02
    net.load_state_dict(model().state_dict(), assign=True)
    assert distance(net) < 0.02


def test_changes_behind_pytorchs_back_want_a_refresh() -> None:
    net = model()
    distance(net)
    for parameter in net.dtm.parameters():
        parameter.data.mul_(-1)
    assert distance(net) > 0.1
    net.refresh()
    assert distance(net) < 0.02


def test_weights_of_the_inference_mode_are_always_taken_anew() -> None:
    with torch.inference_mode():
        net = model()
        net(*inputs())
        for parameter in net.dtm.parameters():
            parameter.mul_(-1)
    assert distance(net) < 0.02


def test_modes_may_be_mixed() -> None:
    net = model()
    with torch.inference_mode():
        first = net(*inputs())
    with torch.no_grad():
        net.dtm.cnv0.weight.add_(0)  # counts as a change
        torch.testing.assert_close(net(*inputs()), first)
    with torch.inference_mode():
        torch.testing.assert_close(net(*inputs()), first)


def test_a_copy_has_engines_of_its_own() -> None:
    net = model()
    distance(net)
    twin = copy.deepcopy(net)
    assert ways(net)
    assert not ways(twin)
