"""The CUDA kernels that render scenes, against the generator in PyTorch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.counter_rng import normal_field
from flowinpaint.data.generator.camera import smear
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.plan import SMOOTH_FIELDS, ScenePlan, draw_plan
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.data.generator.smooth_noise import SPLINE_GAIN, SmoothNoise
from scene_bank import tiny_bank

scene_gpu = pytest.importorskip("flowinpaint.data.generator.kernels.scene_gpu")
columns = pytest.importorskip("flowinpaint.data.generator.kernels.scene_triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FEW: dict[str, Any] = {"most_objects": 4, "objects": (2, 4), "groups": (2, 4)}


@pytest.fixture(autouse=True)
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter takes as long for a small tile as for a large one."""
    for name, value in {"_ROWS": 32, "_COLUMNS": 32, "_PICTURE_ROWS": 32, "_PICTURE_COLUMNS": 64}.items():
        monkeypatch.setattr(scene_gpu, name, value)


def planned(count: int, size: tuple[int, int], **fields: Any) -> tuple[LayeredFlow, ScenePlan]:
    source = LayeredFlow(LayeredConfig(**fields), size, tiny_bank(), 3).to(DEVICE)
    return source, draw_plan(torch.arange(count, device=DEVICE), 3, source.config, size, source.bank)


def both(source: LayeredFlow, plan: ScenePlan) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    own = scene_gpu.render(scene_gpu.pack(plan), source.config, source.pixels, source.size)
    return source.render(plan), own


@pytest.mark.parametrize(
    ("size", "fields"),
    [
        ((37, 51), {}),
        ((32, 64), {"box": 0.4, "ring": 0.3, "bar": 0.0, "cutout": 0.0, "fuzzy": 1.0, "radius": (0.2, 0.4)}),
        ((32, 32), {"bar": 0.5, "cutout": 0.5, "box": 0.0, "ring": 0.0, "bumps": (), "driving": 1.0, "still": 0.0}),
        ((33, 40), {"camouflage": 0.5, "photo": 1.0, "segmented": 1.0, "magnitude": 50.0, "largest": 20.0}),
    ],
)
def test_paint_and_move_the_same_scenes(size: tuple[int, int], fields: dict[str, Any]) -> None:
    source, plan = planned(2, size, **FEW | {"defocus": 0.5, "motion_blur": 0.5, "shadow": 1.0} | fields)
    (image, flow), (own_image, own_flow) = both(source, plan)
    assert flow.std() > 0.1
    # A pixel whose centre lies on a border may fall to either side.
    assert ((own_image - image).abs() > 1e-4).float().mean() < 1e-3
    assert ((own_flow - flow).abs() > 1e-3).float().mean() < 1e-3


