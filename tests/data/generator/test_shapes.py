import math

import pytest
import torch

from flowinpaint.counter_rng import Draws
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.picture_sampling import Pictures
from flowinpaint.data.generator.shapes import (
    BLOB,
    BOX,
    CUTOUT,
    RING,
    Covering,
    Shapes,
    cover,
    cutout_distance,
    draw_shapes,
    drawn_distance,
)
from scene_bank import tiny_bank

Y, X = torch.meshgrid(torch.arange(80.0), torch.arange(100.0), indexing="ij")


def one_shape(kind: int, across: float, along: float, angle: float = 0.0, bumps: tuple[float, ...] = ()) -> Shapes:
    numbers = (torch.tensor(v) for v in (50.3, 39.6, math.cos(angle), math.sin(angle), across, along, 1.0, 0.55))
    return Shapes._make([torch.tensor(kind), *numbers, torch.tensor(bumps)])


@pytest.mark.parametrize(("across", "along", "angle"), [(20.0, 20.0, 0.0), (30.0, 12.0, 0.7), (25.0, 3.0, -1.2)])
def test_coverage_of_an_ellipse_adds_up_to_its_area(across: float, along: float, angle: float) -> None:
    coverage = (drawn_distance(one_shape(BLOB, across, along, angle), X, Y) + 0.5).clamp(0, 1)
    assert coverage.sum() == pytest.approx(math.pi * across * along, rel=0.01)
    assert ((coverage > 0) & (coverage < 1)).any()


def test_distance_from_a_disc_is_euclidean() -> None:
    distance = drawn_distance(one_shape(BLOB, 20.0, 20.0), X, Y)
    torch.testing.assert_close(distance, 20 - torch.hypot(X - 50.3, Y - 39.6), atol=1e-3, rtol=0)


def test_distance_near_a_bumpy_outline_has_slope_one() -> None:
    distance = drawn_distance(one_shape(BLOB, 24.0, 16.0, 0.4, (0.2, 0.1, -0.1, 0.15)), X, Y)
    dy, dx = torch.gradient(distance)
    near = distance.abs() < 1.5
    assert near.sum() > 100
    assert torch.hypot(dx, dy)[near].mean() == pytest.approx(1, abs=0.08)


def test_boxes_and_rings_have_their_areas() -> None:
    box = (drawn_distance(one_shape(BOX, 20.0, 10.0, 0.5), X, Y) + 0.5).clamp(0, 1)
    assert box.sum() == pytest.approx(36 * 18, rel=0.01)
    ring = (drawn_distance(one_shape(RING, 24.0, 24.0), X, Y) + 0.5).clamp(0, 1)
    assert ring.sum() == pytest.approx(math.pi * 24**2 * (1 - 0.55**2), rel=0.01)
    assert ring[40, 50] == 0


def test_a_cut_out_keeps_its_silhouette_at_any_scale() -> None:
    bank = tiny_bank()
    pictures = Pictures(*bank.cutouts[0, 0])
    for scale, radius in ((1.0, 25.6), (0.8, 32.0), (2.0, 12.8)):
        shape = one_shape(CUTOUT, 1.0, 1.0, 0.3)._replace(scale=torch.tensor(scale))
        coverage = (cutout_distance(bank.pixels, shape, pictures, X, Y) + 0.5).clamp(0, 1)
        assert coverage.sum() == pytest.approx(math.pi * radius**2, rel=0.03)
        assert coverage[0].sum() == 0  # nothing beyond the picture


def test_objects_cover_each_other_in_their_order() -> None:
    bank, place = tiny_bank(), torch.stack([X, Y])

    def covered(*objects: tuple[float, bool]) -> Covering:
        parts = zip(*(one_shape(BLOB, radius, radius) for radius, _ in objects), strict=True)
        shapes = Shapes(*(torch.stack(part, -1)[..., None, :] for part in parts))
        pictures = Pictures(*(part.expand(1, len(objects)) for part in bank.cutouts[0, 0]))
        present = torch.tensor([[there for _, there in objects]])
        return cover(shapes, pictures, present, bank.pixels, place, place[None])

    seen = covered((30.0, True), (35.0, False), (15.0, True))
    double = covered((30.0, True), (30.3, True))
    distance = torch.hypot(X - 50.3, Y - 39.6)
    assert torch.equal(seen.solid[0] == 3, distance <= 15)
    assert torch.equal(seen.solid[0] == 1, (distance > 15) & (distance <= 30))
    border = (distance > 14.6) & (distance < 15.4)
    assert (seen.front[0][border] == 3).all()
    assert (seen.behind[0][border] == 1).all()
    assert ((seen.coverage[0] - (15.5 - distance).clamp(0, 1)).abs()[border] < 1e-3).all()
    grazed = (distance > 30.05) & (distance < 30.25)  # by the first, which is not seen at its centre, and the second
    assert grazed.any()
    assert (double.behind[0][grazed] == 0).all()
    outer = (distance > 30.1) & (distance < 30.4)
    assert (seen.front[0][outer] == 1).all()
    assert (seen.behind[0][outer] == 0).all()


def test_draws_the_shares_of_shapes_asked_for() -> None:
    config = LayeredConfig(box=0.2, ring=0.1, bar=0.15, cutout=0.3)
    shapes, _ = draw_shapes(Draws(torch.arange(1000)), config, (100, 150), tiny_bank())
    shares = [(shapes.kind == kind).float().mean().item() for kind in (BLOB, BOX, RING, CUTOUT)]
    assert shares == pytest.approx([0.25, 0.35, 0.1, 0.3], abs=0.01)
    boxes = (shapes.kind == BOX) & (shapes.across > 3.2 * shapes.along)
    assert boxes.float().mean() >= 0.14


def test_objects_in_front_are_smaller() -> None:
    shapes, _ = draw_shapes(Draws(torch.arange(50)), LayeredConfig(cutout=0), (100, 100), tiny_bank())
    radius = torch.sqrt(shapes.across * shapes.along)
    assert (radius.diff(dim=1) <= 1e-4).all()
    assert radius.min() > 2.4
    assert radius.max() < 32.1
