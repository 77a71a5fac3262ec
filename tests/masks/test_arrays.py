"""Masks for numpy arrays: each family matches its documentation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import ndimage

from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.errors import InputError
from flowinpaint.masks import (
    MaskMix,
    bernoulli_mask,
    blob_hole_mask,
    corner_mask,
    grid_mask,
    lidar_mask,
    mixed_mask,
    occlusion_mask,
    random_mask,
    rectangle_hole_mask,
)

Mask = npt.NDArray[np.bool_]
SHAPE = (48, 64)
OF_SHAPE: dict[str, Callable[..., Mask]] = {
    "random": lambda **given: random_mask(SHAPE, 0.05, **given),
    "bernoulli": lambda **given: bernoulli_mask(SHAPE, 0.05, **given),
    "lidar": lambda **given: lidar_mask(SHAPE, 8, **given),
    "grid": lambda **given: grid_mask(SHAPE, 6, 0.7, **given),
    "blobs": lambda **given: blob_hole_mask(SHAPE, 0.4, 12.0, **given),
    "rectangles": lambda **given: rectangle_hole_mask(SHAPE, 3, 5.0, 20.0, **given),
    "occlusion": lambda **given: occlusion_mask(sample_scene(*SHAPE).flow, density=0.3, **given),
    "mixed": lambda **given: mixed_mask(*sample_scene(*SHAPE), **given),
}


def two_halves(jump: float, channels: int = 2) -> npt.NDArray[np.float32]:
    """A flow that is 0 in the left half and of length jump in the right one."""
    flow = np.zeros((20, 60, channels), np.float32)
    flow[:, 30:, 0] = jump
    return flow


def white_square() -> npt.NDArray[np.uint8]:
    image = np.zeros((60, 80), np.uint8)
    image[20:40, 25:55] = 255
    return image


@pytest.mark.parametrize("family", OF_SHAPE)
def test_a_seed_gives_one_mask_of_the_valid_pixels(family: str) -> None:
    valid = np.random.default_rng(0).random(SHAPE) < 0.4
    valid.flags.writeable = False
    drawn = OF_SHAPE[family](seed=3, valid=valid)
    assert drawn.dtype == np.bool_
    assert drawn.shape == SHAPE
    assert drawn.any()
    assert not (drawn & ~valid).any()
    assert np.array_equal(drawn, OF_SHAPE[family](seed=3, valid=valid))
    assert not np.array_equal(drawn, OF_SHAPE[family](seed=4, valid=valid))


@pytest.mark.parametrize("family", [name for name in OF_SHAPE if name != "random"])
def test_where_one_pixel_is_valid_it_is_known(family: str) -> None:
    for place in ((0, 0), (47, 63), (20, 31)):
        valid = np.zeros(SHAPE, np.bool_)
        valid[place] = True
        assert np.array_equal(OF_SHAPE[family](valid=valid), valid)
    assert not OF_SHAPE[family](valid=np.zeros(SHAPE, np.bool_)).any()


def test_random_masks_stay_what_they_were() -> None:
    """Figures that others published rest on them."""
    assert np.flatnonzero(random_mask((6, 7), 0.2, 3)).tolist() == [3, 6, 7, 8, 24, 28, 32, 35]
    third = np.arange(42).reshape(6, 7) % 3 == 0
    assert np.flatnonzero(random_mask((6, 7), 0.1, 3, third)).tolist() == [3, 6, 9, 24]


@pytest.mark.parametrize(
    ("shape", "density", "count"),
    [((20, 30), 0.1, 60), ((20, 30), 1.0, 600), ((20, 30), 1e-9, 1), ((7, 11), 0.33, 25), ((1, 1), 0.5, 1)],
)
def test_the_count_is_exact(shape: tuple[int, int], density: float, count: int) -> None:
    for seed in range(5):
        mask = random_mask(shape, density, seed)
        assert mask.shape == shape
        assert mask.dtype == np.bool_
        assert mask.sum() == count


def test_every_pixel_is_as_likely() -> None:
    hits = sum(random_mask((8, 8), 0.25, seed).astype(int) for seed in range(2000))
    # 500 expected with a deviation of 19; 6 deviations over 64 pixels leave no room for chance.
    assert np.abs(np.asarray(hits) - 500).max() < 6 * 19.4


@pytest.mark.parametrize("density", [0.0, -0.1, 1.01, float("nan")])
def test_bad_densities_are_named(density: float) -> None:
    with pytest.raises(InputError, match="density must be"):
        random_mask((8, 8), density, 0)


@pytest.mark.parametrize("shape", [(0, 4), (4, -1), (4, 4, 2), (4,)])
def test_bad_shapes_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="shape must be"):
        random_mask(shape, 0.5, 0)  # type: ignore[arg-type]


def test_a_share_of_all_pixels_is_drawn_from_the_valid_ones() -> None:
    valid = np.zeros((20, 30), np.bool_)
    valid[:, 20:] = True
    mask = random_mask((20, 30), 0.1, 3, valid)
    assert mask.sum() == 60
    assert not (mask & ~valid).any()
    assert random_mask((20, 30), 1 / 3, 0, valid).tolist() == valid.tolist()
    everywhere = np.ones((20, 30), np.bool_)
    assert np.array_equal(random_mask((20, 30), 0.1, 3, everywhere), random_mask((20, 30), 0.1, 3))


def test_bad_valid_pixels_are_named() -> None:
    with pytest.raises(InputError, match=r"density must select at most the 200 valid pixels, got 0.5: 300 of 600"):
        random_mask((20, 30), 0.5, 0, np.arange(600).reshape(20, 30) < 200)
    with pytest.raises(InputError, match=r"valid must be .*, got float64"):
        random_mask((2, 3), 0.5, 0, np.ones((2, 3)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"valid must be .*, got bool \(3, 2\)"):
        random_mask((2, 3), 0.5, 0, np.ones((3, 2), np.bool_))


def test_bernoulli_draws_each_pixel_by_itself() -> None:
    counts = [int(bernoulli_mask((50, 60), 0.1, seed).sum()) for seed in range(200)]
    # Binomial: 300 expected with a deviation of 16.4.
    assert abs(np.mean(counts) - 300) < 5 * 16.4 / 200**0.5
    assert 0.8 < np.std(counts) / 16.4 < 1.2
    assert bernoulli_mask((5, 6), 1.0).all()
    assert bernoulli_mask((5, 6), 1e-9).sum() == 1


def whole_lidar(**given: Any) -> Mask:
    """Every pixel of every line, none lost."""
    return lidar_mask((400, 300), **{"spacing": 1.0, "lost": 0.0, "gaps": 0.0, "focal": 0.6, **given})


@pytest.mark.parametrize("lines", [16, 40, 64])
def test_lidar_has_lines_that_part_toward_the_foot(lines: int) -> None:
    rows = np.flatnonzero(whole_lidar(lines=lines, horizon=0.25)[:, 150])
    assert lines - 1 <= rows.size <= lines + 1
    apart = np.diff(rows)
    assert apart[-5:].mean() > 1.5 * apart[:5].mean()
    assert rows[0] >= 100


def test_lidar_lines_bend_down_to_the_sides() -> None:
    mask = whole_lidar(lines=20, horizon=0.25)
    middle, side = np.flatnonzero(mask[:, 150]), np.flatnonzero(mask[:, 0])
    # √(1 + (1/2 / 0.6)²) = 1.30 of the way below the horizon. Points are further apart there: not all lines have one.
    assert side.size > 5
    for row in side:
        assert np.abs(1.30 * (middle - 99.5) - (row - 99.5)).min() < 1.5
    assert side.size < middle.size
    flat = whole_lidar(lines=20, horizon=0.25, focal=50.0)
    assert np.array_equal(np.flatnonzero(flat[:, 0]), np.flatnonzero(flat[:, 150]))


def test_lidar_points_are_spaced_and_lost() -> None:
    line = {"lines": 16, "horizon": 0.2, "focal": 50.0}
    full = whole_lidar(**line)
    spaced = whole_lidar(**line, spacing=3.0)
    row = np.flatnonzero(full.any(1))[4]
    assert full[row].all()
    assert set(np.diff(np.flatnonzero(spaced[row]))) == {3}
    starts = {int(np.flatnonzero(spaced[row])[0]) for row in np.flatnonzero(full.any(1))}
    assert starts == {0, 1, 2}  # from line to line the points are shifted
    lost = whole_lidar(**line, lost=0.3)
    assert not (lost & ~full).any()
    assert lost.sum() / full.sum() == pytest.approx(0.7, abs=0.03)


def test_lidar_gaps_are_patches() -> None:
    line = {"lines": 64, "horizon": 0.0, "focal": 50.0}
    full = [whole_lidar(**line, seed=seed) for seed in range(30)]
    missing = [full[seed] & ~whole_lidar(**line, gaps=0.2, seed=seed) for seed in range(30)]
    assert np.sum(missing) / np.sum(full) == pytest.approx(0.2, abs=0.04)
    # A lost point has its neighbour lost too: in patches some 45 px wide nearly always.
    beside = sum((gap[:, 1:] & gap[:, :-1]).sum() for gap in missing) / sum(gap[:, 1:].sum() for gap in missing)
    assert beside > 0.8


def test_the_corners_of_a_square_are_found() -> None:
    mask = corner_mask(white_square(), density=4 / 4800)
    assert mask.sum() == 4
    for y, x in np.argwhere(mask):
        assert min(abs(y - 19.5), abs(y - 39.5)) < 3
        assert min(abs(x - 24.5), abs(x - 54.5)) < 3
    assert corner_mask(white_square(), density=0.1).sum() < 12  # edges are no corners
    assert np.array_equal(mask, corner_mask(np.repeat(white_square()[..., None], 3, axis=2), density=4 / 4800))


def test_corners_keep_their_distance_and_count() -> None:
    image = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    counts = []
    for distance in (1, 3, 6):
        mask = corner_mask(image, 1.0, distance)
        hits = ndimage.convolve(mask.astype(int), np.ones((2 * distance + 1,) * 2, int), mode="constant")
        assert hits[mask].max() == 1
        counts.append(mask.sum())
    assert counts[0] > counts[1] > counts[2] > 20
    assert corner_mask(image, 0.01, 1).sum() == 48
    strongest = corner_mask(image, 0.002, 1)
    assert not (strongest & ~corner_mask(image, 0.01, 1)).any()


def test_of_corners_that_are_equally_strong_one_is_taken() -> None:
    image = np.zeros((60, 80), np.uint8)
    image[10::15, 10::20] = 255
    mask = corner_mask(image, 1.0, distance=3)
    assert mask.sum() == 16
    hits = ndimage.convolve(mask.astype(int), np.ones((7, 7), int), mode="constant")
    assert hits[mask].max() == 1


def test_corners_are_sought_among_the_valid_pixels() -> None:
    valid = np.zeros((60, 80), np.bool_)
    valid[:, 40:] = True
    mask = corner_mask(white_square(), 2 / 4800, valid=valid)
    assert mask.sum() == 2
    assert mask[:, 50:60].sum() == 2


def test_there_is_always_a_corner() -> None:
    strongest = corner_mask(white_square(), density=1e-9)
    assert strongest.sum() == 1
    assert not (strongest & ~corner_mask(white_square(), density=4 / 4800)).any()
    # Neither a flat picture nor a slope has one, whatever the rounding says.
    assert corner_mask(np.full((20, 30), 0.3)).sum() == 1
    slope = np.add.outer(np.linspace(0, 0.37, 60), np.linspace(0, 0.61, 80))
    within = np.pad(np.ones((40, 60), np.bool_), 10)
    assert corner_mask(slope, density=1.0, valid=within).sum() == 1


@pytest.mark.parametrize(("spacing", "first"), [(8, 4), (16, 8), (5, 2), (1, 0)])
def test_a_grid_without_jitter_has_the_centres_of_blocks(spacing: int, first: int) -> None:
    expected = np.zeros((50, 70), np.bool_)
    expected[first::spacing, first::spacing] = True
    assert np.array_equal(grid_mask((50, 70), spacing), expected)


def test_a_jittered_grid_has_one_point_in_each_square() -> None:
    mask = grid_mask((48, 80), 8, jitter=1.0, seed=2)
    assert (mask.reshape(6, 8, 10, 8).sum((1, 3)) == 1).all()
    places = np.concatenate([np.argwhere(grid_mask((48, 80), 8, jitter=1.0, seed=seed)) % 8 for seed in range(20)])
    assert set(places[:, 0]) == set(places[:, 1]) == set(range(8))
    little = np.argwhere(grid_mask((48, 80), 8, jitter=0.3, seed=2)) % 8
    assert little.min() >= 2
    assert little.max() <= 5


def test_blobs_cover_their_share_and_grow_with_their_size() -> None:
    for share in (0.1, 0.4):
        holes = [1 - blob_hole_mask((120, 160), share, 15.0, seed=seed).mean() for seed in range(40)]
        assert np.mean(holes) == pytest.approx(share, abs=0.04)
    counts = [
        np.mean([ndimage.label(~blob_hole_mask((200, 200), 0.2, size, seed=s))[1] for s in range(8)])
        for size in (10.0, 20.0, 40.0)
    ]
    # Four times as many of half the size, less those that the border cuts in two.
    assert 2.5 < counts[0] / counts[1] < 5
    assert 2 < counts[1] / counts[2] < 5
    diameter = np.sqrt(4 / np.pi * 0.2 * 200**2 / counts[0])
    assert 7 < diameter < 14
    assert blob_hole_mask((20, 20), 0.0, 5.0).all()


def test_rectangles_are_cut_out() -> None:
    sides = []
    for seed in range(40):
        hole = ~rectangle_hole_mask((200, 200), 1, 10.0, 30.0, seed=seed)
        rows, columns = np.asarray(hole.any(1)), np.asarray(hole.any(0))
        assert np.array_equal(hole, rows[:, None] & columns)
        sides += [int(rows.sum()), int(columns.sum())]
        assert max(sides) <= 31
    assert min(sides) < 12
    assert max(sides) > 26
    assert rectangle_hole_mask((200, 200), 9, 20, 40).mean() < rectangle_hole_mask((200, 200), 2, 20, 40).mean()


@pytest.mark.parametrize("family", [blob_hole_mask, rectangle_hole_mask])
def test_holes_are_in_a_density(family: Callable[..., Mask]) -> None:
    dense, thin = family((150, 200), seed=5), family((150, 200), density=0.2, seed=5)
    assert not (thin & ~dense).any()
    assert thin.sum() / dense.sum() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    ("jump", "reach", "widest", "width"),
    [(4, 1.0, 12, 4), (4, 0.5, 12, 2), (9, 0.5, 12, 5), (20, 1.0, 12, 12), (20, 1.0, 7, 7), (0.9, 3.0, 12, 0)],
)
def test_a_band_is_as_wide_as_the_jump_says(jump: float, reach: float, widest: int, width: int) -> None:
    expected = np.ones((20, 60), np.bool_)
    expected[:, 30 - width : 30 + width] = False
    assert np.array_equal(occlusion_mask(two_halves(jump), reach, widest=widest), expected)
    assert np.array_equal(occlusion_mask(two_halves(jump, 1).transpose(1, 0, 2), reach, widest=widest), expected.T)


def test_a_band_is_round_at_a_corner() -> None:
    flow = np.zeros((41, 41, 2), np.float32)
    flow[20, 20] = 10
    known = occlusion_mask(flow, reach=8 / 200**0.5)
    # The pixel and its four neighbours have the jump.
    assert (~known).sum() == pytest.approx(np.pi * 8.5**2, rel=0.2)
    assert known[13, 13]


def test_what_is_not_known_makes_no_band() -> None:
    flow = two_halves(5)
    flow[:, 30:] = np.nan
    left = np.zeros((20, 60), np.bool_)
    left[:, :30] = True
    assert np.array_equal(occlusion_mask(flow), left)
    known = np.ones((20, 60), np.bool_)
    known[:, 25:35] = False
    assert np.array_equal(occlusion_mask(two_halves(5), valid=known), known)


def test_a_mixed_mask_has_a_random_density() -> None:
    scene = sample_scene(100, 150)
    shares = [mixed_mask(*scene, seed=seed).mean() for seed in range(60)]
    assert 0.003 < min(shares) < 0.008
    assert 0.08 < max(shares) < 0.16
    assert np.array_equal(mixed_mask(*scene, mix=MaskMix(density=(1, 1))), np.ones((100, 150), np.bool_))


BAD: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (bernoulli_mask, {"shape": (8, 0), "density": 0.1}, r"shape must be .*, got \(8, 0\)"),
    (bernoulli_mask, {"density": 0.0}, "density must be a number above 0 and at most 1, got 0.0"),
    (bernoulli_mask, {"density": "0.1"}, "density must be .*, got '0.1'"),
    (bernoulli_mask, {"density": 0.1, "valid": np.ones((8, 8))}, "valid must be .*, got float64"),
    (lidar_mask, {"lines": 0}, "lines must be an integer from 1 to 10000, got 0"),
    (lidar_mask, {"lines": 2.5}, "lines must be .*, got 2.5"),
    (lidar_mask, {"spacing": 0.5}, "spacing must be .*, got 0.5"),
    (lidar_mask, {"horizon": 1.0}, "horizon must be .*, got 1.0"),
    (lidar_mask, {"lost": -0.1}, "lost must be .*, got -0.1"),
    (lidar_mask, {"gaps": float("nan")}, "gaps must be .*, got nan"),
    (lidar_mask, {"focal": float("inf")}, "focal must be .*, got inf"),
    (grid_mask, {"spacing": 0}, "spacing must be .*, got 0"),
    (grid_mask, {"jitter": 1.1}, "jitter must be a number from 0 to 1, got 1.1"),
    (blob_hole_mask, {"share": 1.0}, "share must be .*, got 1.0"),
    (blob_hole_mask, {"size": 0.0}, "size must be .*, got 0.0"),
    (blob_hole_mask, {"density": 2}, "density must be .*, got 2"),
    (rectangle_hole_mask, {"count": -1}, "count must be .*, got -1"),
    (rectangle_hole_mask, {"count": True}, "count must be .*, got True"),
    (rectangle_hole_mask, {"smallest": 9, "largest": 8}, "smallest must be at most largest, got 9 and 8"),
]


@pytest.mark.parametrize(("family", "given", "message"), BAD)
def test_bad_arguments_are_named(family: Callable[..., Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        family(**{"shape": (8, 8), **given})


def test_bad_images_and_flows_are_named() -> None:
    with pytest.raises(InputError, match=r"image must be .*, got int64"):
        corner_mask(np.ones((8, 8), np.int64))
    with pytest.raises(InputError, match=r"image must have at least 2 x 2 pixels, got \(1, 8\)"):
        corner_mask(np.ones((1, 8)))
    with pytest.raises(InputError, match=r"image must be .*, got str"):
        corner_mask("a.png")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"distance must be .*, got 0"):
        corner_mask(np.ones((8, 8)), distance=0)
    with pytest.raises(InputError, match=r"flow must have .*, got \(8, 8\)"):
        occlusion_mask(np.ones((8, 8)))
    with pytest.raises(InputError, match=r"widest must be .*, got 0"):
        occlusion_mask(np.ones((8, 8, 2)), widest=0)
    with pytest.raises(InputError, match=r"image must have .*, got \(8, 9\)"):
        mixed_mask(np.ones((8, 9)), np.ones((8, 8, 2)))
