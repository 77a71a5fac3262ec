import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from flowinpaint.errors import InputError
from flowinpaint.training.distributed import World, join

TESTS = Path(__file__).resolve().parents[1]
TINY_FILE = """
[model]
width = 4
[data]
size = [16, 16]
batch = 2
[schedule]
steps = 2
[validation]
heldout = 0
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, str(TESTS / "two_processes.py"), str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_two_processes_learn_what_one_does_with_the_joint_batch(found: dict[str, Any]) -> None:
    assert found["outcomes"]["alone"] == [[8, False]]
    assert found["outcomes"]["two"] == [[8, False], [8, False]]
    assert found["two_against_one"] < 1e-5
    assert found["other_seed"] > 1e-2
    assert found["losses"]["two"] == pytest.approx(found["losses"]["alone"], rel=1e-5)


def test_a_signal_to_one_process_stops_both_after_the_same_step(found: dict[str, Any]) -> None:
    assert found["outcomes"]["stopped"] == [[4, True], [4, True]]
    assert found["outcomes"]["resumed"] == [[8, False], [8, False]]
    assert found["resumed_against_two"] == 0
    assert found["losses"]["stopped"] == found["losses"]["two"]


def test_a_batch_that_cannot_be_shared_is_refused(found: dict[str, Any]) -> None:
    sentence = "InputError: data.batch must be a multiple of the 2 processes, got 3"
    assert found["outcomes"]["odd"] == [sentence, sentence]


def test_alone_there_is_nothing_to_agree_on() -> None:
    world = World(torch.device("cpu"))
    assert world.first
    assert world.agree(1.0, 2.0) == [1.0, 2.0]
    assert world.share(7) == 7
    assert world.mean(torch.tensor(3.0)).item() == 3


def test_a_wrong_device_is_refused() -> None:
    with pytest.raises(InputError, match=r"device must be .*, got 'gpu'"), join("gpu"):
        pass


def test_torchrun_starts_it_and_only_the_first_process_speaks(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY_FILE)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "flowinpaint"]
    command += ["train", "tiny.toml", "-o", "run", "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Trained 2 steps") == 1
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000002.safetensors"]
