import errno
import json
import os
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from flowinpaint.errors import FileFormatError
from flowinpaint.training.checkpoint import (
    KEY,
    Checkpoint,
    list_checkpoints,
    newest_that,
    read_checkpoint,
    read_newest,
    restore,
    write_checkpoint,
)
from helpers import disk_events
from tiny_runs import tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")


def example(step: int) -> Checkpoint:
    return Checkpoint(
        step, 1.5 * step, tiny(data={"seed": step}), {"a": torch.full((3,), float(step)), "b": torch.tensor(0.5)}
    )


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, example(7))
    back = read_checkpoint(path)
    assert (back.step, back.seconds, back.config) == (7, 10.5, example(7).config)
    assert torch.equal(back.tensors["a"], torch.full((3,), 7.0))
    assert back.tensors["b"].item() == 0.5


def test_the_last_two_are_kept_by_their_number(tmp_path: Path) -> None:
    for step in (9, 10, 11, 1_000_000_000):
        write_checkpoint(tmp_path, example(step))
    assert [read_checkpoint(path).step for path in list_checkpoints(tmp_path)] == [1_000_000_000, 11]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_torn_file_is_passed_over_with_a_sentence(tmp_path: Path, share: float) -> None:
    write_checkpoint(tmp_path, example(1))
    newer = write_checkpoint(tmp_path, example(2))
    whole = newer.read_bytes()
    newer.write_bytes(whole[: int(share * len(whole))])
    read, faults = read_newest(tmp_path)
    assert read.step == 1
    assert len(faults) == 1
    assert re.match(f"{newer}: (must not be empty|truncated: |not a readable safetensors file: )", faults[0])


def test_temporary_files_and_others_are_no_checkpoints(tmp_path: Path) -> None:
    good = write_checkpoint(tmp_path, example(1))
    for name in (".flowinpaint-0123.safetensors", "step-000000002.safetensors.part", "model.safetensors"):
        (tmp_path / name).write_bytes(b"x")
    assert list_checkpoints(tmp_path) == [good]


@pytest.mark.parametrize("about", [{}, {"step": 1}, {"step": 1, "seconds": 0, "config": {"modle": {}}}, []])
def test_metadata_of_something_else_are_refused(tmp_path: Path, about: object) -> None:
    path = tmp_path / "step-000000001.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata={KEY: json.dumps(about)})
    with pytest.raises(FileFormatError, match="the metadata do not describe a run"):
        read_checkpoint(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(FileFormatError, match="must be a checkpoint with metadata"):
        read_newest(tmp_path)


def test_nothing_to_resume_from_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no checkpoint"):
        read_newest(tmp_path)


def test_tensors_must_fit_where_they_go() -> None:
    state = {"a": torch.zeros(3), "b": torch.zeros(())}
    restore(state, {"a": torch.ones(3), "b": torch.tensor(2.0)})
    assert state["a"].tolist() == [1, 1, 1]
    with pytest.raises(FileFormatError, match=r"a must be of shape \(3,\), got \(2,\)"):
        restore(state, {"a": torch.ones(2), "b": torch.zeros(())})
    with pytest.raises(FileFormatError, match=r"got a difference at b; resume with the version of"):
        restore(state, {"a": torch.ones(3)})
    assert state["a"].tolist() == [1, 1, 1]


def test_a_full_disk_leaves_the_last_good_one_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = write_checkpoint(tmp_path, example(1))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"step-000000002.*No space left on device.*the last good one is step-000000001"):
        write_checkpoint(tmp_path, example(2))
    assert list(tmp_path.iterdir()) == [good]
    assert read_newest(tmp_path)[0].step == 1


def test_the_data_are_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = disk_events(monkeypatch)
    write_checkpoint(tmp_path, example(1))
    assert events == ["file", "name", "folder"]


def damage(path: Path, change: dict[str, object]) -> None:
    """Replace metadata of a checkpoint."""
    saved = read_checkpoint(path)
    about = {"step": saved.step, "seconds": saved.seconds, "config": {}} | change
    text = json.dumps(about).replace('"1e400"', "1e400")
    save_file(dict(saved.tensors), path, metadata={KEY: text})


@pytest.mark.parametrize(
    "change",
    [
        {"config": []},
        {"config": None},
        {"config": {"model": {"kind": []}}},
        {"config": {"data": {"seed": 10**400}}},
        {"step": float("inf")},
        {"step": float("nan")},
        {"step": "1e400"},
        {"step": 10**400},
        {"step": -2},
        {"step": "x"},
        {"step": True},
        {"step": 2.0},
        {"step": 3},
        {"seconds": float("nan")},
        {"seconds": -1.0},
        {"seconds": []},
        {"more": 1},
    ],
    ids=str,
)
def test_damaged_metadata_pass_on_to_the_previous_checkpoint(tmp_path: Path, change: dict[str, object]) -> None:
    write_checkpoint(tmp_path, example(1))
    newer = write_checkpoint(tmp_path, example(2))
    damage(newer, {})
    assert read_newest(tmp_path)[0].step == 2
    damage(newer, change)
    with pytest.raises(FileFormatError, match="step-000000002"):
        read_checkpoint(newer)
    read, faults = read_newest(tmp_path)
    assert (read.step, len(faults)) == (1, 1)


def test_checkpoints_that_are_no_files_are_passed_over(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, example(1))
    loop = tmp_path / "step-000000002.safetensors"
    loop.symlink_to(loop)
    (tmp_path / "step-000000003.safetensors").mkdir()
    read, faults = read_newest(tmp_path)
    assert (read.step, len(faults)) == (1, 2)


def test_tensors_that_do_not_fit_pass_on_to_the_previous_checkpoint(tmp_path: Path) -> None:
    state = {"a": torch.zeros(3), "b": torch.zeros(())}
    write_checkpoint(tmp_path, example(1))
    newer = write_checkpoint(tmp_path, example(2))

    def restored(saved: Checkpoint) -> int:
        restore(state, saved.tensors)
        return saved.step

    for change in ({"a": torch.ones(2)}, {"a": torch.ones(3).int()}, {"c": torch.ones(3)}):
        tensors = {"a": torch.ones(3), "b": torch.ones(())} | change
        save_file(tensors, newer, metadata={KEY: json.dumps({"step": 2, "seconds": 0.0, "config": {}})})
        step, faults = newest_that(tmp_path, restored)
        assert step == 1
        assert "step-000000002.safetensors: checkpoint" in faults[0]
    assert state["a"].tolist() == [1, 1, 1]
