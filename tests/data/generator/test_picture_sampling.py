import torch

from flowinpaint.data.bank import SIZES, PictureBank
from flowinpaint.data.generator.picture_sampling import (
    Pictures,
    choose,
    colours,
    distances,
    labels,
    mirrored,
)
from scene_bank import pack


def bank_of(colour: torch.Tensor, extra: torch.Tensor) -> tuple[PictureBank, Pictures]:
    """One picture behind some pixels of another, at full size only."""
    H, W = extra.shape
    pixels = torch.cat([torch.full((7,), -1, dtype=torch.int32), pack(colour, extra)])
    table = torch.tensor([[[7, H, W]] * SIZES], dtype=torch.int32)
    one = Pictures(*(torch.tensor([n], dtype=torch.int32) for n in (7, H, W)))
    return PictureBank(pixels, table, table, table), one


def ramp(H: int, W: int) -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    return torch.stack([10 * x, 10 * y, 200 - 5 * x], -1).to(torch.uint8)


def test_colours_interpolate_a_plane_exactly() -> None:
    bank, one = bank_of(ramp(6, 9), torch.zeros(6, 9, dtype=torch.uint8))
    x, y = torch.tensor([0.0, 3.25, 8.0, 7.5]), torch.tensor([0.0, 4.5, 5.0, 0.125])
    expected = torch.stack([10 * x, 10 * y, 200 - 5 * x], -1) / 255
    torch.testing.assert_close(colours(bank.pixels, one, x, y), expected)


def test_places_outside_read_the_border_and_never_another_picture() -> None:
    bank, one = bank_of(ramp(3, 4), torch.full((3, 4), 9, dtype=torch.uint8))
    x, y = torch.tensor([-50.0, 50.0, 1e9]), torch.tensor([50.0, -50.0, 1e9])
    corner = torch.tensor([[0, 20, 200], [30, 0, 185], [30, 20, 185]]) / 255
    torch.testing.assert_close(colours(bank.pixels, one, x, y), corner)
    assert labels(bank.pixels, one, x, y).tolist() == [9, 9, 9]


def test_mirrored_folds_a_line_into_a_picture() -> None:
    x = torch.tensor([-5.0, -1.5, 0, 2.25, 4, 5, 7.5, 8, 9])
    assert mirrored(x, torch.tensor(5)).tolist() == [3, 1.5, 0, 2.25, 4, 3, 0.5, 0, 1]
    assert (mirrored(torch.linspace(-9, 9, 50), torch.tensor(1)) <= 1).all()


def test_labels_take_the_heaviest_and_never_mix() -> None:
    extra = torch.tensor([[10, 200], [10, 90]], dtype=torch.uint8)
    bank, one = bank_of(torch.zeros(2, 2, 3, dtype=torch.uint8), extra)
    x = torch.tensor([0.1, 0.9, 0.9, 0.6])
    y = torch.tensor([0.1, 0.2, 0.9, 0.5])
    # At (0.6, 0.5) the two pixels of label 10 weigh 0.4 together and the others 0.3 each.
    assert labels(bank.pixels, one, x, y).tolist() == [10, 200, 90, 10]


def test_distances_are_decoded() -> None:
    extra = torch.tensor([[128, 132], [128, 132]], dtype=torch.uint8)
    bank, one = bank_of(torch.zeros(2, 2, 3, dtype=torch.uint8), extra)
    assert distances(bank.pixels, one, torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 0.5, 0])).tolist() == [
        0,
        0.5,
        1,
    ]


def test_choose_takes_a_reduced_size_so_that_no_pixel_is_skipped() -> None:
    table = torch.tensor([[[0, 64, 48], [3072, 32, 24], [3840, 16, 12]]], dtype=torch.int32)
    scale = torch.tensor([0.3, 1.0, 1.6, 2.0, 4.0, 9.0])
    pictures, left = choose(table, torch.zeros(6, dtype=torch.int64), scale)
    assert pictures.height.tolist() == [64, 64, 32, 32, 16, 16]
    torch.testing.assert_close(left, torch.tensor([0.3, 1, 0.8, 1, 1, 2.25]))
