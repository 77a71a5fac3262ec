import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flowinpaint.data import procedural_pictures
from flowinpaint.data.bank import KINDS
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.errors import InputError
from scene_bank import tiny_bank

BANK = tiny_bank()
PLAIN: dict[str, Any] = {
    "shading": 0.0,
    "shadow": 0.0,
    "defocus": 0.0,
    "motion_blur": 0.0,
    "blur": (0.05, 0.05),
    "gamma": 0.0,
    "noise": (0.0, 0.0),
    "contrast": 0.0,
    "tint": 0.0,
    "offset": 0.0,
}

RIGID: dict[str, Any] = {"linear": 0.0, "rotation": 0.0, "bending": 0.0, "still": 1.0, "parallax": 0.0}


def scenes(count: int = 6, size: tuple[int, int] = (48, 64), **fields: Any) -> tuple[torch.Tensor, torch.Tensor]:
    batch = LayeredFlow(LayeredConfig(**fields), size, BANK).scenes(torch.arange(count))
    return batch.image, batch.flow


def test_gives_images_and_flow_that_are_valid_everywhere() -> None:
    batch = LayeredFlow(size=(40, 56), bank=BANK).scenes(torch.arange(5))
    assert batch.image.shape == (5, 3, 40, 56)
    assert batch.flow.shape == (5, 2, 40, 56)
    assert (batch.valid == 1).all()
    assert batch.valid.shape == (5, 1, 40, 56)
    assert all(part.dtype == torch.float32 and torch.isfinite(part).all() for part in batch)
    assert 0 <= batch.image.min() <= batch.image.max() <= 1


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=4, unique=True), st.integers(0, 2**40))
def test_a_scene_depends_on_its_number_and_seed_alone(numbers: list[int], seed: int) -> None:
    source = LayeredFlow(size=(24, 24), bank=BANK, seed=seed)
    together = source.scenes(torch.tensor(numbers))
    for i, n in enumerate(numbers):
        alone = source.scenes(torch.tensor([n]))
        assert all(torch.equal(a[0], t[i]) for a, t in zip(alone, together, strict=True))
    other = LayeredFlow(size=(24, 24), bank=BANK, seed=seed + 1).scenes(torch.tensor(numbers))
    assert not torch.equal(other.image, together.image)


def test_the_look_of_a_scene_does_not_change_its_flow() -> None:
    _, flow = scenes()
    image, other = scenes(**PLAIN)
    assert torch.equal(flow, other)
    shadows, same = scenes(**PLAIN | {"shadow": 1.0, "shadow_depth": (0.6, 0.6)})
    assert torch.equal(flow, same)
    assert (shadows <= image + 1e-6).all()
    assert (shadows < image - 0.05).any()


def test_camouflage_hides_objects_from_the_image_but_not_from_the_flow() -> None:
    hidden, flow = scenes(**PLAIN, camouflage=1.0, similar=0.0, cutout=0.0)
    empty, still = scenes(**PLAIN, camouflage=1.0, similar=0.0, cutout=0.0, objects=(0, 0))
    torch.testing.assert_close(hidden, empty, atol=2e-3, rtol=0)
    assert ((flow - still).abs() > 0.5).float().mean() > 0.05


def test_flow_is_smooth_inside_a_layer_and_never_mixes_two() -> None:
    fields: dict[str, Any] = {
        "linear": 0.0,
        "rotation": 0.0,
        "bending": 0.0,
        "still": 1.0,
        "photo": 0.0,
        "parallax": 0.0,
    }
    _, flow = scenes(24, **fields, objects=(1, 1), cutout=0.0)
    for scene in flow:
        assert len(scene.flatten(1).T.unique(dim=0)) <= 2


def test_borders_are_anti_aliased_and_lie_where_the_flow_jumps() -> None:
    fields = PLAIN | RIGID | {"photo": 0.0, "offset": 0.15}
    image, flow = scenes(24, **fields, objects=(1, 1))
    empty, _ = scenes(24, **fields, objects=(0, 0))
    changed = (image - empty).abs().amax(1) > 0.05
    jumps = (flow != flow[:, :, :1, :1]).any(1)
    moved = torch.where(jumps.float().mean((1, 2), keepdim=True) > 0.5, ~jumps, jumps)  # the corner may be the object's
    visible = changed & ~moved
    ring = torch.nn.functional.max_pool2d(moved[:, None].float(), 3, 1, 1)[:, 0] > 0
    assert visible.any()
    assert (visible & ~ring).float().mean() < 0.003  # what is painted beyond the moving pixels is their soft border


@pytest.mark.parametrize("what", ["defocus", "motion_blur"])
def test_blur_takes_detail_from_the_image_and_nothing_from_the_flow(what: str) -> None:
    fields = PLAIN | {"shutter": (0.5, 0.5), "magnitude": 20.0}
    sharp, flow = scenes(12, **fields)
    blurred, same = scenes(12, **fields | {what: 1.0})
    assert torch.equal(flow, same)
    detail, left = (picture.diff(dim=3).abs().mean((1, 2, 3)) for picture in (sharp, blurred))
    assert (left <= detail * 1.02).all()
    assert left.mean() < 0.9 * detail.mean()


