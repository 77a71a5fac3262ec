import dataclasses

import pytest
import torch

from flowinpaint.counter_rng import Draws
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.motion import Camera, Motions, draw_motions, flow_of

H, W = 40, 60
Y, X = torch.meshgrid(torch.arange(float(H)), torch.arange(float(W)), indexing="ij")
PLACE = torch.stack([X, Y])
NO_BEND = torch.zeros(1, 2, H, W)
NOWHERE = torch.zeros(1, H, W, dtype=torch.bool)


def camera(**parts: float) -> Camera:
    zero = dict.fromkeys(Camera._fields, 0.0) | parts
    return Camera(**{name: torch.tensor([value]) for name, value in zero.items()})


def layer(**parts: float) -> Motions:
    zero = dict.fromkeys(Motions._fields, 0.0) | {"inverse_depth": 1.0} | parts
    return Motions(**{name: torch.full((1, H, W), value) for name, value in zero.items()})


def test_a_camera_moves_near_layers_more() -> None:
    near, far = (flow_of(camera(tx=3), layer(inverse_depth=d), NOWHERE, NO_BEND, PLACE, 99) for d in (2.0, 0.5))
    assert torch.equal(near, torch.tensor([6.0, 0]).view(1, 2, 1, 1).expand(1, 2, H, W))
    assert torch.equal(far * 4, near)


def test_turning_the_camera_is_the_same_at_all_depths() -> None:
    turned = camera(turn_x=2, turn_y=-1, roll=3)
    near, far = (flow_of(turned, layer(inverse_depth=d), NOWHERE, NO_BEND, PLACE, 99) for d in (2.0, 0.5))
    assert torch.equal(near, far)
    assert near[0, :, 20, 30].tolist() == pytest.approx([2, -1], abs=0.1)


def test_approaching_expands_around_the_horizon_of_the_centre() -> None:
    flow = flow_of(camera(tz=5), layer(), NOWHERE, NO_BEND, PLACE, 99)
    assert flow[0, 0, :, 0].max() < 0 < flow[0, 0, :, -1].min()
    assert flow[0, 1, 0].max() < 0 < flow[0, 1, -1].min()


def test_the_ground_moves_faster_towards_the_camera_and_not_at_the_horizon() -> None:
    everywhere = torch.ones(1, H, W, dtype=torch.bool)
    flow = flow_of(camera(tz=5, ground=1, horizon=-0.2), layer(inverse_depth=9), everywhere, NO_BEND, PLACE, 99)
    below = flow[0, 1, 16:]
    assert (below.diff(dim=0) > 0).all()
    assert (below.diff(n=2, dim=0) > 0).all()  # quadratic, as the flow of a plane is
    assert flow[0, 1, 13].abs().max() < 0.05


def test_affine_motion_is_that_of_its_matrix() -> None:
    flow = flow_of(camera(), layer(x=10, y=5, vx=1, xx=0.1, xy=0.2, yx=-0.3, yy=0.4), NOWHERE, NO_BEND, PLACE, 99)
    dx, dy = X - 10, Y - 5
    expected = torch.stack([1 + 0.1 * dx + 0.2 * dy, -0.3 * dx + 0.4 * dy])[None]
    torch.testing.assert_close(flow, expected)


def test_bending_and_the_largest_motion() -> None:
    flow = flow_of(camera(), layer(bending=2, vx=50), NOWHERE, NO_BEND + 1, PLACE, 30)
    assert (flow[:, 0] == 30).all()
    assert (flow[:, 1] == 2).all()


def draw(config: LayeredConfig, scenes: int = 1500) -> tuple[Camera, Motions]:
    centres = torch.zeros(scenes, 6)
    return draw_motions(Draws(torch.arange(scenes)), config, (H, W), centres, centres)


def test_magnitudes_are_heavy_tailed_around_their_median() -> None:
    config = LayeredConfig(still=0, driving=0, parallax=0, magnitude=5, magnitude_spread=0.9)
    _, motions = draw(config)
    speed = motions.vx.abs().flatten()
    median = speed.median()
    assert median == pytest.approx(5 * 0.63, rel=0.15)
    assert (speed > 10 * median).float().mean() > 0.01  # of a normal distribution it would be 1e-11


def test_still_scenes_and_driving_scenes_come_as_often_as_asked() -> None:
    config = LayeredConfig(still=0.3, driving=0.5)
    cameras, motions = draw(config)
    still = (cameras.tx == 0) & (cameras.tz == 0) & (cameras.turn_x == 0)
    assert still.float().mean() == pytest.approx(0.3, abs=0.03)
    driving = cameras.ground > 0
    assert driving.float().mean() == pytest.approx(0.35, abs=0.03)
    assert (cameras.tz[driving] > 0).all()
    assert (motions.vx[driving] == 0).float().mean() > (motions.vx[~driving] == 0).float().mean() + 0.3


def test_layers_turn_without_being_sheared() -> None:
    _, motions = draw(LayeredConfig(parallax=0, driving=0, linear=0, rotation=0.05), 100)
    torch.testing.assert_close(motions.xy, -motions.yx)
    assert motions.yx.std() == pytest.approx(0.05, rel=0.15)
    assert (motions.xx == 0).all()


def test_nothing_moves_without_magnitude() -> None:
    config = dataclasses.replace(LayeredConfig(), magnitude=0.0, linear=0.0, rotation=0.0, roll=0.0)
    cameras, motions = draw(config, 50)
    picked = Motions(*(part[:, :1, None].expand(-1, H, W) for part in motions))
    flow = flow_of(cameras, picked, NOWHERE.expand(50, H, W), torch.ones(50, 2, H, W), PLACE, 99)
    assert (flow == 0).all()
