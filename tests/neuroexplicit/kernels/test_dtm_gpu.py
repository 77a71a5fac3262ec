"""The network in our own kernels against the module in float32.

Without a CUDA device Triton's interpreter runs the kernels on the CPU (conftest.py sets it).
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.errors import InputError
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from helpers import generator, moderate

pytest.importorskip("triton")
from flowinpaint.neuroexplicit.kernels.dtm_gpu import PackedDtm, pieces
from flowinpaint.neuroexplicit.kernels.dtm_gpu_packing import padded

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def module(
    in_channels: int = 6,
    out_channels: int = 5,
    width: int = 8,
    decoder_kernel: int = 2,
    merge: bool = False,
    fine_width: int = 0,
    depth: int = 4,
) -> DiffusionTensorModule:
    shape = in_channels, out_channels, width, decoder_kernel, merge, fine_width, depth
    return moderate(DiffusionTensorModule(*shape), 1).to(DEVICE)


def picture(channels: int, H: int, W: int, batch: int = 1, seed: int = 1) -> Tensor:
    """(B, channels, H, W) in float32, of values that float16 has."""
    return torch.randn(batch, channels, H, W, generator=generator(seed)).half().float().to(DEVICE)


def packed_input(x: Tensor, dtype: torch.dtype = torch.float16) -> Tensor:
    return F.pad(x.permute(0, 2, 3, 1), (0, 8 - x.shape[1])).to(dtype).contiguous()


def expected(dtm: DiffusionTensorModule, x: Tensor) -> list[Tensor]:
    """The module's maps as (B, h, w, channels)."""
    with torch.inference_mode():
        return [z.permute(0, 2, 3, 1) for z in dtm.double()(x.double())]


def distance(ours: Tensor, exact: Tensor) -> float:
    return float((ours[..., : exact.shape[-1]].double() - exact).norm() / exact.norm())


