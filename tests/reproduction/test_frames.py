from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import flowinpaint as fi
from flowinpaint.data.folder import Sample, centre
from flowinpaint.errors import InputError
from flowinpaint.reproduction.experiment import Scale
from flowinpaint.reproduction.frames import (
    GENERATED,
    GENERATED_WIDE,
    FrameOptions,
    FrameSet,
    SceneSample,
    folders_without_flow,
    square_frames,
    wide_frames,
)
from flowinpaint.reproduction.session import Session
from flowinpaint.training.config import DataConfig
from frame_folder import make_root, make_sample

DATA = DataConfig()
H, W = 40, 60


def picture(path: Path, seed: int = 0, size: tuple[int, int] = (H, W)) -> npt.NDArray[np.uint8]:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    fi.write_image(path, pixels)
    return pixels


def field(path: Path, seed: int = 0, share: float = 1.0) -> npt.NDArray[Any]:
    rng = np.random.default_rng(seed)
    values = rng.integers(-640, 640, (H, W, 2)).astype(np.float32) / 64
    path.parent.mkdir(parents=True, exist_ok=True)
    fi.write_flow(path, values, rng.random((H, W)) < share)
    return values


def sintel(root: Path) -> Path:
    for i in (1, 2, 3):
        picture(root / "training" / "clean" / "alley_1" / f"frame_{i:04}.png", 10 + i)
        picture(root / "training" / "final" / "alley_1" / f"frame_{i:04}.png", i)
    for i in (1, 2):
        field(root / "training" / "flow" / "alley_1" / f"frame_{i:04}.flo", i)
    return root


def kitti(root: Path, share: float = 0.2) -> Path:
    for i in (0, 1):
        picture(root / "training" / "image_2" / f"{i:06}_10.png", i)
        field(root / "training" / "flow_occ" / f"{i:06}_10.png", i, share)
    return root


def flyingthings(root: Path) -> Path:
    for split in ("train", "val"):
        for camera in ("left", "right"):
            for i in (6, 7):
                picture(root / split / "image_final" / camera / f"{i:07}.png", i)
                picture(root / split / "image_clean" / camera / f"{i:07}.png", 10 + i)
            field(root / split / "flow" / camera / "into_future" / "0000006.flo")
            field(root / split / "flow" / camera / "into_past" / "0000007.flo")
    return root


def test_sintel_is_cut_to_the_middle_of_its_final_pass(tmp_path: Path, scale: Scale) -> None:
    root = sintel(tmp_path)
    frames = square_frames(FrameOptions(sintel=root), scale, DATA)
    assert frames.crop == 32
    assert frames.datasets == ["Sintel"]
    assert [sample.name for sample in frames.samples] == ["alley_1/frame_0001", "alley_1/frame_0002"]
    frame = frames.samples[0].load(0.05, seed=3, crop=frames.crop)
    middle = (slice(4, 36), slice(14, 46))
    assert np.array_equal(frame.image, fi.read_image(root / "training/final/alley_1/frame_0001.png")[middle])
    assert np.array_equal(frame.truth, fi.read_flow(root / "training/flow/alley_1/frame_0001.flo")[0][middle])
    assert frame.mask.sum() == round(0.05 * 32 * 32)
    assert frames.about["Sintel"] == "2 frames: training frames, final pass, the 32×32 pixels in their middle"
    with pytest.raises(InputError, match=r"--scenes"):
        square_frames(FrameOptions(kitti=root), scale, DATA)


def test_kitti_is_whole_and_shares_are_of_all_pixels_among_the_measured(tmp_path: Path, scale: Scale) -> None:
    frames = wide_frames(FrameOptions(kitti=kitti(tmp_path)), scale, DATA)
    assert (frames.crop, frames.datasets) == (0, ["KITTI2015"])
    sample = frames.samples[0]
    frame = sample.load(0.1, crop=frames.crop)
    assert frame.truth.shape == (H, W, 2)
    assert frame.mask.sum() == round(0.1 * H * W)
    assert not (frame.mask & ~frame.valid).any()
    assert sample.possible([0.01, 0.1, 0.5, "lidar"]) == [0.01, 0.1, "lidar"]  # a fifth is measured
    assert sample.mask_kind(0.1) == "random"
    assert np.array_equal(frame.mask, sample.load(0.1).mask)
    assert not np.array_equal(frame.mask, sample.load(0.1, seed=1).mask)


def test_flyingthings_is_the_final_test_split_of_one_camera_and_direction(tmp_path: Path, scale: Scale) -> None:
    frames = square_frames(FrameOptions(flyingthings=flyingthings(tmp_path)), scale, DATA)
    assert [sample.name for sample in frames.samples] == ["left/into_future/0000006"]
    (sample,) = frames.samples
    assert isinstance(sample, Sample)
    assert sample.image == tmp_path / "val/image_final/left/0000006.png"
    assert "test split, final pass" in frames.about["FlyingThings3D"]


