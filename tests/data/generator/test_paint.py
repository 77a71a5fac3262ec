import torch

from flowinpaint.data.bank import PictureBank
from flowinpaint.data.generator.paint import Paint, background_labels, paint, pick
from flowinpaint.data.generator.picture_sampling import Pictures
from flowinpaint.data.generator.shapes import Covering
from scene_bank import pack

SIDE = 4
Y, X = torch.meshgrid(torch.arange(float(SIDE)), torch.arange(float(SIDE)), indexing="ij")
PLACE = torch.stack([X, Y])


def two_layers() -> tuple[torch.Tensor, torch.Tensor, PictureBank]:
    """A grey picture of 4×4 pixels, its labels being columns: as it is, and in red at half the brightness."""
    grey = torch.full((SIDE, SIDE, 3), 200, dtype=torch.uint8)
    labels = (10 * X).to(torch.uint8)
    bank = PictureBank(pack(grey, labels), *(torch.zeros(1, 3, 3, dtype=torch.int32) for _ in range(3)))
    one, zero = torch.ones(1, 2), torch.zeros(1, 2)
    gain = torch.tensor([[1.0, 0.5]])
    cold = torch.tensor([[1.0, 0.0]])
    table = Paint(one, zero, zero, one, zero, zero, gain, cold, cold, torch.tensor([[0.0, 0.1]]))
    pictures = Pictures(*(torch.full((1, 2), n, dtype=torch.int32) for n in (0, SIDE, SIDE)))
    return torch.stack(table, -1), torch.stack(pictures, -1), bank


def seen(coverage: float) -> Covering:
    front = torch.ones(1, SIDE, SIDE, dtype=torch.int32)
    return Covering(front, front - 1, front, torch.full((1, SIDE, SIDE), coverage))


def test_a_pixel_mixes_what_covers_it_with_what_is_behind() -> None:
    table, pictures, bank = two_layers()
    grey = 200 / 255
    behind, front = torch.tensor([grey, grey, grey]), torch.tensor([0.5 * grey + 0.1, 0.1, 0.1])
    for coverage in (0.0, 0.25, 1.0):
        image = paint(seen(coverage), table, pictures, bank.pixels, PLACE)
        expected = (1 - coverage) * behind + coverage * front
        torch.testing.assert_close(image, expected.view(1, 3, 1, 1).expand(1, 3, SIDE, SIDE))


def test_labels_are_those_of_the_background() -> None:
    table, pictures, bank = two_layers()
    assert torch.equal(background_labels(table, pictures, bank.pixels, PLACE)[0], (10 * X).int())


def test_pick_takes_each_scene_from_its_own_rows() -> None:
    table = torch.arange(12.0).view(2, 3, 2)
    index = torch.tensor([[[0, 2]], [[1, 1]]])
    first, second = pick(table, index)
    assert first.tolist() == [[[0, 4]], [[8, 8]]]
    assert second.tolist() == [[[1, 5]], [[9, 9]]]
