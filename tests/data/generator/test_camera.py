import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from flowinpaint.counter_rng import Draws
from flowinpaint.data.generator.camera import (
    SMEAR_TAPS,
    Light,
    draw_exposure,
    draw_light,
    expose,
    gaussian,
    illuminate,
    smear,
)
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.diffusion.tensor import gaussian_blur

TWO = torch.arange(2)


def test_gaussian_blurs_each_image_by_its_own_deviation() -> None:
    image = torch.rand(2, 3, 40, 44, generator=torch.Generator().manual_seed(0))
    blurred = gaussian(image, torch.tensor([0.05, 1.4]))
    torch.testing.assert_close(blurred[0], image[0])
    inner = (..., slice(8, -8), slice(8, -8))
    torch.testing.assert_close(blurred[1:][inner], gaussian_blur(image[1:], 1.4)[inner], atol=2e-3, rtol=0)


def smeared(image: Tensor, flow: Tensor, shutter: float = 0.5, delay: float = 0.0, longest: float = 12.0) -> Tensor:
    return smear(image, flow, torch.tensor([shutter]), torch.tensor([delay]), longest)


def moving_square(speed: float) -> tuple[Tensor, Tensor, Tensor]:
    """A bright square, columns and rows 20 to 43 of 64, that moves to the right over a still, dark texture."""
    image = 0.1 * torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    flow = torch.zeros(1, 2, 64, 64)
    image[..., 20:44, 20:44] = 1
    flow[:, 0, 20:44, 20:44] = speed
    return image, flow, smeared(image, flow)


