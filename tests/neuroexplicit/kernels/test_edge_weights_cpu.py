"""Edge weights of the CPU's compiled loop against plain PyTorch."""

from typing import Any

import pytest
import torch

from flowinpaint.diffusion.kernels import cpu_strips
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.edge_weights import operator_of
from flowinpaint.neuroexplicit.kernels import edge_weights_cpu
from helpers import generator


@pytest.mark.parametrize("size", [(2, 2), (3, 9), (17, 2), (24, 31)])
@pytest.mark.parametrize("time_step", ["quarter", "bound"])
@pytest.mark.parametrize(("share", "floor"), [(1, 0.3), (1 << 15, 1e-12)])
def test_agrees_with_the_reference(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], time_step: Any, share: int, floor: float
) -> None:
    config = NeuroexplicitConfig(time_step=time_step, direction_floor=floor)
    z = torch.randn(2, 5, *size, generator=generator(3)) * 3
    z[:, 3:, 0, 0] = 0  # a vector without direction
    expected = operator_of(z, z[:, :3], torch.tensor(0.7), config)
    monkeypatch.setattr(cpu_strips, "SMALLEST_SHARE", share)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        ours = edge_weights_cpu.operator_of(z, z[:, :3], torch.tensor(0.7), config)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("change", [{"learn_alpha": False}, {"learn_eigenvalues": False}, {"learn_beta": True}])
def test_other_models_take_the_reference(change: dict[str, Any]) -> None:
    config = NeuroexplicitConfig(**change)
    g = generator(4)
    z, image = torch.randn(1, config.predicted, 8, 9, generator=g), torch.rand(1, 3, 8, 9, generator=g)
    lam = torch.tensor(1.3)
    ours, expected = edge_weights_cpu.operator_of(z, image, lam, config), operator_of(z, image, lam, config)
    assert torch.equal(ours[0], expected[0])
