"""The masks of a training run: invariants of every family, alone and mixed, in a batch and on a device."""

import ast
import math
import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.masks import MaskMix, families
from helpers import generator, seeds

FAMILIES = (
    "bernoulli",
    "few",
    "lidar",
    "corners",
    "grid",
    "blob_holes",
    "rectangle_holes",
    "occlusion",
)
NONE = dict.fromkeys(FAMILIES, 0.0)


def only(*names: str, **ranges: Any) -> MaskMix:
    return MaskMix(**{**NONE, **dict.fromkeys(names, 1.0), **ranges})


def scenes(batch: int, H: int, W: int, seed: int = 0, share: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Random images, flows with jumps, and the share of the pixels that are valid."""
    g = generator(seed)
    flow = 8 * torch.randn(batch, 2, -(-H // 8), -(-W // 8), generator=g)
    flow = flow.repeat_interleave(8, 2).repeat_interleave(8, 3)[..., :H, :W]
    valid = (torch.rand(batch, 1, H, W, generator=g) < share).float()
    return torch.rand(batch, 3, H, W, generator=g), flow * valid, valid


def draw(mix: MaskMix, samples: Tensor, scene: tuple[Tensor, Tensor, Tensor], seed: int = 0) -> Tensor:
    return mix.draw(Draws(samples, seed), *scene)


mixes = st.sampled_from([*((name,) for name in FAMILIES), FAMILIES])


@settings(max_examples=60)
@given(mixes, seeds, st.integers(2, 40), st.integers(2, 40), st.sampled_from([1.0, 0.3, 0.01, 0.0]))
def test_a_mask_is_some_of_the_valid_pixels(names: tuple[str, ...], seed: int, H: int, W: int, share: float) -> None:
    scene = scenes(5, H, W, seed, share)
    mask = draw(only(*names), torch.arange(5), scene, seed)
    valid = scene[2]
    assert mask.shape == valid.shape
    assert mask.dtype == torch.float32
    assert ((mask == 0) | (mask == 1)).all()
    assert (mask <= valid).all()
    assert torch.equal(mask.amax((1, 2, 3)), valid.amax((1, 2, 3)))


@pytest.mark.parametrize("names", [*((name,) for name in FAMILIES), FAMILIES], ids=lambda names: "+".join(names))
def test_a_sample_is_the_same_in_any_batch(names: tuple[str, ...]) -> None:
    image, flow, valid = scenes(6, 40, 56, share=0.9)
    mix = only(*names)
    together = draw(mix, torch.arange(6), (image, flow, valid), seed=7)
    part = slice(3, 5)
    apart = draw(mix, torch.arange(6)[part], (image[part], flow[part], valid[part]), seed=7)
    assert torch.equal(apart, together[part])
    again = draw(mix, torch.arange(6) + 6, (image, flow, valid), seed=7)
    assert all(not torch.equal(a, b) for a, b in zip(again, together, strict=True))


def test_nothing_depends_on_values_at_the_host() -> None:
    """On the meta device there are no values: whatever asks for one, or for a shape that depends on them, raises."""
    scene = tuple(x.to("meta") for x in scenes(3, 40, 56))
    mask = only(*FAMILIES).draw(Draws(torch.arange(3, device="meta")), scene[0], scene[1], scene[2])
    assert mask.shape == (3, 1, 40, 56)
    assert mask.device.type == "meta"


def test_families_of_weight_0_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FAMILIES[1:]:
        monkeypatch.setattr(families, name, None)
    assert draw(MaskMix(), torch.arange(2), scenes(2, 16, 16)).any()
    with pytest.raises(TypeError):
        draw(MaskMix(grid=1e-9), torch.arange(2), scenes(2, 16, 16))


def test_weights_decide_how_often_a_family_comes() -> None:
    mix = MaskMix(
        bernoulli=1,
        grid=3,
        occlusion=4,
        density=(1, 1),
        grid_spacing=(4, 4),
        hole_density=(0.5, 0.5),
        grid_jitter=(0, 0),
    )
    image, _, valid = scenes(2000, 16, 16)
    shares = draw(mix, torch.arange(2000), (image, torch.zeros(2000, 1, 16, 16), valid)).mean((1, 2, 3))
    whole, regular = float((shares == 1).float().mean()), float((shares == 1 / 16).float().mean())
    # Three deviations of 2000 draws are 0.022 and 0.032.
    assert whole == pytest.approx(1 / 8, abs=0.022)
    assert regular == pytest.approx(3 / 8, abs=0.032)


def test_densities_are_log_uniform() -> None:
    mask = draw(only("bernoulli", density=(0.01, 0.5)), torch.arange(600), scenes(600, 40, 50))
    places = np.sort(np.log(mask.mean((1, 2, 3)).numpy() / 0.01) / math.log(50)).clip(0, 1)
    # Kolmogorov and Smirnov at one per cent.
    assert np.abs(places - (np.arange(600) + 0.5) / 600).max() < 1.63 / 600**0.5


def test_few_are_as_many_as_were_drawn() -> None:
    scene = scenes(400, 12, 15, share=0.5)
    counts = draw(only("few", count=(1, 4)), torch.arange(400), scene).sum((1, 2, 3))
    assert set(counts.tolist()) == {1.0, 2.0, 3.0, 4.0}
    assert float((counts == 1).float().mean()) == pytest.approx(1 / 4, abs=0.065)
    assert torch.equal(draw(only("few", count=(180, 180)), torch.arange(400), scene), scene[2])


def test_given_vectors_are_noisy_now_and_then() -> None:
    _, flow, _ = scenes(400, 20, 25)
    mix = only("bernoulli", noisy=0.5, noise=(0.01, 0.1))
    given = mix.disturb(Draws(torch.arange(400), 0), flow)
    deviations = (given - flow).flatten(1).std(1)
    noisy = deviations > 0
    assert float(noisy.float().mean()) == pytest.approx(0.5, abs=0.08)
    assert 0.008 < deviations[noisy].min() < 0.013
    assert 0.08 < deviations[noisy].max() < 0.12
    assert torch.equal(mix.disturb(Draws(torch.arange(7, 9), 0), flow[7:9]), given[7:9])
    assert only("bernoulli").disturb(Draws(torch.arange(400), 0), flow) is flow


def test_a_grid_is_shifted_from_sample_to_sample() -> None:
    mix = only("grid", grid_spacing=(8, 8), grid_jitter=(0, 0))
    masks = draw(mix, torch.arange(600), scenes(600, 24, 24))[:, 0]
    assert (masks.sum((1, 2)) == 9).all()
    # In any sample the points are 8 apart, and over the samples every row and column comes first.
    assert torch.equal(masks[:, :16], masks[:, 8:])
    first = {(int(mask.any(1).int().argmax()), int(mask.any(0).int().argmax())) for mask in masks}
    assert len(first) == 64


def test_the_number_of_rectangles_varies() -> None:
    mix = only("rectangle_holes", rectangle_count=(1, 2), hole_size=(5, 8), hole_density=(1, 1))
    holes = draw(mix, torch.arange(300), scenes(300, 80, 80))[:, 0] == 0
    single = (holes == (holes.any(2, keepdim=True) & holes.any(1, keepdim=True))).all(2).all(1)
    assert 0.4 < float(single.float().mean()) < 0.6


def test_smooth_noise_is_standard_normal() -> None:
    sizes = torch.full((200, 1, 1, 1), 10.0)
    sizes[100:] = 40.0
    noise = families.smooth_noise(Draws(torch.arange(200)), (64, 96), sizes)
    assert abs(float(noise[:100].mean())) < 0.05
    assert float(noise[:100].var()) == pytest.approx(1, abs=0.05)
    for border in (noise[..., 0], noise[..., -1], noise[..., 0, :], noise[..., -1, :]):
        assert float(border.var()) == pytest.approx(1, abs=0.15)
    assert float((noise[:100] < -1).float().mean()) == pytest.approx(0.159, abs=0.02)
    steps = (noise[..., 1:] - noise[..., :-1]).square().mean((1, 2, 3)).sqrt()
    assert float(steps[:100].mean() / steps[100:].mean()) == pytest.approx(4, rel=0.1)
    down = (noise[..., 1:, :] - noise[..., :-1, :]).square().mean((1, 2, 3)).sqrt()
    assert float(down[:100].mean() / steps[:100].mean()) == pytest.approx(1, rel=0.1)


def test_a_table_of_a_toml_file_makes_a_mix() -> None:
    table = tomllib.loads("lidar = 2\ngrid_spacing = [8, 16]\ndensity = [0.01, 0.1]\nocclusion_widest = 5")
    mix = MaskMix(**table)
    assert mix == MaskMix(lidar=2, grid_spacing=(8, 16), density=(0.01, 0.1), occlusion_widest=5)
    assert hash(mix) == hash(MaskMix(**table))


def test_the_page_has_every_field_and_its_default() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "masks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S.* \|$", page, re.MULTILINE)
    assert [(name, ast.literal_eval(default)) for name, default in rows] == list(asdict(MaskMix()).items())
    tables = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(tables) == 1
    assert MaskMix(**tomllib.loads(tables[0])["masks"]).lidar == 0.2


@pytest.mark.parametrize(
    ("given_fields", "message"),
    [
        ({"lidar": -1.0}, "lidar must be a finite number of at least 0, got -1.0"),
        ({"grid": "1"}, "grid must be .*, got '1'"),
        ({"bernoulli": 0.0}, "at least one of bernoulli, few, .*, occlusion must be above 0"),
        ({"density": (0.0, 0.1)}, r"density must be a pair low <= high, each a number above 0 and .* got \(0.0, 0.1\)"),
        ({"density": (0.2, 0.1)}, "a pair low <= high"),
        ({"density": 0.1}, "density must be a pair .*, got 0.1"),
        ({"density": (0.1, 0.2, 0.3)}, "density must be"),
        ({"density": ["0.1", 0.2]}, "density must be"),
        ({"lidar_lines": (16, 32.5)}, "lidar_lines must be"),
        ({"lidar_horizon": (0.2, 1.0)}, "lidar_horizon must be"),
        ({"hole_size": (0, 10)}, "hole_size must be"),
        ({"occlusion_reach": (0, float("inf"))}, "occlusion_reach must be"),
        ({"corner_distance": 2.5}, "corner_distance must be .*, got 2.5"),
        ({"occlusion_jump": 0.0}, "occlusion_jump must be .*, got 0.0"),
    ],
)
def test_bad_fields_are_named(given_fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MaskMix(**given_fields)


@pytest.mark.gpu
@pytest.mark.parametrize("names", [("bernoulli",), FAMILIES], ids=["bernoulli", "all"])
def test_a_cuda_graph_draws_afresh_at_each_replay(names: tuple[str, ...]) -> None:
    mix = only(*names)
    scene = scenes(4, 96, 128, share=0.8)
    image, flow, valid = (x.cuda() for x in scene)
    samples = torch.arange(4, device="cuda")
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        draw(mix, samples, (image, flow, valid))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mask = draw(mix, samples, (image, flow, valid))
    for first in (0, 4):
        samples.copy_(torch.arange(first, first + 4))
        graph.replay()
        on_cpu = draw(mix, torch.arange(first, first + 4), scene)
        # A pixel at a threshold may fall either way, by the rounding of the device.
        assert float((mask.cpu() != on_cpu).float().mean()) < 1e-3


def test_a_density_is_a_share_of_all_pixels_also_where_few_are_measured() -> None:
    image, flow, valid = scenes(64, 60, 80, share=0.2)
    for density, expected in ((0.05, 0.05), (0.9, float(valid.mean()))):
        mask = only("bernoulli", density=(density, density)).draw(Draws(torch.arange(64)), image, flow, valid)
        assert float(mask.mean()) == pytest.approx(expected, rel=0.03)