def test_smearing_follows_the_flow_and_keeps_constants() -> None:
    image = torch.zeros(1, 3, 21, 21)
    image[..., 10, 10] = 1
    flow = torch.zeros(1, 2, 21, 21)
    flow[:, 0] = 12
    line = smeared(image, flow)[0, 0]
    assert line[10].sum() > 0.99
    assert (line[10] > 0).sum() >= 6
    assert line[9].sum() < 1e-5
    long = smeared(image, flow * 100, 1.0, longest=4.0)[0, 0]
    assert (long[10] > 1e-3).nonzero().flatten().tolist()[0] >= 7  # at most 4 px, two to each side
    wild = 9 * torch.randn(1, 2, 21, 21, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(smeared(torch.full_like(image, 0.7), wild, delay=0.3), torch.full_like(image, 0.7))


@pytest.mark.parametrize("delay", [0.0, -0.5, 0.3])
def test_a_closed_shutter_changes_no_bit(delay: float) -> None:
    image, flow, _ = moving_square(24.0)
    assert torch.equal(smeared(image, flow, 0.0, delay), image)


@pytest.mark.parametrize("delay", [0.0, -0.5, 0.25, 0.5])
@pytest.mark.parametrize("path", [(6.0, 0.0), (-6.0, 6.0), (0.0, 12.0)])
def test_constant_motion_is_a_mean_along_it_that_the_delay_moves(path: tuple[float, float], delay: float) -> None:
    image = torch.rand(1, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    flow = 2 * torch.tensor(path).view(1, 2, 1, 1).expand(1, 2, 48, 48)
    blurred = smeared(image, flow, delay=delay)
    times = [i / (SMEAR_TAPS - 1) - 0.5 + delay for i in range(SMEAR_TAPS)]
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    grids = [torch.stack([x - s * path[0], y - s * path[1]], -1) * (2 / 47) - 1 for s in times]
    seen = [grid_sample(image, grid[None], padding_mode="border", align_corners=True) for grid in grids]
    torch.testing.assert_close(blurred, torch.stack(seen).mean(0), atol=2e-5, rtol=0)


def test_what_moves_is_smeared_over_what_does_not() -> None:
    image, _, blurred = moving_square(24.0)  # a path of 12 px, 6 to each side
    row = blurred[0, 0, 32]
    for inner in (row[12:28], row[36:52].flip(0)):  # from 8 px outside to 8 px inside, at either border
        assert (inner.diff() >= -0.1).all()
        torch.testing.assert_close(inner[[7, 8]].mean(), torch.tensor(0.52), atol=0.03, rtol=0)
        assert 0.1 < inner[4] < 0.4
        assert 0.6 < inner[11] < 0.9
    assert torch.equal(blurred[..., :13], image[..., :13])
    assert torch.equal(blurred[..., 51:], image[..., 51:])
    assert torch.equal(blurred[..., :20, :], image[..., :20, :])  # nothing moves across its upper border
    assert (row[27:37] == 1).all()


def test_what_is_still_shows_its_own_texture_beside_what_moves() -> None:
    image, flow, _ = moving_square(24.0)
    image[..., 20:44, 20:44] = 0
    still = smeared(image, flow)[..., 20:44, 10:20]
    share = still / image[..., 20:44, 10:20]
    assert (share.std((0, 1, 2)) < 1e-4).all()  # the texture of each column, darker the nearer to the square


@pytest.mark.parametrize("delay", [-0.5, -0.25, 0.25, 0.5])
def test_a_later_exposure_sees_things_farther_along_their_motion(delay: float) -> None:
    image, flow, _ = moving_square(24.0)
    middle, moved = smeared(image, flow)[0, 0, 32], smeared(image, flow, delay=delay)[0, 0, 32]
    length = round(12 * delay)
    torch.testing.assert_close(moved[13 + length : 51 + length], middle[13:51], atol=0.1, rtol=0)
    assert torch.equal(moved[: 13 + length], image[0, 0, 32, : 13 + length])
    assert torch.equal(moved[51 + length :], image[0, 0, 32, 51 + length :])


def test_slow_things_are_not_smeared_farther_than_they_move() -> None:
    image = torch.zeros(1, 3, 9, 64)
    flow = torch.zeros(1, 2, 9, 64)
    image[..., 28:36] = 1
    flow[:, 0, :, 28:36] = 4
    flow[:, 0, :, 44:] = 24
    row = smeared(image, flow)[0, 0, 4]
    assert (row[:27] == 0).all()
    assert (row[37:40] == 0).all()


def test_shadows_darken_some_of_the_image_with_a_hard_edge() -> None:
    config = LayeredConfig(shadow=1, shadow_depth=(0.5, 0.5), shadow_sharpness=(60, 60))
    clouds = torch.linspace(-2, 2, 200).view(1, 1, 1, 200).expand(2, 1, 4, 200)
    lit = illuminate(torch.ones(2, 3, 4, 200), draw_light(Draws(TWO), config), torch.zeros_like(clouds), clouds)
    assert set(lit[:, :, :, [0, -1]].flatten().tolist()) == {0.5, 1.0}
    assert ((lit > 0.5) & (lit < 1)).float().mean() < 0.03
    none = draw_light(Draws(TWO), LayeredConfig(shadow=0))
    assert (illuminate(torch.ones(2, 3, 4, 200), none, torch.zeros_like(clouds), clouds) == 1).all()


def test_shading_multiplies() -> None:
    dark = Light(*(torch.zeros(1, 1, 1, 1) for _ in range(3)))
    shade = torch.full((1, 1, 2, 2), math.log(2.0))
    torch.testing.assert_close(
        illuminate(torch.full((1, 3, 2, 2), 0.3), dark, shade, shade), torch.full((1, 3, 2, 2), 0.6)
    )


def test_exposure_stays_in_range_and_noise_has_its_deviation() -> None:
    wild = torch.randn(2, 3, 30, 30, generator=torch.Generator().manual_seed(0)) * 3
    exposed = expose(wild, draw_exposure(Draws(TWO), LayeredConfig()))
    assert 0 <= exposed.min() <= exposed.max() <= 1
    config = LayeredConfig(gamma=0, noise=(0.03, 0.03))
    grey = expose(torch.full((2, 3, 60, 60), 0.5), draw_exposure(Draws(TWO), config))
    assert abs(grey.std() - 0.03) < 0.002
    assert abs(grey.mean() - 0.5) < 0.002
