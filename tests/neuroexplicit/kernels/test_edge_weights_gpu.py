"""Triton kernels for edge weights from the network's maps, and their gradients, against `process` in plain PyTorch.

Without a CUDA device Triton's interpreter runs them on the CPU (conftest.py sets it).
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.pyramid import downsample_image
from flowinpaint.errors import InputError
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.edge_weights import operator_of
from helpers import generator

pytest.importorskip("triton")
from flowinpaint.neuroexplicit.kernels.edge_weights_gpu import edge_weights, quarter_edge_weights

FLOOR = 0.01
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def network_maps(size: tuple[int, int], batch: int = 2, channels: int = 8, dtype: torch.dtype = torch.float32) -> Any:
    """Four maps, coarse to fine, of an image padded to a multiple of 16; vectors of some pixels are exactly zero."""
    H, W = (-(-n // 16) * 16 for n in size)
    g = generator(H + W)
    maps = [2 * torch.randn(batch, H >> k, W >> k, channels, generator=g) for k in (3, 2, 1, 0)]
    for z in maps:
        z[..., 3:] *= torch.rand(z.shape[:-1], generator=g)[..., None] > 0.1
    return [z.to(DEVICE, dtype) for z in maps]


def plain(z: Tensor, lam: Tensor, floor: float = FLOOR) -> Tensor:
    """The weights of z (B, 5, h, w) in float64."""
    config = NeuroexplicitConfig(time_step="quarter", direction_floor=floor)
    return operator_of(z.double(), z.new_zeros(len(z), 3, *z.shape[-2:], dtype=torch.float64), lam, config)[0]


def plain_levels(maps: list[Tensor], lam: Tensor, size: tuple[int, int], levels: int) -> list[Tensor]:
    z = [m[..., :5].permute(0, 3, 1, 2).double() for m in maps]
    z = [m[..., : (size[0] - 1 >> k) + 1, : (size[1] - 1 >> k) + 1] for m, k in zip(z, (3, 2, 1, 0), strict=True)]
    while len(z) < levels:
        z.insert(0, downsample_image(z[0]))
    return [plain(m, lam[max(0, k - levels + 4)]) for k, m in enumerate(z)]


LAM = torch.tensor([0.3, 1.0, 2.0, -0.7], device=DEVICE)


@pytest.mark.parametrize(("size", "levels"), [((17, 9), 4), ((16, 33), 5), ((1, 20), 4), ((5, 1), 4), ((70, 37), 6)])
def test_all_levels_are_those_of_plain_pytorch(size: tuple[int, int], levels: int) -> None:
    maps = network_maps(size, batch=2 if levels < 6 else 1)
    ours = edge_weights(maps, LAM, size, levels, FLOOR, torch.float32)
    expected = plain_levels(maps, LAM, size, levels)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_maps_in_half_precision_lose_only_what_the_result_cannot_hold(dtype: torch.dtype) -> None:
    maps = network_maps((18, 30), batch=1, dtype=dtype)
    ours = edge_weights(maps, LAM, (18, 30), 5, FLOOR)
    for a, b in zip(ours, plain_levels(maps, LAM, (18, 30), 5), strict=True):
        assert a.dtype == torch.float16
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-6)


def test_views_start_at_equally_aligned_addresses() -> None:
    for weights in edge_weights(network_maps((3, 5), batch=1), LAM, (3, 5), 5, FLOOR):
        assert weights.storage_offset() % 16 == 0


def test_time_steps_of_each_level_and_image() -> None:
    maps, size = network_maps((9, 7)), (9, 7)
    tau = torch.rand(5, 2, generator=generator(1)).to(DEVICE)
    quarters = edge_weights(maps, LAM, size, 5, FLOOR, torch.float32)
    for weights, quarter, t in zip(
        edge_weights(maps, LAM, size, 5, FLOOR, torch.float32, tau), quarters, tau, strict=True
    ):
        torch.testing.assert_close(weights, 4 * t.view(2, 1, 1, 1) * quarter)


def test_what_lies_beyond_the_level_is_not_read() -> None:
    maps, size = network_maps((10, 7), batch=1), (10, 7)
    before = edge_weights(maps, LAM, size, 5, FLOOR)
    for z, k in zip(maps, (3, 2, 1, 0), strict=True):
        z[:, (size[0] - 1 >> k) + 1 :] = torch.nan
        z[:, :, (size[1] - 1 >> k) + 1 :] = torch.nan
        z[..., 5:] = torch.nan
    for a, b in zip(edge_weights(maps, LAM, size, 5, FLOOR), before, strict=True):
        assert torch.equal(a, b)


def values_and_gradients(function: Any, z: Tensor, lam: Tensor) -> list[Tensor]:
    z, lam = z.detach().requires_grad_(), lam.detach().requires_grad_()
    weights = function(z, lam)
    direction = torch.randn(weights.shape, generator=generator(9), dtype=torch.float64).to(z.device)
    return [weights.detach(), *torch.autograd.grad(weights, (z, lam), direction.to(weights.dtype))]


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (6, 1), (2, 2), (13, 21)])
@pytest.mark.parametrize(("layout", "floor"), [("channels first", FLOOR), ("channels last", 1e-12), ("a slice", 0.3)])
def test_gradients_are_those_of_plain_pytorch(size: tuple[int, int], layout: str, floor: float) -> None:
    (z,) = network_maps(size, channels=8 if layout == "a slice" else 5)[3:]
    z = z[:, : size[0], : size[1], :5]
    z = z.contiguous() if layout == "channels last" else z
    z = z.permute(0, 3, 1, 2).contiguous() if layout == "channels first" else z.permute(0, 3, 1, 2)
    ours = values_and_gradients(partial(quarter_edge_weights, direction_floor=floor), z, LAM[3])
    expected = values_and_gradients(partial(plain, floor=floor), z, LAM[3].double())
    for a, b in zip(ours, expected, strict=True):
        assert a.dtype == torch.float32
        # Where the vector is exactly zero its gradient is divided by the floor.
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-5)


def test_gradients_of_half_precision_keep_its_type() -> None:
    z = network_maps((16, 16), channels=5, dtype=torch.bfloat16)[3].permute(0, 3, 1, 2)
    weights, grad_z, grad_lam = values_and_gradients(partial(quarter_edge_weights, direction_floor=FLOOR), z, LAM[0])
    expected = values_and_gradients(plain, z.float(), LAM[0].double())
    assert (weights.dtype, grad_z.dtype, grad_lam.dtype) == (torch.float32, torch.bfloat16, torch.float32)
    torch.testing.assert_close(grad_z.float(), expected[1], rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(grad_lam.double(), expected[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"maps": network_maps((16, 16))[:2]}, "maps"),
        ({"maps": [*network_maps((16, 16))[1:], network_maps((16, 16))[3]]}, "maps"),
        ({"maps": network_maps((16, 16), channels=4)}, "maps"),
        ({"lam": LAM[:3]}, "lam"),
        ({"lam": LAM.double()}, "lam"),
        ({"size": (17, 16)}, "size"),
        ({"levels": 3}, "levels"),
        ({"maps": network_maps((16, 16))[3:], "lam": LAM[:1]}, "levels"),
        ({"tau": LAM}, "tau"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], argument: str) -> None:
    arguments = {"maps": network_maps((16, 16)), "lam": LAM, "size": (16, 16), "levels": 4, "direction_floor": FLOOR}
    with pytest.raises(InputError, match=rf"^{argument}(\[\d\])? must .*, got "):
        edge_weights(**(arguments | change))


@pytest.mark.gpu
def test_sizes_of_frames() -> None:
    for size, levels in [((384, 384), 4), ((436, 1024), 5), ((1081, 1919), 6)]:
        maps = network_maps(size, dtype=torch.float16)
        ours = edge_weights(maps, LAM, size, levels, FLOOR)
        for a, b in zip(ours, plain_levels(maps, LAM, size, levels), strict=True):
            torch.testing.assert_close(a.double(), b, rtol=2e-3, atol=1e-6)
