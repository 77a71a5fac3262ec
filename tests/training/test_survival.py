"""Killed runs, runs on a full disk, and signals to a process group, each in separate processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    command = [sys.executable, str(TESTS / "killed_runs.py"), str(folder)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_killed_at_any_instant_a_run_goes_on_as_if_it_had_not_been(found: dict[str, Any]) -> None:
    killed = found["killed"]
    assert killed["kills"] == 12
    assert killed["resumes"] >= 4, "most kills came before the first checkpoint: too early to tell"
    assert killed["partial"] == []
    assert killed["runs"] == [{"step": 10, "same": True, "log": True}] * len(killed["runs"])


def test_a_full_disk_leaves_the_last_good_checkpoint_and_a_sentence(folder: Path, found: dict[str, Any]) -> None:
    checkpoints = folder / "full" / "checkpoints"
    sentence = "cannot write the checkpoint (File too large); the last good one is step-000000003.safetensors"
    assert found["full"] == {"error": f"{checkpoints / 'step-000000006.safetensors'}: {sentence}", "status": 0}
    assert [path.name for path in checkpoints.iterdir()] == ["step-000000003.safetensors"]
    assert not list((folder / "full").glob(".flowinpaint-*"))


def test_a_signal_to_all_processes_of_a_run_leaves_a_checkpoint(folder: Path, found: dict[str, Any]) -> None:
    group = found["group"]
    assert group["first"] == "1\n"
    assert group["rest"].endswith("interrupted True\n")
    assert group["status"] == 0
    assert len(list((folder / "group" / "checkpoints").iterdir())) == 1