@pytest.mark.parametrize("what", ["defocus", "motion_blur"])
def test_blur_what_the_plan_says(what: str) -> None:
    """In the same batch as scenes that are left alone, and beside layers that are."""
    fields: dict[str, Any] = {
        "defocus": 0.0,
        "motion_blur": 0.0,
        "magnitude": 20.0,
        "noise": (0.0, 0.0),
        "unsharp": 1.0,
    }
    source, plan = planned(2, (32, 64), **FEW | fields | {what: 1.0})
    on = torch.tensor([0.0, 1.0], device=DEVICE)
    some = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0], device=DEVICE)
    plan = plan._replace(unsharp=plan.unsharp * on[:, None] * some, shutter=plan.shutter * on)
    (image, _), (own, _) = both(source, plan)
    sharp, _ = source.render(plan._replace(unsharp=plan.unsharp * 0, shutter=plan.shutter * 0))
    torch.testing.assert_close(own[0], sharp[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(own, image, atol=1e-4, rtol=0)
    assert (own[1] - sharp[1]).abs().mean() > 0.001


def test_smear_as_the_generator_in_pytorch() -> None:
    """A closed shutter, then one open around, before and after the instant, over two squares and a slanted ground."""
    random = torch.Generator().manual_seed(0)
    image, flow = torch.rand(4, 3, 40, 72, generator=random), torch.zeros(4, 2, 40, 72)
    flow[:, 0] = torch.linspace(-3, 5, 40)[:, None]
    flow[:, :, 8:24, 10:30] = torch.tensor([23.0, -7.0])[:, None, None]
    flow[:, :, 20:34, 36:37] = torch.tensor([3.0, 90.0])[:, None, None]
    image, flow = image.to(DEVICE), flow.to(DEVICE)
    shutter, delay = torch.tensor([[0.0, 0.5, 0.4, 0.3], [0.1, 0.0, -0.5, 0.23]], device=DEVICE)
    numbers = torch.zeros(4, columns.NUMBERS.value, device=DEVICE)
    numbers[:, columns.SHUTTER.value], numbers[:, columns.DELAY.value] = shutter, delay
    pictures, rows = torch.stack([image, torch.full_like(image, -1)]), torch.full_like(image, -1)
    grid, shape = scene_gpu._tiles(4, 40, 72, 16, 32), (16, 32)
    loops = scene_gpu.picture_triton
    loops.fastest_in_rows[grid](flow, numbers, rows, 12.0, 40, 72, *shape)
    loops.smear[grid](pictures, flow, rows, numbers, 12.0, 4, 40, 72, *shape)
    expected = smear(image, flow, shutter, delay, 12.0)
    assert torch.equal(expected[0], image[0])
    assert (pictures[1, 0] == -1).all()
    assert (rows[0] == -1).all()
    torch.testing.assert_close(pictures[1, 1:], expected[1:], atol=1e-4, rtol=0)
    assert ((expected - image).abs().mean((1, 2, 3)) > 0.01).tolist() == [False, True, True, True]


def test_the_table_holds_when_the_shutter_is_open() -> None:
    _, plan = planned(64, (16, 16), **FEW | {"motion_blur": 1.0, "exposure_shift": 0.2})
    numbers = scene_gpu.pack(plan).numbers
    assert numbers.shape[1] == columns.NUMBERS.value
    own = {columns.SHUTTER: plan.shutter, columns.DELAY: plan.delay, columns.BLUR: plan.blur}
    assert all(torch.equal(numbers[:, column.value], number) for column, number in own.items())
    assert -0.2 <= plan.delay.min() < -0.15
    assert 0.15 < plan.delay.max() <= 0.2


@pytest.mark.parametrize(
    "shape",
    [
        {"cutout": 0.0, "bar": 0.0, "aspect": 0.0, "bumps": (), "wobble": (0.0, 0.0, 0.0), "radius": (0.3, 0.5)},
        {"cutout": 0.5, "bar": 0.2, "bumps": (0.5, 0.5), "ellipse": 0.0, "upright": 0.0, "fuzzy": 1.0},
    ],
)
def test_a_tile_that_no_object_touches_is_left_out_rightly(shape: dict[str, Any]) -> None:
    """Objects are found to touch a tile by a bound of how far they reach."""
    source, plan = planned(2, (48, 48), **FEW | {"objects": (4, 4), "place": (0.0, 1.0)} | shape)
    scene_gpu._ROWS = scene_gpu._COLUMNS = 16
    (_, flow), (_, own) = both(source, plan)
    assert ((own - flow).abs() > 1e-3).float().mean() < 1e-3


def test_segments_that_meet_at_a_pixel_have_the_same_borders() -> None:
    fields: dict[str, Any] = {"photo": 1.0, "segmented": 1.0, "groups": (4, 4), "photo_scale": (0.3, 0.4)}
    source, plan = planned(2, (32, 32), **FEW | fields | {"objects": (0, 0), "most_objects": 1})
    labels = torch.randint(0, 4, source.pixels.shape, generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    source.pixels.copy_(source.pixels & 0xFFFFFF | labels.to(DEVICE) << 24)
    (_, flow), (_, own) = both(source, plan)
    assert (flow.diff(dim=3).abs() > 0.1).any(1).float().mean() > 0.1
    assert ((own - flow).abs() > 1e-3).float().mean() < 1e-3


def test_smooth_fields_are_interpolated_along_rows() -> None:
    keys = torch.arange(14, device=DEVICE).view(2, 7) * 7919
    rows, start = scene_gpu._smooth_rows(keys, (41, 67)), 0
    for i, (spacing, channels) in enumerate(SMOOTH_FIELDS.values()):
        field = SmoothNoise((41, 67), spacing, channels).to(DEVICE)
        knots = normal_field(keys[:, i], (channels, field.rows.shape[1], field.columns.shape[1]))
        expected = (knots @ field.columns.T / SPLINE_GAIN).flatten(1, 2)
        torch.testing.assert_close(rows[:, start : start + expected.shape[1]], expected, atol=1e-5, rtol=1e-4)
        start += expected.shape[1]
    assert start == rows.shape[1]
