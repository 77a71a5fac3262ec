import pytest
import torch
from safetensors.torch import load_file

from flowinpaint.neural.dtm import DiffusionTensorModule
from helpers import golden, reference


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_papers_module_has_the_papers_parameter_count() -> None:
    assert parameters(DiffusionTensorModule()) == 1_308_404


def test_outputs_equal_the_authors() -> None:
    data = golden("model.npz")
    dtm = DiffusionTensorModule()
    dtm.load_state_dict(load_file(reference("golden/authors/dtm_weights.safetensors")))
    with torch.inference_mode():
        maps = dtm(data["image"])
    assert len(maps) == 4
    for level, z in enumerate(maps):
        torch.testing.assert_close(z, data[f"z_coarse_to_fine_{level}"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("decoder_kernel", [1, 2])
@pytest.mark.parametrize(("in_channels", "out_channels", "width"), [(3, 5, 44), (3, 5, 48), (6, 4, 8)])
def test_shapes(in_channels: int, out_channels: int, width: int, decoder_kernel: int) -> None:
    dtm = DiffusionTensorModule(in_channels, out_channels, width, decoder_kernel)
    maps = dtm(torch.rand(2, in_channels, 32, 48))
    assert [tuple(z.shape) for z in maps] == [(2, out_channels, 32 // s, 48 // s) for s in (8, 4, 2, 1)]


def test_decoder_kernel_two_reaches_every_pixel_and_kernel_one_a_quarter() -> None:
    for kernel, reached in ((1, 0.25), (2, 1.0)):
        up = DiffusionTensorModule(decoder_kernel=kernel).dcnv4
        torch.nn.init.zeros_(up.bias)  # type: ignore[arg-type]
        share = (up(torch.rand(1, 352, 3, 4)) != 0).float().mean()
        assert float(share) == pytest.approx(reached, abs=1e-3)
