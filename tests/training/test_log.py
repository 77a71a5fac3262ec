import json
import sys
from pathlib import Path

import numpy as np
import pytest

from flowinpaint.training.checkpoint import RunFolder
from flowinpaint.training.recorder import TRAIN, VALIDATION, Log, cut_back


def write(path: Path, *steps: int, rest: str = "") -> Path:
    path.write_text("".join(f'{{"kind": "train", "step": {step}}}\n' for step in steps) + rest)
    return path


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("rest", ["", '{"kind": "train", "st', '{"kind": "train", "step": 2}', "null\n", "\x00\x00\n"])
def test_a_log_is_cut_back_to_whole_lines_up_to_a_step(tmp_path: Path, rest: str) -> None:
    log = write(tmp_path / "log.jsonl", 1, 2, 3, rest=rest)
    assert not cut_back(log, 2)
    assert steps(log) == [1, 2]
    log = write(tmp_path / "log.jsonl", 1, 2, rest=rest)
    cut_back(log, 5)
    assert steps(log) == [1, 2]


def test_it_is_known_whether_the_step_has_its_validation(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", 1, 2, rest='{"kind": "validation", "step": 2}\n')
    assert cut_back(log, 3) is False
    assert cut_back(log, 2) is True
    assert cut_back(log, 1) is False
    assert cut_back(tmp_path / "none.jsonl", 1) is False


def test_lines_scalars_and_pictures_are_written(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = Log(RunFolder(tmp_path), 0)
    log.add(TRAIN, 1, {"loss": 0.5, "grad_norm": None})
    log.add(VALIDATION, 1, {"ratio": {"5": 0.25}})
    log.picture("heldout", 1, np.zeros((4, 6, 3), np.uint8))
    log.close()
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[1])["ratio"] == {"5": 0.25}
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"train/loss", "validation/ratio/5"}
    assert events.Scalars("train/loss")[0].value == 0.5
    assert events.Tags()["images"] == ["heldout"]


def test_without_tensorboard_the_lines_are_there_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    log = Log(RunFolder(tmp_path), 0)
    assert not log.has_tensorboard
    log.add(TRAIN, 1, {"loss": 0.5})
    log.picture("heldout", 1, np.zeros((4, 6, 3), np.uint8))
    log.settle()
    log.close()
    assert steps(tmp_path / "log.jsonl") == [1]
    assert not (tmp_path / "tensorboard").exists()
