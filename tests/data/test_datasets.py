import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import flowinpaint as fi
from flowinpaint.data.datasets import LAYOUTS, Dataset, open_dataset
from flowinpaint.data.folder import find_samples
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from frame_folder import make_root, make_sample
from helpers import reference

H, W = 6, 9
SCENE_FLOWS = ["a_1/frame_0001", "a_1/frame_0002", "b_2/frame_0001"]
CAMERAS, DIRECTIONS = ("left", "right"), ("into_future", "into_past")


def number(path: Path) -> int:
    """Different for different files, and the same in each run."""
    return sum((i + 1) * ord(letter) for i, letter in enumerate(path.as_posix()[-60:])) % 2**20


def image(path: Path, size: tuple[int, ...] = (H, W, 3)) -> npt.NDArray[np.uint8]:
    """Write a picture that its path decides."""
    pixels = np.random.default_rng(number(path)).integers(0, 256, size, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    fi.write_image(path, pixels)
    return pixels


def flow(path: Path, size: tuple[int, int] = (H, W), valid: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[Any]:
    """Write a field that its path decides; its values are exact in every format."""
    field = np.random.default_rng(number(path)).integers(-640, 640, (*size, 2)).astype(np.float32) / 64
    path.parent.mkdir(parents=True, exist_ok=True)
    fi.write_flow(path, field, valid)
    return field


def subset(root: Path) -> Path:
    for split, frames in {"train": (0, 1, 4), "val": (0, 7)}.items():
        for camera in CAMERAS:
            for frame in frames:
                for render in ("clean", "final"):
                    image(root / split / f"image_{render}" / camera / f"{frame:07}.png")
            flow(root / split / "flow" / camera / "into_future" / f"{frames[0]:07}.flo")
            flow(root / split / "flow" / camera / "into_past" / f"{frames[1]:07}.flo")
    return root


def full_set(root: Path) -> Path:
    for part, scenes in {"TRAIN": ("A/0000", "C/0012"), "TEST": ("B/0003",)}.items():
        for scene in scenes:
            for camera in CAMERAS:
                for frame in ("0006", "0007"):
                    for render in ("clean", "final"):
                        image(root / f"frames_{render}pass" / part / scene / camera / f"{frame}.png")
                    for direction, long in zip(DIRECTIONS, ("IntoFuture", "IntoPast"), strict=True):
                        file = f"OpticalFlow{long}_{frame}_{camera[0].upper()}.pfm"
                        flow(root / "optical_flow" / part / scene / direction / camera / file)
    return root


def sintel(root: Path) -> Path:
    for name in [*SCENE_FLOWS, "a_1/frame_0003", "b_2/frame_0002"]:
        for render in ("clean", "final"):
            image(root / "training" / render / f"{name}.png")
    for name in SCENE_FLOWS:
        flow(root / "training" / "flow" / f"{name}.flo")
    return root


def kitti(camera: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        for name in ("000000_10.png", "000001_10.png"):
            image(root / "training" / camera / name)
            image(root / "training" / camera / name.replace("_10", "_11"))
            for kind, rows in {"occ": 4, "noc": 3}.items():
                flow(root / "training" / f"flow_{kind}" / name, valid=np.arange(H)[:, None] + np.zeros(W) >= H - rows)
        return root

    return make


def middlebury(root: Path) -> Path:
    for name in ("Army", "Urban2", "Venus"):
        image(root / "other-data" / name / "frame10.png")
        image(root / "other-data" / name / "frame11.png")
    flow(root / "other-gt-flow" / "Urban2" / "flow10.flo")
    flow(root / "other-gt-flow" / "Venus" / "flow10.flo", valid=np.eye(H, W) == 0)
    return root


def flyingchairs(root: Path) -> Path:
    for i in range(1, 6):
        image(root / "data" / f"{i:05}_img1.ppm")
        image(root / "data" / f"{i:05}_img2.ppm")
        flow(root / "data" / f"{i:05}_flow.flo")
    (root / "FlyingChairs_train_val.txt").write_text("1\n2\n1\n1\n2\n")
    return root


def hd1k(root: Path) -> Path:
    for name in ("000000_0000.png", "000000_0001.png", "000012_0040.png"):
        image(root / "hd1k_input" / "image_2" / name)
        flow(root / "hd1k_flow_gt" / "flow_occ" / name, valid=np.eye(H, W) > 0)
    return root


TREES: dict[str, Callable[[Path], Path]] = {
    "flyingthings3d": subset,
    "sintel": sintel,
    "kitti2012": kitti("colored_0"),
    "kitti2015": kitti("image_2"),
    "middlebury": middlebury,
    "flyingchairs": flyingchairs,
    "hd1k": hd1k,
    "folder": make_root,
}
FIRST_FOLDER = {
    "flyingthings3d": "train/image_final",
    "sintel": "training/final",
    "kitti2012": "training/flow_occ",
    "kitti2015": "training/flow_occ",
    "middlebury": "other-data",
    "flyingchairs": "data",
    "hd1k": "hd1k_input/image_2",
}


def names(dataset: Dataset) -> list[str]:
    return [example.name for example in dataset]


def check_pairs(dataset: Dataset, root: Path, pairs: dict[str, str]) -> None:
    """The examples are those of `pairs` (truth to image, paths from the root), in this order."""
    assert len(dataset) == len(pairs)
    for example, (truth, picture) in zip(dataset, pairs.items(), strict=True):
        field, valid = fi.read_flow(root / truth)
        assert np.array_equal(example.image, fi.read_image(root / picture))
        assert np.array_equal(example.truth, field, equal_nan=True)
        assert np.array_equal(example.valid, valid)


def test_every_layout_is_tested() -> None:
    assert TREES.keys() == LAYOUTS.keys()


@pytest.mark.parametrize("render", ["final", "clean"])
def test_flyingthings3d_subset_has_both_cameras_and_directions(tmp_path: Path, render: str) -> None:
    root = subset(tmp_path / "FlyingThings3D_subset")
    pairs = {
        f"train/flow/{camera}/{direction}/{frame}.flo": f"train/image_{render}/{camera}/{frame}.png"
        for camera in CAMERAS
        for direction, frame in zip(DIRECTIONS, ("0000000", "0000001"), strict=True)
    }
    for given in (root, tmp_path):
        dataset = open_dataset("flyingthings3d", given, "train", render)
        check_pairs(dataset, root, pairs)
        assert names(dataset)[1] == "left/into_past/0000001"
    val = open_dataset("flyingthings3d", root, "val", render)
    assert names(val)[::3] == ["left/into_future/0000000", "right/into_past/0000007"]


def test_flyingthings3d_in_full(tmp_path: Path) -> None:
    root = full_set(tmp_path)
    pairs = {
        f"optical_flow/TRAIN/{scene}/{direction}/{camera}/OpticalFlow{long}_{frame}_{camera[0].upper()}.pfm": (
            f"frames_finalpass/TRAIN/{scene}/{camera}/{frame}.png"
        )
        for scene in ("A/0000", "C/0012")
        for direction, long in zip(DIRECTIONS, ("IntoFuture", "IntoPast"), strict=True)
        for camera in CAMERAS
        for frame in ("0006", "0007")
    }
    check_pairs(open_dataset("flyingthings3d", root), root, pairs)
    assert len(open_dataset("flyingthings3d", root, "val", "clean")) == 8


def test_the_third_channel_of_a_pfm_has_no_meaning(tmp_path: Path) -> None:
    file = "optical_flow/TRAIN/A/0000/into_future/left/OpticalFlowIntoFuture_0006_L.pfm"
    root = full_set(tmp_path)
    field = np.arange(H * W * 3, dtype=np.float32).reshape(H, W, 3)
    fi.write_flow(root / file, field)
    assert np.array_equal(open_dataset("flyingthings3d", root)[0].truth, field[..., :2])


@pytest.mark.parametrize("render", ["final", "clean"])
def test_sintel(tmp_path: Path, render: str) -> None:
    root = sintel(tmp_path)
    dataset = open_dataset("sintel", root, render=render)
    check_pairs(dataset, root, {f"training/flow/{n}.flo": f"training/{render}/{n}.png" for n in SCENE_FLOWS})
    assert names(dataset) == SCENE_FLOWS


def test_sintels_invalid_pixels_are_left_out_where_their_masks_are_there(tmp_path: Path) -> None:
    root = sintel(tmp_path)
    invalid = np.eye(H, W, dtype=np.bool_)
    for name in SCENE_FLOWS:
        (root / "training" / "invalid" / name).parent.mkdir(parents=True, exist_ok=True)
        fi.write_mask(root / "training" / "invalid" / f"{name}.png", invalid)
    for example in open_dataset("sintel", root):
        assert np.array_equal(example.valid, ~invalid)
        assert np.array_equal(np.isnan(example.truth), np.dstack([invalid] * 2))
    (root / "training" / "invalid" / f"{SCENE_FLOWS[1]}.png").unlink()
    with pytest.raises(MissingFileError, match=r"invalid/a_1/frame_0002\.png: there is no such file"):
        open_dataset("sintel", root)[1]


@pytest.mark.parametrize(
    ("name", "camera"), [("kitti2012", "colored_0"), ("kitti2012", "image_0"), ("kitti2015", "image_2")]
)
def test_kitti(tmp_path: Path, name: str, camera: str) -> None:
    root = kitti(camera)(tmp_path)
    for split in ("occ", "noc"):
        pairs = {f"training/flow_{split}/{n}_10.png": f"training/{camera}/{n}_10.png" for n in ("000000", "000001")}
        check_pairs(open_dataset(name, root, split), root, pairs)
    occ, noc = (open_dataset(name, root, split)[0].valid for split in ("occ", "noc"))
    assert occ.sum() > noc.sum()
    assert np.array_equal(open_dataset(name, root)[0].valid, occ)


def test_kittis_density_is_a_share_of_all_pixels_drawn_from_the_measured_ones(tmp_path: Path) -> None:
    example = open_dataset("kitti2015", kitti("image_2")(tmp_path))[0]
    mask = fi.random_mask((H, W), 0.5, seed=1, valid=example.valid)
    assert mask.sum() == H * W // 2
    assert not (mask & ~example.valid).any()


def test_a_grey_image_gets_three_equal_channels(tmp_path: Path) -> None:
    root = kitti("image_0")(tmp_path)
    grey = image(root / "training" / "image_0" / "000000_10.png", (H, W))
    assert np.array_equal(open_dataset("kitti2012", root)[0].image, np.dstack([grey] * 3))


def test_colour_is_preferred_to_grey(tmp_path: Path) -> None:
    root = kitti("colored_0")(kitti("image_0")(tmp_path))
    assert open_dataset("kitti2012", root).samples[0].image.parent.name == "colored_0"


def test_middlebury(tmp_path: Path) -> None:
    root = middlebury(tmp_path)
    dataset = open_dataset("middlebury", root)
    pairs = {f"other-gt-flow/{n}/flow10.flo": f"other-data/{n}/frame10.png" for n in ("Urban2", "Venus")}
    check_pairs(dataset, root, pairs)
    assert [example.valid.sum() for example in dataset] == [H * W, H * W - H]


def test_flyingchairs(tmp_path: Path) -> None:
    root = flyingchairs(tmp_path / "FlyingChairs_release")
    for given in (root, tmp_path):
        for split, numbers in {"train": (1, 3, 4), "val": (2, 5)}.items():
            pairs = {f"data/{i:05}_flow.flo": f"data/{i:05}_img1.ppm" for i in numbers}
            check_pairs(open_dataset("flyingchairs", given, split), root, pairs)


def test_hd1k(tmp_path: Path) -> None:
    root = hd1k(tmp_path / "hd1k_full_package")
    files = ("000000_0000.png", "000000_0001.png", "000012_0040.png")
    for given in (root, tmp_path):
        pairs = {f"hd1k_flow_gt/flow_occ/{file}": f"hd1k_input/image_2/{file}" for file in files}
        check_pairs(open_dataset("hd1k", given), root, pairs)


def test_folder(tmp_path: Path) -> None:
    dataset = open_dataset("folder", make_root(tmp_path))
    assert names(dataset) == ["A/one", "A/two", "B/one", "B/three"]
    assert [example.truth.shape[2] for example in dataset] == [2, 2, 1, 1]


def test_a_slice_is_a_data_set(tmp_path: Path) -> None:
    dataset = open_dataset("sintel", sintel(tmp_path))[1:]
    assert names(dataset) == SCENE_FLOWS[1:]
    assert dataset[-1].name == SCENE_FLOWS[-1]
    with pytest.raises(IndexError):
        dataset[2]


def test_channels_are_those_of_all_truths(tmp_path: Path) -> None:
    dataset = open_dataset("folder", make_root(tmp_path))
    assert dataset[:2].channels == 2
    assert dataset[2:].channels == 1
    with pytest.raises(InputError, match=r"must be of one kind, got 1 channels \(B/one\) and 2 channels \(A/one\)"):
        _ = dataset.channels


@pytest.mark.parametrize("name", FIRST_FOLDER)
def test_a_wrong_root_says_what_was_found_and_what_is_expected(tmp_path: Path, name: str) -> None:
    root, expected = tmp_path / "root", tmp_path / "root" / FIRST_FOLDER[name]
    start = re.escape(f"root must contain the folder {expected}, but {root} ")
    with pytest.raises(InputError, match=rf"^{start}does not exist$"):
        open_dataset(name, root)
    root.mkdir()
    with pytest.raises(InputError, match=rf"^{start}contains nothing$"):
        open_dataset(name, root)
    for child in "gfedcba":
        (root / child).mkdir()
    with pytest.raises(InputError, match=rf"^{start}contains a, b, c, d, e, …$"):
        open_dataset(name, root)
    shutil.rmtree(root)
    root.touch()
    with pytest.raises(InputError, match=rf"^{start}is a file$"):
        open_dataset(name, root)


def test_a_folder_that_is_not_there_is_looked_for_as_deep_as_possible(tmp_path: Path) -> None:
    root = kitti("colored_0")(tmp_path)
    found = f"the folder {root}/training/image_2, but {root}/training contains colored_0, flow_noc, flow_occ"
    with pytest.raises(InputError, match=re.escape(found)):
        open_dataset("kitti2015", root)


def test_a_folder_without_the_files_says_so(tmp_path: Path) -> None:
    root = sintel(tmp_path)
    shutil.rmtree(root / "training" / "flow" / "a_1")
    shutil.rmtree(root / "training" / "flow" / "b_2")
    with pytest.raises(InputError, match=r"root must contain files \*/frame_\*\.flo in .*training/flow, got nothing"):
        open_dataset("sintel", root)


@pytest.mark.parametrize(
    ("name", "image", "truth"),
    [
        ("flyingthings3d", "train/image_final/right/0000001.png", "train/flow/right/into_past/0000001.flo"),
        ("sintel", "training/final/b_2/frame_0001.png", "training/flow/b_2/frame_0001.flo"),
        ("kitti2012", "training/colored_0/000001_10.png", "training/flow_occ/000001_10.png"),
        ("kitti2015", "training/image_2/000001_10.png", "training/flow_occ/000001_10.png"),
        ("middlebury", "other-data/Venus/frame10.png", "other-gt-flow/Venus/flow10.flo"),
        ("flyingchairs", "data/00004_img1.ppm", "data/00004_flow.flo"),
        ("hd1k", "hd1k_input/image_2/000000_0001.png", "hd1k_flow_gt/flow_occ/000000_0001.png"),
    ],
)
def test_a_flow_without_its_image_is_told(tmp_path: Path, name: str, image: str, truth: str) -> None:
    root = TREES[name](tmp_path)
    (root / image).unlink()
    with pytest.raises(MissingFileError) as caught:
        open_dataset(name, root)
    message = str(caught.value)
    assert message.startswith(f"root must contain an image for every flow, such as {root / image} for {root / truth},")
    assert "got none for 1 of " in message


@pytest.mark.parametrize(
    ("name", "truth", "image"),
    [
        ("sintel", "training/flow/a_1/frame_0002.flo", "training/final/a_1/frame_0002.png"),
        ("kitti2012", "training/flow_occ/000001_10.png", "training/colored_0/000001_10.png"),
        ("flyingchairs", "data/00004_flow.flo", "data/00004_img1.ppm"),
    ],
)
def test_an_image_without_a_flow_is_told_where_each_has_one(tmp_path: Path, name: str, truth: str, image: str) -> None:
    root = TREES[name](tmp_path)
    (root / truth).unlink()
    with pytest.raises(
        MissingFileError, match=rf"a flow in .* for every image, got none for 1 of \d: {root / image}, …"
    ):
        open_dataset(name, root)


def test_flyingchairs_without_a_good_list_of_its_splits(tmp_path: Path) -> None:
    root = flyingchairs(tmp_path)
    file = root / "FlyingChairs_train_val.txt"
    for text, fault in {
        "1\n2\n": "must have a mark for each of the 5 flows in .*, got 2",
        "1 1 1 1 3": r"marks must be 1 \(training\) or 2 \(validation\), got \['3'\]",
    }.items():
        file.write_text(text)
        with pytest.raises(FileFormatError, match=f"FlyingChairs_train_val.txt: {fault}"):
            open_dataset("flyingchairs", root)
    file.write_text("1 1 1 1 1")
    with pytest.raises(InputError, match=r"split must have samples in .*, got none in 'val'"):
        open_dataset("flyingchairs", root, "val")
    file.unlink()
    with pytest.raises(MissingFileError, match=f"root must contain the file {file}, got data"):
        open_dataset("flyingchairs", root)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "Sintel"}, "name must be one of flyingthings3d, sintel, kitti2012,"),
        ({"split": "test"}, "split of sintel must be train, got 'test'"),
        ({"render": "albedo"}, "render of sintel must be final or clean, got 'albedo'"),
        ({"name": "kitti2012", "split": "train"}, "split of kitti2012 must be occ or noc, got 'train'"),
        ({"name": "hd1k", "render": "clean"}, "render of hd1k must be omitted, got 'clean'"),
        ({"name": "folder", "split": "train"}, "split of folder must be omitted, got 'train'"),
    ],
)
def test_a_wrong_name_split_or_render(tmp_path: Path, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        open_dataset(**{"name": "sintel", "root": str(tmp_path), **arguments})


def test_sizes_and_channels_are_checked_when_an_example_is_read(tmp_path: Path) -> None:
    root = sintel(tmp_path / "sintel")
    image(root / "training" / "final" / f"{SCENE_FLOWS[0]}.png", (H, W + 1, 3))
    truth = root / "training" / "flow" / f"{SCENE_FLOWS[0]}.flo"
    dataset = open_dataset("sintel", root)
    with pytest.raises(FileFormatError, match=rf"frame_0001.png: must be 9x6 pixels as {truth}, got 10x6"):
        dataset[0]
    flow(truth, (H, W + 1))
    (root / "training" / "invalid" / "a_1").mkdir(parents=True)
    fi.write_mask(root / "training" / "invalid" / f"{SCENE_FLOWS[0]}.png", np.ones((H + 1, W), np.bool_))
    with pytest.raises(FileFormatError, match=r"invalid/a_1/frame_0001.png: must be 10x6 pixels .*, got 9x7"):
        open_dataset("sintel", root)[0]
    folder = make_sample(tmp_path / "frames" / "A" / "one", "disp.png")
    flow(folder / "disp.png", (20, 30))
    with pytest.raises(FileFormatError, match=r"disp.png: must have 1 channels, got 2"):
        open_dataset("folder", tmp_path / "frames")[0]


def test_real_frames_as_a_folder() -> None:
    root = reference("realflow")
    dataset = open_dataset("folder", root)
    samples = find_samples(root)
    assert len(dataset) == len(samples) == 24
    for example, sample in list(zip(dataset, samples, strict=True))[::5]:
        frame = sample.load(0.05)
        assert example.name == f"{sample.dataset}/{sample.name}"
        assert np.array_equal(example.truth, frame.truth, equal_nan=True)
        assert example.image.shape == (*example.valid.shape, 3)
    with pytest.raises(InputError, match=r"1 channels \(Disparity/.*\) and 2 channels \(FlyingChairs/00001\)"):
        _ = dataset.channels


def test_real_frames_in_the_layouts_of_their_data_sets(tmp_path: Path) -> None:
    def link(sample: str, file: str, place: str) -> None:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).symlink_to(reference("realflow") / sample / file)

    for name in ("000002_10", "000010_10"):
        link(f"KITTI2015/{name}", "flow.png", f"kitti/training/flow_occ/{name}.png")
        link(f"KITTI2015/{name}", "image.png", f"kitti/training/image_2/{name}.png")
    link("MPI-Sintel/cave_2_f0002", "flow.flo", "sintel/training/flow/cave_2/frame_0002.flo")
    link("MPI-Sintel/cave_2_f0002", "image.png", "sintel/training/final/cave_2/frame_0002.png")
    link("Middlebury/RubberWhale", "flow.flo", "middlebury/other-gt-flow/RubberWhale/flow10.flo")
    link("Middlebury/RubberWhale", "image.png", "middlebury/other-data/RubberWhale/frame10.png")
    shares = {
        name: [round(float(example.valid.mean()), 3) for example in open_dataset(name, tmp_path / folder)]
        for name, folder in {"kitti2015": "kitti", "sintel": "sintel", "middlebury": "middlebury"}.items()
    }
    assert shares == {"kitti2015": [0.216, 0.24], "sintel": [1.0], "middlebury": [0.984]}
