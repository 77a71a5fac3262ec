from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule, _upsample
from helpers import generator, golden, reference


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
@pytest.mark.parametrize("richer", [(), (True,), (True, 7), (False, 0, 5), (True, 7, 6)])
def test_shapes(in_channels: int, out_channels: int, width: int, decoder_kernel: int, richer: tuple[Any, ...]) -> None:
    dtm = DiffusionTensorModule(in_channels, out_channels, width, decoder_kernel, *richer)
    maps = dtm(torch.rand(2, in_channels, 64, 128))
    assert dtm.stride == 2 ** (richer[2] if len(richer) > 2 else 4)
    assert [tuple(z.shape) for z in maps] == [(2, out_channels, 64 // s, 128 // s) for s in (8, 4, 2, 1)]


def test_decoder_kernel_two_reaches_every_pixel_and_kernel_one_a_quarter() -> None:
    for kernel, reached in ((1, 0.25), (2, 1.0)):
        up = DiffusionTensorModule(decoder_kernel=kernel).dcnv4
        torch.nn.init.zeros_(up.bias)  # type: ignore[arg-type]
        share = (up(torch.rand(1, 352, 3, 4)) != 0).float().mean()
        assert float(share) == pytest.approx(reached, abs=1e-3)


@pytest.mark.parametrize("decoder_kernel", [1, 2])
def test_the_decoders_layers_are_the_transposed_convolutions_they_are_named(decoder_kernel: int) -> None:
    layer = DiffusionTensorModule(width=3, decoder_kernel=decoder_kernel).double().dcnv1
    x = torch.randn(2, 9, 5, 7, generator=generator(1), dtype=torch.float64, requires_grad=True)
    direction = torch.randn(2, 3, 10, 14, generator=generator(2), dtype=torch.float64)
    leaves = [x, *layer.parameters()]
    ours, expected = _upsample(layer, x, multiple=1), layer(x)
    torch.testing.assert_close(ours, expected)
    for a, b in zip(*(torch.autograd.grad(y, leaves, direction) for y in (ours, expected)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("decoder_kernel", [1, 2])
@pytest.mark.parametrize(
    ("in_channels", "width", "merge", "depth"),
    [(3, 44, False, 4), (6, 5, False, 4), (8, 3, True, 4), (3, 8, True, 4), (3, 5, False, 5), (3, 3, True, 5)],
)
def test_padded_channels_change_no_value_and_no_gradient(
    in_channels: int, width: int, merge: bool, depth: int, decoder_kernel: int
) -> None:
    torch.manual_seed(0)
    dtm = DiffusionTensorModule(in_channels, 5, width, decoder_kernel, merge, 5 if merge else 0, depth).double()
    x = torch.randn(1, in_channels, 32, 32, generator=generator(3), dtype=torch.float64, requires_grad=True)
    leaves = [x, *dtm.parameters()]
    results = []
    for pad_channels in (False, True):
        maps = dtm(x, pad_channels)
        loss = sum((z.square() * (k + 1)).sum() for k, z in enumerate(maps))
        results.append([*maps, *torch.autograd.grad(loss, leaves)])
    for plain, padded in zip(*results, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-9, atol=1e-9)


def test_padding_makes_every_convolution_one_of_eights(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    convolve = torch.nn.functional.conv2d

    def watch(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.extend(weight.shape[:2])
        return convolve(x, weight, *rest)

    monkeypatch.setattr("torch.nn.functional.conv2d", watch)
    dtm = DiffusionTensorModule()
    dtm(torch.rand(1, 3, 16, 16), True)
    assert len(seen) == 2 * 16
    assert all(count % 8 == 0 for count in seen)
    seen.clear()
    dtm(torch.rand(1, 3, 16, 16))
    assert 44 in seen