def test_a_driving_scene_has_a_ground() -> None:
    fields = RIGID | {"still": 0.0, "driving": 1.0, "segmented": 0.0, "objects": (0, 0), "horizon": (0.3, 0.5)}
    _, flow = scenes(20, (64, 64), **fields, magnitude=2.0, magnitude_spread=0.5)
    below = flow[:, 1, 40::6]  # well below the horizon, where the flow of a plane is quadratic
    assert (below.diff(n=2, dim=1) > 0).all()


def test_segments_of_photos_move_on_their_own() -> None:
    fields = PLAIN | {"photo": 1.0, "segmented": 1.0, "objects": (0, 0), "groups": (32, 32), "photo_scale": (1.0, 1.0)}
    _, flow = scenes(20, (48, 48), **fields, **RIGID)
    counts = [len(scene.flatten(1).T.unique(dim=0)) for scene in flow]
    assert max(counts) == 2  # the tiny photo has two segments
    _, whole = scenes(20, (48, 48), **fields | {"segmented": 0.0}, **RIGID)
    assert all(len(scene.flatten(1).T.unique(dim=0)) == 1 for scene in whole)


def test_ragged_borders_are_longer() -> None:
    def border(**fields: Any) -> float:
        rigid: dict[str, Any] = {
            "linear": 0.0,
            "rotation": 0.0,
            "bending": 0.0,
            "still": 1.0,
            "photo": 0.0,
            "cutout": 0.0,
        }
        _, flow = scenes(16, (96, 96), **rigid, **fields, objects=(1, 1), radius=(0.3, 0.3), parallax=0.0)
        return float((flow.diff(dim=3) != 0).any(1).float().mean())

    assert border(wobble=(0, 0, 4), fuzzy=1.0) > 1.3 * border(wobble=(0, 0, 0))


def test_fills_the_whole_range_of_configurations() -> None:
    extreme = LayeredConfig(most_objects=1, objects=(0, 1), groups=(1, 1), bumps=(), photo=1, segmented=1, driving=1)
    batch = LayeredFlow(extreme, (16, 16), BANK).scenes(torch.arange(3))
    assert torch.isfinite(batch.flow).all()


def test_needs_no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        monkeypatch.setitem(procedural_pictures.COUNTS, kind, 3)
        monkeypatch.setitem(procedural_pictures.SIDES, kind, 64)
    batch = LayeredFlow(size=(64, 64)).scenes(torch.arange(4))
    assert batch.image.flatten(1).std(1).min() > 0.02


def test_largest_motion() -> None:
    _, flow = scenes(magnitude=500.0, largest=20.0)
    assert flow.abs().max() == 20


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"photo": 1.5}, "photo"),
        ({"radius": (0.3, 0.1)}, "radius"),
        ({"radius": 0.3}, "radius"),
        ({"radius": (0.0, 0.1)}, "radius"),
        ({"noise": (-0.1, 0.1)}, "noise"),
        ({"magnitude": float("nan")}, "magnitude"),
        ({"magnitude": (1.0, 2.0)}, "magnitude"),
        ({"magnitude": "5"}, "magnitude"),
        ({"objects": (1, 99)}, "objects"),
        ({"most_objects": 0}, "most_objects"),
        ({"most_objects": True}, "most_objects"),
        ({"most_objects": 2.5}, "most_objects"),
        ({"groups": (0, 3)}, "groups"),
        ({"groups": (1.5, 3)}, "groups"),
        ({"wobble": (1.0,)}, "wobble"),
        ({"box": 0.6, "bar": 0.6}, "box"),
        ({"exposure_shift": 0.6}, "exposure_shift"),
        ({"longest_blur": 0.0}, "longest_blur"),
    ],
)
def test_refuses_bad_configurations(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=name):
        LayeredConfig(**fields)


def test_takes_lists_from_a_file() -> None:
    listed: Any = [1, 4]
    assert LayeredConfig(objects=listed) == dataclasses.replace(LayeredConfig(), objects=(1, 4))


def test_refuses_tiny_sizes() -> None:
    with pytest.raises(InputError, match="size"):
        LayeredFlow(size=(8, 64), bank=BANK)


BUSY: dict[str, Any] = {"still": 0.3, "driving": 0.5, "defocus": 0.7, "motion_blur": 0.7, "fuzzy": 0.6, "ring": 0.2}
OTHER: dict[str, Any] = {
    "most_objects": 20,
    "objects": (2, 3),
    "groups": (1, 1),
    "place": (0.4, 0.6),
    "largest": 3.0,
    "horizon": (0.7, 0.8),
    "still": 0.9,
    "longest_blur": 1.0,
}


@pytest.fixture(scope="module")
def busy() -> tuple[torch.Tensor, torch.Tensor]:
    return scenes(24, (32, 32), **BUSY)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(LayeredConfig)])
def test_every_field_has_its_effect(name: str, busy: tuple[torch.Tensor, torch.Tensor]) -> None:
    value = BUSY.get(name, getattr(LayeredConfig(), name))
    other = tuple(v / 3 for v in value) if isinstance(value, tuple) else value / 3
    image, flow = scenes(24, (32, 32), **BUSY | {name: OTHER.get(name, other)})
    assert not (torch.equal(image, busy[0]) and torch.equal(flow, busy[1]))
