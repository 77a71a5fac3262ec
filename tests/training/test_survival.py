"""Runs that are killed and disks that are full, each in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from frame_folder import make_sample

TESTS = Path(__file__).resolve().parents[1]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


def test_killed_at_any_instant_a_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    done = python(TESTS / "killed_runs.py", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 20
    assert found["resumes"] >= 5, "most kills came before the first checkpoint: too early to tell"
    assert found["partial"] == []
    assert found["runs"] == [{"step": 10, "same": True, "log": True}] * len(found["runs"])


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import torch
from flowinpaint.training.loop import Listener, train
from tiny_runs import CPU, tiny, use_halves

use_halves()
torch.set_num_threads(1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def progress(at):
    if at.step == 4:  # no file may grow beyond this from now on: a checkpoint does not fit
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

try:
    train(tiny(model={"width": 8}), Path(sys.argv[1]), CPU, listener=Listener(progress=progress))
except OSError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_last_good_checkpoint_and_a_sentence(tmp_path: Path) -> None:
    done = python("-c", FULL_DISK, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    checkpoints = tmp_path / "run" / "checkpoints"
    sentence = "the checkpoint could not be written (File too large); the last good one is step-000000003.safetensors."
    assert done.stdout.strip() == f"{checkpoints / 'step-000000006.safetensors'}: {sentence}"
    assert [path.name for path in checkpoints.iterdir()] == ["step-000000003.safetensors"]
    assert not list((tmp_path / "run").glob(".flowinpaint-*"))


GROUP = """
import sys
from pathlib import Path
import torch
from flowinpaint.training.distributed import World
from flowinpaint.training.loop import Listener, train
from tiny_runs import tiny

torch.set_num_threads(1)
disk = {"source": "folder", "root": sys.argv[1], "size": [16, 16], "batch": 2, "workers": 2}
config = tiny(data=disk, schedule={"steps": 10**6}, run={"checkpoint_every": 10**6})
listener = Listener(progress=lambda at: print(at.step, flush=True))
print("interrupted", train(config, Path(sys.argv[2]), World(torch.device("cpu")), listener=listener).interrupted)
"""


def test_a_signal_to_all_processes_of_a_run_leaves_a_checkpoint(tmp_path: Path) -> None:
    for i in range(3):
        make_sample(tmp_path / "frames" / "A" / f"{i}", seed=i)
    command = [sys.executable, "-c", GROUP, str(tmp_path / "frames"), str(tmp_path / "run")]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "1\n"
        os.killpg(run.pid, signal.SIGTERM)  # as torchrun and service managers do
        output = run.stdout.read()
        assert run.wait(timeout=60) == 0
    assert output.endswith("interrupted True\n")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1
