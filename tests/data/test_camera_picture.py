import math

import torch

from flowinpaint.data.camera_picture import Light, draw_exposure, draw_light, expose, gaussian, illuminate, smear
from flowinpaint.data.layered_config import LayeredConfig
from flowinpaint.diffusion.tensor import gaussian_blur
from flowinpaint.draws import Draws

TWO = torch.arange(2)


def test_gaussian_blurs_each_image_by_its_own_deviation() -> None:
    image = torch.rand(2, 3, 40, 44, generator=torch.Generator().manual_seed(0))
    blurred = gaussian(image, torch.tensor([0.05, 1.4]))
    torch.testing.assert_close(blurred[0], image[0])
    inner = (..., slice(8, -8), slice(8, -8))
    torch.testing.assert_close(blurred[1:][inner], gaussian_blur(image[1:], 1.4)[inner], atol=2e-3, rtol=0)


def test_smearing_follows_the_flow_and_keeps_constants() -> None:
    image = torch.zeros(1, 3, 21, 21)
    image[..., 10, 10] = 1
    flow = torch.zeros(1, 2, 21, 21)
    flow[:, 0] = 12
    smeared = smear(image, flow, torch.tensor([0.5]), 12.0)[0, 0]
    assert smeared[10].sum() > 0.99
    assert (smeared[10] > 0).sum() >= 6
    assert smeared[9].sum() < 1e-5
    torch.testing.assert_close(smear(image + 1, flow * 9, torch.tensor([0.0]), 12.0), image + 1)
    long = smear(image, flow * 100, torch.tensor([1.0]), 4.0)[0, 0]
    assert (long[10] > 1e-3).nonzero().flatten().tolist()[0] >= 7  # at most 4 px, two to each side


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
