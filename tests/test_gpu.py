"""The same answers on a CUDA device as on the CPU."""

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.api import EXPLICIT
from flowinpaint.data.scene import sample_scene
from flowinpaint.neural.neuroexplicit import Neuroexplicit, NeuroexplicitConfig

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("method", [name for name in EXPLICIT if name != "opencv-ric"])  # never the same twice
def test_explicit_methods_agree(method: str) -> None:
    image, truth = sample_scene(96, 131)
    mask = fi.random_mask((96, 131), 0.05, 0)
    on = {device: fi.inpaint(image, truth, mask, method=method, device=device) for device in ("cpu", "cuda")}
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
        cpu = model(image, mask, flow)
        cuda = model.cuda()(image.cuda(), mask.cuda(), flow.cuda()).cpu()
    # Convolutions may run in TF32 there; the fields are some 5 px large.
    assert float((cpu - cuda).abs().mean()) < 0.02
    known = mask.expand_as(flow)
    assert torch.equal(cuda[known], flow[known])
