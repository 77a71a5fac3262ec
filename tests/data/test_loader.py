from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import flowinpaint as fi
from flowinpaint.data import Batch
from flowinpaint.data.datasets import Dataset, open_dataset
from flowinpaint.data.loader import DiskBatches, read_sample
from flowinpaint.errors import FileFormatError, InputError
from frame_folder import make_root, make_sample
from helpers import reference, seeds

H, W = 20, 30
COUNT = 7


@pytest.fixture(scope="session")
def coordinates(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Frames whose colours tell row, column and frame, and whose flow tells column and row, counted from 1."""
    root = tmp_path_factory.mktemp("frames")
    rows, columns = np.mgrid[1 : H + 1, 1 : W + 1]
    for i in range(COUNT):
        folder = root / "A" / str(i)
        folder.mkdir(parents=True)
        fi.write_image(folder / "image.png", np.dstack([rows, columns, np.full((H, W), i)]).astype(np.uint8))
        fi.write_flow(folder / "flow.flo", np.dstack([columns, rows]).astype(np.float32))
    return open_dataset("folder", root)


def make_frame(root: Path, image: Any, truth: Any, name: str = "flow.flo") -> Dataset:
    """A data set of one frame."""
    folder = root / "A" / "one"
    folder.mkdir(parents=True)
    fi.write_image(folder / "image.png", image)
    fi.write_flow(folder / name, truth)
    return open_dataset("folder", root)


def batches(dataset: Dataset, count: int, **arguments: Any) -> list[Batch]:
    return list(islice(DiskBatches(dataset, **{"batch": 4, "size": (8, 10), "workers": 0, **arguments}), count))


def joined(parts: Sequence[Batch]) -> Batch:
    return Batch(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def frames(batch: Batch) -> list[int]:
    return (batch.image[:, 2, 0, 0] * 255).round().int().tolist()


def test_a_batch_is_float32_in_its_shapes(coordinates: Dataset) -> None:
    loader = DiskBatches(coordinates, 3, (8, 10), workers=0)
    batch = next(iter(loader))
    assert [tuple(part.shape) for part in batch] == [(3, 3, 8, 10), (3, 2, 8, 10), (3, 1, 8, 10)]
    assert all(part.dtype == torch.float32 and part.is_contiguous() for part in batch)
    assert loader.channels == 2
    assert (batch.valid == 1).all()


def test_a_sample_is_a_crop_or_its_mirror_image(coordinates: Dataset) -> None:
    flipped, corners = [], set()
    for image, flow, _ in (read_sample(coordinates, n, (8, 10), 3) for n in range(200)):
        pixels = np.rint(image * 255)
        rows, columns = pixels[0], pixels[1]
        assert np.array_equal(np.abs(flow), np.stack([columns, rows]))
        step = columns[0, 1] - columns[0, 0]
        # Mirrored, what moves to the right moves to the left.
        assert np.array_equal(np.sign(flow[0]), np.full((8, 10), step))
        assert np.array_equal(rows - rows[0, 0], np.mgrid[:8, :10][0])
        assert np.array_equal(columns - columns[0, 0], step * np.mgrid[:8, :10][1])
        flipped.append(step < 0)
        corners.add((rows[0, 0], columns.min()))
    assert 60 < sum(flipped) < 140
    assert {row for row, _ in corners} == set(range(1, H - 8 + 2))
    assert {column for _, column in corners} == set(range(1, W - 10 + 2))


@settings(max_examples=20)
@given(seed=seeds)
def test_an_epoch_has_each_example_once_in_an_order_of_its_own(coordinates: Dataset, seed: int) -> None:
    order = [frame for batch in batches(coordinates, 6, batch=COUNT, size=(1, 1), seed=seed) for frame in frames(batch)]
    epochs = [tuple(order[i : i + COUNT]) for i in range(0, len(order), COUNT)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len(set(epochs)) > 1


def test_seeds_differ(coordinates: Dataset) -> None:
    first, second = (joined(batches(coordinates, 3, seed=seed)) for seed in (0, 1))
    assert not torch.equal(first.image, second.image)
    # The crops too, not only the order.
    one_frame = coordinates[:1]
    assert not same(*(joined(batches(one_frame, 2, seed=seed)) for seed in (0, 1)))


@settings(max_examples=40)
@given(first=st.integers(0, 40), world=st.sampled_from([1, 2, 4]), seed=seeds)
def test_any_start_and_any_number_of_processes_give_the_same_samples(
    coordinates: Dataset, first: int, world: int, seed: int
) -> None:
    samples = [read_sample(coordinates, n, (8, 10), seed) for n in range(first, first + 12)]
    expected = Batch(*(torch.from_numpy(np.stack(part)) for part in zip(*samples, strict=True)))
    ranks = [batches(coordinates, 3, seed=seed, first_sample=first, rank=r, world=world) for r in range(world)]
    assert all(len(part.image) == 4 // world for rank in ranks for part in rank)
    assert same(joined([joined(parts) for parts in zip(*ranks, strict=True)]), expected)


def test_a_later_start_goes_on_as_an_uninterrupted_run(coordinates: Dataset) -> None:
    whole = batches(coordinates, 6)
    assert all(same(a, b) for a, b in zip(whole[2:], batches(coordinates, 4, first_sample=8), strict=True))
    loader = DiskBatches(coordinates, 4, (8, 10), workers=0)
    assert all(same(next(iter(loader)), whole[0]) for _ in range(2))


def test_workers_change_nothing(coordinates: Dataset) -> None:
    # OpenCV's and PyTorch's threads exist already when the workers are forked.
    cv2.cvtColor(np.zeros((2000, 2000, 3), np.uint8), cv2.COLOR_BGR2GRAY)
    state = torch.get_rng_state()
    parallel = batches(coordinates, 5, workers=2, first_sample=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(same(a, b) for a, b in zip(parallel, batches(coordinates, 5, first_sample=3), strict=True))


def test_an_image_smaller_than_the_crop_is_mirrored_and_not_valid_there(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    image, truth = rng.integers(0, 256, (5, 20, 3), dtype=np.uint8), rng.normal(size=(5, 20, 2)).astype(np.float32)
    dataset = make_frame(tmp_path, image, truth)
    kinds = set()
    for n in range(8):
        sample, flow, valid = read_sample(dataset, n, (18, 20), 0)
        inside = np.zeros((18, 20), np.bool_)
        inside[6:11] = True
        assert np.array_equal(valid[0], inside)
        assert (flow[:, ~inside] == 0).all()
        flip = bool(np.array_equal(np.rint(sample[:, 6:11] * 255).transpose(1, 2, 0), image[:, ::-1]))
        kinds.add(flip)
        seen = image[:, ::-1] if flip else image
        field = truth[:, ::-1] * np.array([-1, 1], np.float32) if flip else truth
        assert np.array_equal(flow[:, 6:11].transpose(1, 2, 0), field)
        # 6 rows before and 7 after 5 rows: the mirror images begin with the border row itself, and are mirrored again.
        rows = [4, *range(4, -1, -1), *range(5), *range(4, -1, -1), 0, 1]
        assert np.array_equal(np.rint(sample * 255).transpose(1, 2, 0), seen[rows])
    assert kinds == {True, False}


def test_unknown_flow_is_0_and_not_valid(tmp_path: Path) -> None:
    truth = np.random.default_rng(0).normal(size=(6, 8, 2)).astype(np.float32)
    truth[2, 3] = np.nan
    dataset = make_frame(tmp_path, np.zeros((6, 8, 3), np.uint8), truth)
    for n in range(8):
        _, flow, valid = read_sample(dataset, n, (6, 8), 0)
        assert valid.sum() == 47
        assert np.array_equal((flow == 0).all(axis=0), valid[0] == 0)


def test_a_crop_has_something_valid_where_there_is_something(tmp_path: Path) -> None:
    truth = np.full((40, 40, 2), np.nan, np.float32)
    truth[30:, :12] = 1
    dataset = make_frame(tmp_path, np.zeros((40, 40, 3), np.uint8), truth)
    samples = [read_sample(dataset, n, (8, 8), 0)[2] for n in range(60)]
    assert all(valid.any() for valid in samples)
    assert len({valid.tobytes() for valid in samples}) > 10


def test_a_truth_without_a_valid_pixel_comes_as_such(tmp_path: Path) -> None:
    dataset = make_frame(tmp_path, np.zeros((9, 9, 3), np.uint8), np.full((9, 9, 2), np.nan, np.float32))
    _, flow, valid = read_sample(dataset, 0, (4, 4), 0)
    assert not valid.any()
    assert not flow.any()


def test_disparity_stays_one_channel_and_keeps_its_sign(tmp_path: Path) -> None:
    grey = np.arange(48, dtype=np.uint8).reshape(6, 8)
    dataset = make_frame(tmp_path, grey, 1 + grey[..., None].astype(np.float32), "disp.pfm")
    for n in range(8):
        image, flow, valid = read_sample(dataset, n, (4, 4), 0)
        assert valid.all()
        # A grey image has three equal channels.
        assert np.array_equal(np.rint(image * 255) + 1, np.repeat(flow, 3, axis=0))
    assert DiskBatches(dataset, 1, (4, 4)).channels == 1


def test_mixed_channels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in folder must be of one kind, got 1 channels .* and 2 channels"):
        DiskBatches(open_dataset("folder", make_root(tmp_path)), 1, (4, 4))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_file_is_told_in_its_own_sentence(tmp_path: Path, workers: int) -> None:
    truth = make_sample(tmp_path / "A" / "one") / "flow.flo"
    dataset = open_dataset("folder", tmp_path)
    truth.write_bytes(truth.read_bytes()[:-8])
    with pytest.raises(FileFormatError, match=rf"^{truth}: .*") as caught:
        batches(dataset, 1, workers=workers)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch must be a positive multiple of the 1 processes, got 0"),
        ({"batch": 5, "world": 2}, "batch must be a positive multiple of the 2 processes, got 5"),
        ({"size": (8,)}, r"size must be \(H, W\), each at least 1, got \(8,\)"),
        ({"size": (8, 0)}, r"size must be .*, got \(8, 0\)"),
        ({"rank": 2, "world": 2}, "rank must be from 0 to 1, got 2"),
        ({"rank": -1}, "rank must be from 0 to 0, got -1"),
        ({"world": 0}, "world must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"first_sample": -1}, "first_sample must be at least 0, got -1"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
    ],
)
def test_bad_arguments(coordinates: Dataset, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        batches(coordinates, 1, **arguments)


def test_an_empty_data_set_is_refused(coordinates: Dataset) -> None:
    with pytest.raises(InputError, match="dataset: all truths in folder must be of one kind, got no sample"):
        DiskBatches(coordinates[:0], 1, (4, 4))


@pytest.mark.parametrize("name", ["KITTI2012", "Middlebury", "Disparity"])
def test_real_frames(name: str) -> None:
    dataset = open_dataset("folder", reference("realflow") / name)
    (batch,) = batches(dataset, 1, batch=len(dataset), size=(384, 384))
    known: Tensor = batch.valid.expand_as(batch.flow) > 0
    assert batch.flow.shape[1] == (1 if name == "Disparity" else 2)
    assert all(torch.isfinite(part).all() for part in batch)
    assert (batch.flow[~known] == 0).all()
    assert (batch.valid.mean(dim=(1, 2, 3)) > 0.15).all()
    assert 0 <= batch.image.min() < 0.2
    assert 0.8 < batch.image.max() <= 1