def test_a_fingerprint_changes_with_a_file(tmp_path: Path, scale: Scale) -> None:
    root = sintel(tmp_path)
    sample, other = square_frames(FrameOptions(sintel=root), scale, DATA).samples
    before = sample.fingerprint(0.05)
    assert before == sample.fingerprint(0.1) != other.fingerprint(0.05)
    picture(root / "training" / "final" / "alley_1" / "frame_0001.png", 99)
    assert sample.fingerprint(0.05) != before


def test_folders_are_kittis_or_not_and_disparity_has_no_place(tmp_path: Path, scale: Scale) -> None:
    root = make_root(tmp_path / "frames")
    make_sample(root / "KITTI2012" / "one", "flow.png")
    choice = FrameOptions(root=root)
    assert square_frames(choice, scale, DATA).datasets == ["A"]
    assert wide_frames(choice, scale, DATA).datasets == ["KITTI2012"]
    assert folders_without_flow(choice) == ["B"]
    assert folders_without_flow(FrameOptions()) == []


def test_of_many_frames_some_are_taken_evenly(tmp_path: Path, scale: Scale) -> None:
    for i in range(7):
        make_sample(tmp_path / "frames" / "A" / str(i))
    frames = square_frames(FrameOptions(root=tmp_path / "frames", most=3), scale, DATA)
    assert [sample.name for sample in frames.samples] == ["0", "3", "6"]
    assert frames.about["A"].startswith("3 frames of 7: ")


@pytest.mark.usefixtures("tiny_scenes")
def test_without_any_data_scenes_are_generated_of_the_trainings_kind(scale: Scale) -> None:
    square, wide = square_frames(FrameOptions(), scale, DATA), wide_frames(FrameOptions(), scale, DATA)
    assert (square.datasets, wide.datasets) == ([GENERATED], [GENERATED_WIDE])
    first, second = square.samples
    frame = first.load(0.05, crop=square.crop)
    assert frame.truth.shape == (32, 32, 2)
    assert frame.valid.all()
    assert wide.samples[0].load(0.05).truth.shape == (24, 48, 2)
    assert not np.array_equal(frame.truth, second.load(0.05).truth)
    assert first.fingerprint(0.05) != second.fingerprint(0.05)
    assert isinstance(first, SceneSample)
    config = replace(first.layered, photo=0.1)
    assert replace(first, layered=config).fingerprint(0.05) != first.fingerprint(0.05)
    other = square_frames(FrameOptions(scenes=1), scale, replace(DATA, source="sintel", root="x"))
    assert other.datasets == ["scenes"]  # which is not what those networks are trained on
    assert "not of the training's kind" in other.about["scenes"]


def test_scenes_are_added_to_data_sets_if_asked_for(tmp_path: Path, scale: Scale) -> None:
    frames = square_frames(FrameOptions(sintel=sintel(tmp_path), scenes=1), scale, DATA)
    assert frames.datasets == ["Sintel", GENERATED]


def test_the_centre_is_all_where_a_frame_is_smaller() -> None:
    assert centre((10, 7), 4) == (slice(3, 7), slice(1, 5))
    assert centre((10, 3), 4) == (slice(3, 7), slice(None))
    assert centre((10, 7), 0) == (slice(None), slice(None))


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ({"a": 9}, ["a0", "a2", "a4", "a6"]),
        ({"a": 2}, ["a0", "a1"]),
        ({"a": 5, "b": 5, "c": 1}, ["a0", "a2", "b0", "c0"]),
        ({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, ["a0", "b0", "c0", "d0"]),
    ],
)
def test_a_few_frames_are_of_all_data_sets(counts: dict[str, int], shown: list[str], tmp_path: Path) -> None:
    samples = [Sample(name, f"{name}{i}", tmp_path, tmp_path) for name, n in counts.items() for i in range(n)]
    found = FrameSet(tuple(samples), 64, dict.fromkeys(counts, "frames")).spread(4)
    assert [sample.name for sample in found.samples] == shown
    assert list(found.about) == list(dict.fromkeys(sample.dataset for sample in found.samples))


def test_generated_frames_in_place_of_none_are_told_of(tmp_path: Path, make_session: Callable[..., Session]) -> None:
    def told(names: list[str], rehearsal: bool = False, **fields: Any) -> list[str]:
        sentences: list[str] = []
        session = make_session(note=sentences.append, **fields)
        session.scale = replace(session.scale, rehearsal=rehearsal)
        session.check_frames(names)
        return sentences

    none, no_kitti = "No frames were named: using 2", "None of KITTI's frames were named for Table 3: using 1"
    assert [sentence.split(" generated ones")[0] for sentence in told(["table1", "table3"])] == [none, no_kitti]
    assert told(["table1", "table3"], rehearsal=True) == []
    assert told(["table1"], frames=FrameOptions(scenes=1)) == []  # they were asked for
    make_sample(tmp_path / "frames" / "A" / "one")
    frames = FrameOptions(root=tmp_path / "frames")
    assert told(["table1", "figure-cost"], frames=frames) == []
    assert [sentence.split(" generated ones")[0] for sentence in told(["table1", "table3"], frames=frames)] == [
        no_kitti
    ]
