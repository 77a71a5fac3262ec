"""Fills in child processes: forked after use, spawned, from a fork server, and in workers of a data loader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flowinpaint import forked
from flowinpaint.errors import InputError


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_children_of_a_process_that_has_filled_can_fill() -> None:
    program = Path(__file__).with_name("child_processes.py")
    command = [sys.executable, "-W", "ignore", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    ways = [
        "PyTorch alone",
        "all_methods",
        "own_threads",
        "too_many_threads",
        "gradients",
        "nested",
        "in_thread",
        "own_threads of one",
    ]
    ways += ["fork", "spawn", "forkserver", "data loader"]
    assert done.stdout.splitlines() == [*(f"{way}: ok" for way in ways), "threads of the parent: 2"], done.stderr


def test_cuda_after_a_fork_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(InputError, match=r'device must be "cpu", because CUDA was used before .*got \'cuda\'; start'):
        forked.check_fork(torch.device("cuda"))
    forked.check_fork(torch.device("cpu"))
