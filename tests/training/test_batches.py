from pathlib import Path
from typing import Any

import pytest
import torch

from flowinpaint.errors import InputError
from flowinpaint.training.batches import DiskSource, open_source
from flowinpaint.training.checkpoint import read_newest
from flowinpaint.training.loop import build_step, train
from frame_folder import make_sample
from tiny_runs import CPU, tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")


@pytest.fixture
def disk(tmp_path: Path) -> dict[str, Any]:
    """The [data] table of a small folder data set."""
    for i in range(3):
        make_sample(tmp_path / "frames" / "A" / f"{i}", seed=i)
    return {"source": "folder", "root": str(tmp_path / "frames"), "size": [16, 16], "batch": 2, "workers": 0}


def test_batches_from_disk_go_into_the_same_buffers_in_order(disk: dict[str, Any]) -> None:
    source = open_source(tiny(data=disk).data, CPU, step=0, compile_scenes=False)
    addresses = set()
    for step in range(3):
        source.prepare()
        samples = torch.arange(2 * step, 2 * step + 2)
        batch = source.batch(samples)
        addresses.add(batch.image.data_ptr())
        again = source.again(samples)
        assert all(torch.equal(a, b) for a, b in zip(batch, again, strict=True))
    assert len(addresses) == 1


def test_a_source_goes_on_at_a_step(disk: dict[str, Any]) -> None:
    data = tiny(data=disk).data
    source = DiskSource(data, CPU, step=2)
    source.prepare()
    assert torch.equal(source.batch(torch.tensor([4, 5])).flow, source.again(torch.tensor([4, 5])).flow)


def test_training_from_disk_goes_on_where_it_was(disk: dict[str, Any], tmp_path: Path) -> None:
    short = {"curve": "halving", "steps": 2}
    train(tiny(data=disk, schedule=short | {"steps": 4}), tmp_path / "whole", CPU)
    train(tiny(data=disk, schedule=short), tmp_path / "parts", CPU)
    train(tiny(data=disk, schedule=short | {"steps": 4}), tmp_path / "parts", CPU, resume=True)
    whole, parts = (read_newest(tmp_path / name / "checkpoints")[0].tensors for name in ("whole", "parts"))
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


def test_invalid_pixels_do_not_count(disk: dict[str, Any]) -> None:
    training = build_step(tiny(data=disk | {"size": [16, 30]}), CPU)
    batch = training.source.again(torch.arange(2))
    assert 0 < batch.valid.mean() < 1
    assert (training.task_of(torch.arange(2), batch).mask <= batch.valid).all()


def test_a_wrong_data_set_is_told(disk: dict[str, Any], tmp_path: Path) -> None:
    for change, sentence in (({"source": "stereo"}, "got 'stereo'"), ({"root": str(tmp_path / "no")}, "no")):
        with pytest.raises(InputError, match=sentence):
            open_source(tiny(data=disk | change).data, CPU, 0, False)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "sintell", "root": "."}, r"data\.source must be one of .*, got 'sintell'"),
        ({"source": "sintel", "root": "nowhere"}, r"data\.root must contain the folder nowhere"),
    ],
)
def test_what_is_wrong_with_a_data_set_names_its_key(data: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(tiny(data=data).data, CPU, step=0, compile_scenes=False)