@pytest.mark.parametrize(
    ("shape", "size", "batch"),
    [
        ((6, 5, 48, 2), (16, 32), 2),
        ((3, 5, 44, 1), (32, 16), 1),
        ((8, 7, 5, 1), (16, 48), 1),
        ((1, 1, 24, 2), (32, 16), 1),
        ((6, 6, 48, 2, True, 32), (16, 32), 1),
        ((6, 5, 5, 1, True), (32, 16), 2),
        ((6, 6, 16, 2, True, 8, 6), (64, 64), 1),
        ((6, 5, 8, 2, False, 0, 5), (32, 32), 1),
    ],
)
def test_maps_are_the_modules(shape: tuple[Any, ...], size: tuple[int, int], batch: int) -> None:
    dtm = module(*shape)
    in_channels, out_channels = shape[:2]
    x = picture(in_channels, *size, batch=batch)
    maps = PackedDtm(dtm, torch.float16)(packed_input(x))
    exact = expected(dtm, x)
    assert [tuple(z.shape) for z in maps] == [(batch, size[0] // s, size[1] // s, 8) for s in (8, 4, 2, 1)]
    for z, y in zip(maps, exact, strict=True):
        assert z.dtype == torch.float16
        assert z.is_contiguous()
        assert distance(z, y) < 1e-3
        assert not z[..., out_channels:].any()


@pytest.mark.parametrize("merge", [False, True])
def test_pictures_of_a_batch_do_not_meet(merge: bool) -> None:
    dtm = PackedDtm(module(merge=merge), torch.float16)
    x = packed_input(picture(6, 16, 16, batch=2))
    together = dtm(x)
    for i in range(2):
        for whole, alone in zip(together, dtm(x[i : i + 1]), strict=True):
            assert torch.equal(whole[i : i + 1], alone)


def test_new_weights_come_to_the_same_place() -> None:
    dtm = module()
    packed = PackedDtm(dtm, torch.float16)
    places = [held["cnv0"].data_ptr() for held in (packed._weights, packed._biases)]
    with torch.no_grad():
        for parameter in dtm.parameters():
            parameter.mul_(1.1).add_(0.01)
    x = picture(6, 16, 16)
    before = packed(packed_input(x))
    packed.repack()
    assert [held["cnv0"].data_ptr() for held in (packed._weights, packed._biases)] == places
    exact = expected(dtm, x)
    for stale, z, y in zip(before, packed(packed_input(x)), exact, strict=True):
        assert distance(stale, y) > 0.05
        assert distance(z, y) < 1e-3


def test_what_passes_the_range_of_float16_stays_finite() -> None:
    dtm = module()
    x = picture(6, 16, 16)
    with torch.no_grad():
        for layer in (dtm.cnv0, dtm.cnv1, dtm.cnv1_1):
            layer.weight.mul_(1e3)
    assert any(float(z.abs().max()) > 65504 for z in expected(dtm, x))
    assert all(bool(z.isfinite().all()) for z in PackedDtm(dtm.float(), torch.float16)(packed_input(x)))


def test_packing_draws_no_random_numbers() -> None:
    dtm = module()
    torch.manual_seed(3)
    expected_next = torch.rand(1)
    torch.manual_seed(3)
    PackedDtm(dtm, torch.float16)
    assert torch.equal(torch.rand(1), expected_next)


def test_channels_in_memory() -> None:
    assert [padded(n) for n in (1, 16, 17, 33, 44, 48, 49, 88, 176, 352)] == [16, 16, 32, 48, 48, 48, 64, 96, 192, 384]


def test_all_channels_are_read_in_pieces() -> None:
    for channels in (16, 32, 48, 64, 96, 144, 192, 288, 384, 768):
        head, tail = pieces(channels)
        assert channels % (head + tail) == 0
        assert head & (head - 1) == tail & (tail - 1) == 0


def test_errors() -> None:
    with pytest.raises(InputError, match=r"dtype must be torch\.float16 or torch\.bfloat16, got torch\.float32"):
        PackedDtm(module(), torch.float32)
    with pytest.raises(InputError, match="dtm must have at most 8 input and 7 output channels, got 9 and 5"):
        PackedDtm(module(in_channels=9), torch.float16)
    with pytest.raises(InputError, match="dtm must have at most 8 input and 7 output channels, got 6 and 8"):
        PackedDtm(module(out_channels=8), torch.float16)
    dtm = PackedDtm(module(), torch.float16)
    fit = packed_input(picture(6, 16, 32))
    for x in (
        fit[:, :8].contiguous(),
        fit[:, :, :24].contiguous(),
        fit[..., :6].contiguous(),
        fit.float(),
        fit[:, :, ::2],
    ):
        with pytest.raises(InputError, match=r"^x must be contiguous torch\.float16 of shape"):
            dtm(x)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [(64, 128), (384, 384), (448, 1024)])
@pytest.mark.parametrize(("merge", "depth"), [(False, 4), (True, 4), (True, 6)])
def test_maps_on_the_device(dtype: torch.dtype, size: tuple[int, int], merge: bool, depth: int) -> None:
    dtm = module(width=48, merge=merge, fine_width=32 if merge else 0, depth=depth)
    x = picture(6, *size)
    for z, y in zip(PackedDtm(dtm, dtype)(packed_input(x, dtype)), expected(dtm, x), strict=True):
        assert distance(z, y) < (1e-3 if dtype == torch.float16 else 1e-2)


@pytest.mark.gpu
def test_a_graph_replays_it_with_new_weights() -> None:
    dtm = module(width=48)
    packed = PackedDtm(dtm, torch.float16)
    x = packed_input(picture(6, 64, 96))
    packed(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        maps = packed(x)
    with torch.no_grad():
        for parameter in dtm.parameters():
            parameter.mul_(1.1)
    packed.repack()
    graph.replay()
    for z, y in zip(maps, packed(x), strict=True):
        assert torch.equal(z, y)
