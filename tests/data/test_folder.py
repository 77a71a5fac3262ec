import re
from pathlib import Path

import cv2
import numpy as np
import pytest

import flowinpaint as fi
from flowinpaint.data.folder import Sample, find_samples, stable_seed
from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.masks.cases import INPUTS, Case
from frame_folder import H, W, make_pair, make_root
from helpers import reference
from image_pair import SHIFT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_root(tmp_path / "frames")
    (root / "INDEX.md").write_text("a file beside the data sets is none")
    (root / ".hidden").mkdir()
    return root


def names(samples: list[Sample]) -> list[tuple[str, str]]:
    return [(sample.dataset, sample.name) for sample in samples]


def test_samples_are_found_in_order_below_data_sets_or_one_of_them(root: Path) -> None:
    assert names(find_samples(root)) == [("A", "one"), ("A", "two"), ("B", "one"), ("B", "three")]
    assert names(find_samples(root, ["B"])) == [("B", "one"), ("B", "three")]
    assert names(find_samples(root / "A")) == [("A", "one"), ("A", "two")]


def test_every_kind_of_truth_is_read_with_its_channels(root: Path) -> None:
    frames = [sample.load(0.1) for sample in find_samples(root)]
    assert [frame.truth.shape for frame in frames] == [(H, W, 2), (H, W, 2), (H, W, 1), (H, W, 1)]
    for frame in frames:
        assert frame.image.shape == (H, W, 3)
        assert not frame.valid[:, : W // 5].any()
        assert frame.valid[:, W // 5 :].all()
        assert np.isnan(frame.truth[~frame.valid]).all()


def test_a_fixed_mask_is_cut_to_what_is_valid(root: Path) -> None:
    sample = find_samples(root)[0]
    whole = fi.read_mask(sample.masks[0][1])
    frame = sample.load(0.1, seed=5)
    assert sample.mask_kind(0.1) == "fixed"
    assert np.array_equal(frame.mask, whole & frame.valid)
    assert (whole & ~frame.valid).any()


@pytest.mark.parametrize(("name", "density"), [("mask_0.5.png", 0.005), ("mask_01.png", 0.01), ("mask_100.png", 1.0)])
def test_the_percentage_of_a_mask_is_in_its_name(root: Path, name: str, density: float) -> None:
    folder = root / "A" / "one"
    fi.write_mask(folder / name, np.eye(H, W, k=10, dtype=np.bool_))
    sample = find_samples(root)[0]
    assert sample.mask_file(density) == folder / name
    assert np.array_equal(sample.load(density).mask, np.eye(H, W, k=10, dtype=np.bool_))
    assert sample.mask_kind(density * 0.9) == "random"


def test_a_drawn_mask_is_a_share_of_all_pixels_within_the_valid_ones(root: Path) -> None:
    frame = find_samples(root)[0].load(0.2)
    assert frame.mask.sum() == round(0.2 * H * W)
    assert not (frame.mask & ~frame.valid).any()


def test_a_drawn_mask_depends_on_data_set_sample_density_and_seed_alone(root: Path) -> None:
    samples = find_samples(root)
    first = samples[0].load(0.2, seed=3)
    assert np.array_equal(first.mask, find_samples(root / "A")[0].load(0.2, seed=3).mask)
    for other in (samples[0].load(0.2, seed=4), samples[1].load(0.2, seed=3), samples[2].load(0.2, seed=3)):
        assert not np.array_equal(first.mask, other.mask)
    # Fixed for ever: a hash that differs between processes, such as Python's own, would change figures.
    assert stable_seed("A", "one", "0.2", "3") == 11070630570985782162
    assert stable_seed("A", "one") != stable_seed("Aone")


def test_a_crop_is_the_middle_and_larger_ones_change_nothing(root: Path) -> None:
    sample = find_samples(root)[0]
    whole, part = sample.load(0.1), sample.load(0.1, crop=8)
    middle = (slice(6, 14), slice(11, 19))
    assert np.array_equal(part.image, whole.image[middle])
    assert np.array_equal(part.mask, whole.mask[middle])
    assert np.array_equal(part.truth, whole.truth[middle])
    assert sample.load(0.1, crop=500).image.shape == whole.image.shape
    assert sample.load(0.25, crop=8).mask.sum() == 16


def test_the_fingerprint_follows_the_files_that_are_read(root: Path) -> None:
    sample = find_samples(root)[0]
    fixed, drawn = sample.fingerprint(0.1), sample.fingerprint(0.2)
    assert fixed != drawn
    fi.write_mask(sample.image.with_name("mask_10.png"), fi.random_mask((H, W), 0.1, 9))
    assert sample.fingerprint(0.1) != fixed
    assert sample.fingerprint(0.2) == drawn
    fi.write_image(sample.image, np.zeros((H, W), np.uint8))
    assert sample.fingerprint(0.2) != drawn


def test_bad_roots_say_what_is_expected(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (root / "C").mkdir()
    for path, fault in (
        (root / "nowhere", "does not exist"),
        (root / "INDEX.md", "is a file"),
        (root / "A" / "one", "got the single sample"),
        (tmp_path / "empty", "contains no folders"),
        (root, "the data set .*C contains no samples"),
    ):
        with pytest.raises(InputError, match=f"^root must be a folder .*image.png.*{fault}"):
            find_samples(path)
    assert len(find_samples(root, ["A"])) == 2  # the empty data set was not asked for
    with pytest.raises(InputError, match=r"datasets must be among A, B, C in .*, got 'D'"):
        find_samples(root, ["A", "D"])


@pytest.mark.parametrize(
    ("gone", "added"), [("image.png", ""), ("flow.flo", ""), ("", "disp.pfm"), ("flow.flo", "other.flo")]
)
def test_a_partial_or_doubtful_sample_is_an_error_that_lists_what_is_there(root: Path, gone: str, added: str) -> None:
    folder = root / "A" / "one"
    (folder / gone).unlink() if gone else None
    (folder / added).touch() if added else None
    present = ", ".join(sorted(path.name for path in folder.iterdir()))
    with pytest.raises(
        FileFormatError, match=rf"{folder}: a sample must have image.png and one of .*, got {re.escape(present)}"
    ):
        find_samples(root)


def test_files_that_do_not_belong_together_are_errors(root: Path) -> None:
    sample = find_samples(root)[0]
    fi.write_mask(sample.image.with_name("mask_10.png"), np.ones((H, W + 1), np.bool_))
    with pytest.raises(FileFormatError, match=r"mask_10.png: must be 30x20 pixels as .*flow.flo, got 31x20"):
        sample.load(0.1)
    fi.write_mask(sample.image.with_name("mask_10.png"), ~sample.load(0.2).valid)
    with pytest.raises(FileFormatError, match="at least one known pixel must be valid"):
        sample.load(0.1)
    fi.write_image(sample.image, np.zeros((H + 2, W), np.uint8))
    with pytest.raises(FileFormatError, match=r"image.png: must be 30x20 pixels as .*flow.flo, got 30x22"):
        sample.load(0.2)
    disparity = find_samples(root)[3]
    fi.write_flow(disparity.truth, np.ones((H, W, 2), np.float32))
    with pytest.raises(FileFormatError, match=r"disp.png: must have 1 channels, got 2"):
        disparity.load(0.2)


def test_more_pixels_than_are_valid_is_an_error(root: Path) -> None:
    with pytest.raises(InputError, match=r"density must select at most the 480 valid pixels, got 0\.9: 540 of 600"):
        find_samples(root)[0].load(0.9)


def test_a_pattern_is_drawn_among_the_valid_pixels_from_the_names_and_the_seed(root: Path) -> None:
    samples = find_samples(root)
    first = samples[0].load("holes", seed=3)
    assert samples[0].mask_kind("holes") == "holes"
    assert samples[0].mask_file("holes") is None
    assert not (first.mask & ~first.valid).any()
    assert np.array_equal(first.mask, find_samples(root / "A")[0].load("holes", seed=3).mask)
    for other in (samples[0].load("holes", seed=4), samples[1].load("holes", seed=3), samples[2].load("holes", seed=3)):
        assert not np.array_equal(first.mask, other.mask)
    assert samples[0].fingerprint("holes") == samples[0].fingerprint(0.2)
    assert samples[0].load("single", crop=8).mask.shape == (8, 8)


def test_cases_are_possible_while_there_are_pixels_to_draw(root: Path) -> None:
    sample = find_samples(root)[0]  # four fifths are valid, and a file has 10 %
    fi.write_mask(sample.image.with_name("mask_95.png"), np.ones((H, W), np.bool_))
    sample = find_samples(root)[0]
    assert sample.possible([0.1, 0.8, 0.81, 0.95, "lidar"]) == [0.1, 0.8, 0.95, "lidar"]
    assert sample.load(0.8).mask.sum() == sample.load(0.8).valid.sum()
    sample.truth.write_bytes(b"broken")
    assert sample.possible([0.1, 0.81]) == [0.1, 0.81]  # and load tells


def test_a_truth_without_valid_pixels_is_named(root: Path) -> None:
    sample = find_samples(root)[0]
    fi.write_flow(sample.truth, np.full((H, W, 2), np.nan, np.float32))
    assert sample.possible([0.1, 0.2, "grid"]) == [0.1, 0.2, "grid"]
    for case in (0.1, 0.2, "grid"):
        with pytest.raises(FileFormatError, match=r"flow\.flo: at least one pixel must be valid"):
            sample.load(case)


@pytest.fixture
def pair(tmp_path: Path) -> Sample:
    make_pair(tmp_path / "pairs" / "P" / "one")
    return find_samples(tmp_path / "pairs")[0]


@pytest.mark.parametrize("case", ["sift", "lk", "dis"])
def test_computed_vectors_are_given_also_where_the_truth_is_not_valid(pair: Sample, case: Case) -> None:
    frame = pair.load(case, seed=3)
    assert pair.mask_kind(case) == case
    assert np.array_equal(frame.mask, np.isfinite(frame.given).all(2))
    assert (frame.mask & ~frame.valid).any()
    assert np.isnan(frame.truth[~frame.valid]).all()
    assert np.mean(np.linalg.norm(frame.given[frame.mask] - SHIFT, axis=1) < 1) > 0.9
    again = pair.load(case, seed=4)
    assert np.array_equal(frame.given, again.given, equal_nan=True)
    middle = pair.load(case, crop=40)
    assert np.array_equal(middle.given, frame.given[28:68, 44:84], equal_nan=True)
    assert frame.second is not None
    assert middle.second is not None
    assert np.array_equal(middle.second, frame.second[28:68, 44:84])


@pytest.mark.parametrize(("case", "density"), [("noise", 0.05), ("outliers", 0.05), ("gross", 0.01)])
def test_corrupted_vectors_have_the_mask_of_their_density(root: Path, case: Case, density: float) -> None:
    for sample in find_samples(root):
        frame, clean = sample.load(case, seed=3), sample.load(density, seed=3)
        assert np.array_equal(frame.mask, clean.mask)
        assert np.array_equal(frame.truth, clean.truth, equal_nan=True)
        assert np.array_equal(np.isfinite(frame.given).all(2), frame.mask)
        assert (frame.given != frame.truth)[frame.mask].any()
        assert np.array_equal(clean.given, clean.truth, equal_nan=True)


def test_corruption_depends_on_data_set_sample_input_and_seed_alone(root: Path) -> None:
    one, two = find_samples(root, ["A"])
    folder = one.image.parent
    for sample in (one, two):
        fi.write_mask(sample.image.with_name("mask_05.png"), fi.random_mask((H, W), 0.5, 1))
    one, two = find_samples(root, ["A"])
    first = one.load("noise", seed=3)
    fi.write_mask(folder / "mask_05.png", first.mask)
    noise = (first.given - first.truth)[first.mask]
    for sample, case, seed in ((one, "noise", 4), (two, "noise", 3), (one, "outliers", 3)):
        other = sample.load(case, seed)  # type: ignore[arg-type]
        assert not np.allclose((other.given - other.truth)[other.mask], noise)
    again = find_samples(root / "A")[0].load("noise", seed=3)
    assert np.array_equal(again.given, first.given, equal_nan=True)


@pytest.mark.parametrize("name", ["given.flo", "given.png", "given.pfm", "given.npy"])
def test_vectors_of_another_program_are_read(root: Path, name: str) -> None:
    field = np.full((H, W, 2), np.nan, np.float32)
    field[:, :4], field[3, 9] = (1.5, -2), (0.25, 8)  # partly where the truth is not valid
    fi.write_flow(root / "A" / "one" / name, field)
    sample = find_samples(root)[0]
    frame = sample.load("given")
    assert np.array_equal(frame.given, field, equal_nan=True)
    assert np.array_equal(frame.mask, np.isfinite(field[..., 0]))
    assert sample.load(0.2).vectors is None


def test_given_vectors_that_do_not_fit_are_errors(root: Path) -> None:
    folder = root / "A" / "one"
    fi.write_flow(folder / "given.npy", np.ones((H, W, 1), np.float32))
    with pytest.raises(FileFormatError, match=r"given\.npy: must have 2 channels, got 1"):
        find_samples(root)[0].load("given")
    fi.write_flow(folder / "given.npy", np.ones((H, W + 1, 2), np.float32))
    with pytest.raises(FileFormatError, match=r"given\.npy: must be 30x20 pixels"):
        find_samples(root)[0].load("given")
    fi.write_flow(folder / "given.npy", np.full((H, W, 2), np.nan, np.float32))
    with pytest.raises(FileFormatError, match=r"given must give at least one vector, got none"):
        find_samples(root)[0].load("given")
    fi.write_flow(folder / "given.flo", np.ones((H, W, 2), np.float32))
    with pytest.raises(FileFormatError, match=r"at most one of given\.flo, .*, got given\.flo, given\.npy"):
        find_samples(root)


def test_an_input_is_possible_where_its_files_are(root: Path, pair: Sample) -> None:
    flow, disparity = find_samples(root)[0], find_samples(root)[2]
    fi.write_image(disparity.image.with_name("image2.png"), np.zeros((H, W), np.uint8))
    fi.write_flow(disparity.image.with_name("given.npy"), np.ones((H, W, 1), np.float32))
    disparity = find_samples(root)[2]
    corrupted = ["noise", "outliers", "gross"]
    assert flow.possible(list(INPUTS)) == corrupted
    assert disparity.possible(list(INPUTS)) == [*corrupted, "given"]
    assert pair.possible(list(INPUTS)) == ["sift", "orb", "lk", "dis", *corrupted]
    for sample, case in ((flow, "sift"), (disparity, "sift"), (flow, "given")):
        with pytest.raises(InputError, match=f"^{case} must have .*, got .*one"):
            sample.load(case)  # type: ignore[arg-type]
    sparse = np.full((H, W, 2), np.nan, np.float32)
    sparse[0, :12] = 1  # 2 % of the pixels
    fi.write_flow(flow.truth, sparse)
    assert flow.possible(["noise", "gross", 0.02, 0.05]) == ["gross", 0.02]


def test_the_fingerprint_covers_the_files_of_an_input(pair: Sample) -> None:
    before = {case: pair.fingerprint(case) for case in ("sift", "noise", 0.1, "given")}
    assert pair.second is not None
    fi.write_image(pair.second, np.zeros((96, 128), np.uint8))
    assert [case for case, hashed in before.items() if pair.fingerprint(case) != hashed] == ["sift"]  # type: ignore[arg-type]
    fi.write_flow(pair.image.with_name("given.flo"), np.ones((96, 128, 2), np.float32))
    fi.write_mask(pair.image.with_name("mask_05.png"), np.eye(96, 128, dtype=np.bool_))
    before["sift"] = pair.fingerprint("sift")
    (changed,) = find_samples(pair.image.parents[2])
    assert [case for case, hashed in before.items() if changed.fingerprint(case) != hashed] == ["noise", "given"]  # type: ignore[arg-type]


def test_a_second_image_has_the_size_of_the_first(pair: Sample) -> None:
    assert pair.second is not None
    fi.write_image(pair.second, np.zeros((96, 100), np.uint8))
    with pytest.raises(FileFormatError, match=r"image2\.png: must be 128x96 pixels"):
        pair.load(0.1)


def test_the_real_frames_are_found() -> None:
    samples = find_samples(reference("realflow"))
    assert len(samples) == 24
    venus = next(sample for sample in samples if sample.name == "Venus")
    mask = cv2.imread(str(venus.mask_file(0.05)), cv2.IMREAD_GRAYSCALE)
    assert mask is not None
    assert np.array_equal(venus.load(0.05).mask, (np.asarray(mask) > 0) & venus.load(0.05).valid)
    kitti = next(sample for sample in samples if sample.dataset == "KITTI2015")
    assert kitti.load(0.02).mask.mean() == pytest.approx(0.02, rel=1e-4)
