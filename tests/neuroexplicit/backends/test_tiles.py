"""The network in tiles against the network on the whole image."""

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.pyramid import extend
from flowinpaint.neuroexplicit.backends import tiles
from flowinpaint.neuroexplicit.backends.tiles import AFTER, BEFORE, spans_of, tiled_maps
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from helpers import generator, moderate


def small_network(decoder_kernel: int = 2, merge: bool = False, depth: int = 4) -> DiffusionTensorModule:
    """Random weights large enough that a far pixel still matters."""
    return moderate(DiffusionTensorModule(4, 2, 3, decoder_kernel, merge, depth=depth).double(), 2)


def whole_and_tiled(
    network: DiffusionTensorModule, size: tuple[int, int], tile: int
) -> tuple[list[Tensor], list[Tensor]]:
    x = torch.randn(2, 4, *size, generator=generator(1), dtype=torch.float64)
    padded = extend(x, *(-(-side // network.stride) * network.stride for side in size))
    with torch.no_grad():
        maps = tiled_maps(network, lambda rows, columns: padded[..., rows, columns], size, tile, network.stride)
        scales = [2 ** (len(maps) - 1 - k) for k in range(len(maps))]
        cut = [z[..., : -(-size[0] // s), : -(-size[1] // s)] for z, s in zip(network(padded), scales, strict=True)]
    return cut, maps


@pytest.mark.parametrize("size", [(16, 16), (31, 200), (250, 40), (190, 177)])
@pytest.mark.parametrize("tile", [16, 64, 128, 1000])
@pytest.mark.parametrize(("decoder_kernel", "merge"), [(1, False), (2, False), (2, True)])
def test_tiles_give_the_maps_of_the_whole(size: tuple[int, int], tile: int, decoder_kernel: int, merge: bool) -> None:
    for expected, ours in zip(*whole_and_tiled(small_network(decoder_kernel, merge), size, tile), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_tiles_give_the_maps_of_the_whole_of_a_deeper_network() -> None:
    for expected, ours in zip(*whole_and_tiled(small_network(merge=True, depth=5), (250, 300), 96), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "less"), [("BEFORE", 2), ("AFTER", 1)])
def test_a_narrower_halo_would_not_do(monkeypatch: pytest.MonkeyPatch, name: str, less: int) -> None:
    monkeypatch.setattr(tiles, name, less)
    expected, ours = whole_and_tiled(small_network(), (190, 177), 64)
    assert max(float((a - b).abs().max()) for a, b in zip(expected, ours, strict=True)) > 1e-9


@pytest.mark.parametrize(
    ("merge", "depth", "before", "after"),
    [(False, 4, 46, 30), (True, 4, 47, 31), (True, 5, 95, 63), (False, 6, 190, 126)],
)
def test_the_receptive_field_is_as_derived(merge: bool, depth: int, before: int, after: int) -> None:
    network, size = small_network(merge=merge, depth=depth), (448, 64)
    x = torch.randn(1, 4, *size, dtype=torch.float64, generator=generator(2))
    x.requires_grad_()
    core = slice(192, 256)
    total = torch.zeros((), dtype=torch.float64)
    for z, s in zip(network(x), (8, 4, 2, 1), strict=True):
        total = total + z[..., core.start // s : core.stop // s, :].square().sum()
    (gradient,) = torch.autograd.grad(total, x)
    rows = gradient.abs().amax((0, 1, 3)).nonzero()
    assert int(rows.min()) == core.start - before
    assert int(rows.max()) == core.stop + after
    assert before <= BEFORE * network.stride
    assert after < AFTER * network.stride


@pytest.mark.parametrize("length", [1, 16, 17, 436, 1024, 2161])
@pytest.mark.parametrize("tile", [1, 16, 100, 512, 5000])
@pytest.mark.parametrize("stride", [16, 64])
def test_spans_cover_the_length_once(length: int, tile: int, stride: int) -> None:
    spans = spans_of(length, tile, stride)
    end = -(-length // stride) * stride
    assert [i for span in spans for i in range(span.core.start, span.core.stop)] == list(range(end))
    for read, core in spans:
        assert core.stop - core.start <= max(tile, stride)
        assert read.start % stride == read.stop % stride == 0
        assert 0 <= read.start <= core.start < core.stop <= read.stop <= end


def test_no_tile_is_larger_than_asked() -> None:
    seen = []

    def read(rows: slice, columns: slice) -> Tensor:
        seen.append((rows.stop - rows.start, columns.stop - columns.start))
        return torch.zeros(1, 4, *seen[-1], dtype=torch.float64)

    with torch.no_grad():
        tiled_maps(small_network(), read, (300, 500), 64, 16)
    assert max(h for h, _ in seen) == 64 + 16 * (BEFORE + AFTER)
    assert max(w for _, w in seen) <= 64 + 16 * (BEFORE + AFTER)
