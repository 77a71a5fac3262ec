import pytest
import torch

from flowinpaint.diffusion.data_term import DataTerm, data_term, pool
from flowinpaint.diffusion.pyramid import downsample_image, image_pyramid, push, upsample
from helpers import generator


def test_coarse_vectors_are_averages_of_known_ones() -> None:
    f = torch.tensor([[1.0, 3.0, 7.0, 0.0], [0.0, 5.0, 0.0, 0.0]])[None, None]
    c = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]])[None, None]
    coarse, known, _ = pool(data_term(f, c))
    assert coarse.tolist() == [[[[3.0, 7.0]]]]
    assert known.tolist() == [[[[True, True]]]]


def test_a_block_without_known_vectors_is_unknown_and_zero() -> None:
    coarse, known = pool(data_term(torch.full((1, 2, 2, 2), 9.0), torch.zeros(1, 1, 2, 2)))[:2]
    assert not coarse.any()
    assert not known.any()


def test_odd_sizes_round_up_and_border_blocks_use_what_they_have() -> None:
    f = torch.arange(15.0).view(1, 1, 3, 5)
    coarse, known, _ = pool(data_term(f, torch.ones(1, 1, 3, 5)))
    expected = [[[[3.0, 5.0, 6.5], [10.5, 12.5, 14.0]]]]
    assert coarse.tolist() == expected
    assert known.all()
    assert downsample_image(f).tolist() == expected


def test_values_where_nothing_is_known_do_not_matter() -> None:
    f = torch.randn(1, 2, 6, 6, generator=generator(0))
    c = (torch.rand(1, 1, 6, 6, generator=generator(1)) < 0.3).float()
    spoiled = torch.where(c > 0, f, float("nan"))
    for clean, dirty in zip(push(data_term(f, c), 3), push(data_term(spoiled, c), 3), strict=True):
        assert torch.equal(clean.f, dirty.f)


@pytest.mark.parametrize(("size", "expected"), [((16, 24), (2, 3)), ((17, 25), (3, 4)), ((9, 1), (2, 1))])
def test_level_sizes_halve_rounding_up(size: tuple[int, int], expected: tuple[int, int]) -> None:
    pyramid = push(data_term(torch.rand(2, 4, *size), torch.ones(2, 1, *size)), 4)
    assert [tuple(level.f.shape[:2]) for level in pyramid] == [(2, 4)] * 4
    coarsest = pyramid[-1].f, pyramid[-1].known, image_pyramid(torch.rand(2, 3, *size), 4)[0]
    assert all(x.shape[-2:] == expected for x in coarsest)


def test_upsampling_keeps_a_linear_field_in_the_interior() -> None:
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(8.0), indexing="ij")
    fine = upsample((2 * x + y)[None, None], DataTerm(torch.zeros(1, 1, 11, 16), torch.zeros(1, 1, 11, 16).bool()))
    assert fine.shape == (1, 1, 11, 16)
    Y, X = torch.meshgrid((torch.arange(11.0) - 0.5) / 2, (torch.arange(16.0) - 0.5) / 2, indexing="ij")
    torch.testing.assert_close(fine[0, 0, 1:-1, 1:-1], (2 * X + Y)[1:-1, 1:-1])
